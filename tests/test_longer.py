"""Longer and shorter: trained on, ended by a listener, ended by patience."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import cupola
from cupola.config import Decay, RunConfig, resolve
from cupola.errors import CupolaError
from cupola.reports import results
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.tasks import spec_of

PROBE = {
    **{"iterations": 6, "checkpoint_every": 2, "batch_size": 40, "num_envs": 4},
    **{"minibatch_size": 20, "epochs": 1, "hidden": (4,), "threads": 1, "progress": False},
}


def train(path: Path, **fields) -> cupola.Run:
    return cupola.train("ppo_lag", "ProbeQuadratic", out=path, **PROBE | fields)


def resume(path: Path, **options) -> cupola.Run:
    return cupola.resume(path, progress=False, **options)


def config_of(path: Path) -> RunConfig:
    return RunConfig.of(RunDirectory.open(path))


def arrays_of(path: Path) -> checkpoints.Arrays:
    return RunDirectory(path).newest_checkpoint("none").arrays


def assert_same_bits(one: Path, other: Path) -> None:
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    ours, theirs = arrays_of(one), arrays_of(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].tobytes() == theirs[name].tobytes(), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> cupola.Run:
    return train(tmp_path_factory.mktemp("whole") / "run")


# --- The decay of the learning rate, by hand ---


def config(iterations: int = 100) -> RunConfig:
    fields = {"iterations": iterations}
    return resolve("ppo_lag", spec_of("ProbeQuadratic"), None, None, fields)


def test_a_decay_that_is_stretched_is_that_of_a_longer_run():
    longer = config().trained_on(100, 400, restart_decay=False)
    assert longer.options.iterations == 400
    assert [longer.progress(k) for k in (0, 50, 99)] == [0, 0.5, 0.99]  # as it was
    assert [longer.progress(k) for k in (100, 200, 399)] == [0.25, 0.5, 399 / 400]


def test_a_decay_that_restarts_begins_at_the_full_rate():
    longer = config().trained_on(100, 300, restart_decay=True)
    assert [longer.progress(k) for k in (99, 100, 200, 299)] == [0.99, 0, 0.5, 199 / 200]
    again = longer.trained_on(300, 500, restart_decay=False)
    # Stretched over what began at 100.
    assert [again.progress(k) for k in (200, 300, 400)] == [0.5, 0.5, 0.75]


def test_a_shorter_run_decays_faster_from_where_it_is():
    shorter = config().trained_on(20, 50, restart_decay=False)
    assert [shorter.progress(k) for k in (19, 20, 49)] == [0.19, 0.4, 0.98]


def test_a_run_of_which_nothing_is_done_is_simply_another_one():
    assert config().trained_on(0, 400, restart_decay=False) == config(400)
    assert config().trained_on(0, 400, restart_decay=True) == config(400)
    assert config().trained_on(100, 100, restart_decay=True) == config()
    assert config().trained_on(40, 40, restart_decay=False).progress(30) == 0.3


def test_a_config_that_was_changed_is_read_again():
    longer = config().trained_on(100, 300, restart_decay=True).trained_on(200, 250, False)
    assert longer.decay == (Decay(0, 0, 100), Decay(100, 100, 300), Decay(200, 100, 250))
    assert RunConfig.from_json(json.loads(json.dumps(longer.to_json()))) == longer


@pytest.mark.parametrize(
    "change",
    [
        {"decay": [[5, 0, 100]]},
        {"decay": [[0, 0, 100], [0, 0, 100]]},
        {"decay": [[0, 0, 0]]},
        {"decay": [[0, 0, 50]]},
        {"decay": [[0, 0]]},
        {"ended": {"iteration": 101, "reason": "x"}},
    ],
)
def test_a_damaged_decay_or_end_is_refused(change):
    with pytest.raises(CupolaError, match="the config is incomplete or damaged"):
        RunConfig.from_json(config().to_json() | change)


# --- Trained on ---


@pytest.mark.parametrize("decay", ["stretch", "restart"])
def test_a_finished_run_trains_on_exactly_also_when_it_is_stopped(whole, tmp_path, decay):
    paths = [Path(shutil.copytree(whole.path, tmp_path / name)) for name in "ab"]
    longer = resume(paths[0], iterations=12, decay=decay)
    assert (longer.finished, longer.began, len(longer.metrics)) == (True, 6, 12)
    assert longer.metrics[:6] == whole.metrics
    # The other one is stopped in between, and then loses its newest checkpoints: it goes back to
    # iterations before the change, which it repeats as they were.
    with pytest.raises(ZeroDivisionError):
        resume(paths[1], iterations=12, decay=decay, listener=lambda m, _: 1 / (9 - m["iteration"]))
    for file in sorted((paths[1] / "checkpoints").iterdir())[1:]:
        file.unlink()
    assert resume(paths[1]).began == 6
    assert_same_bits(*paths)


def test_going_back_behind_the_change_repeats_what_was(whole, tmp_path):
    paths = [Path(shutil.copytree(whole.path, tmp_path / name)) for name in "ab"]
    for path in paths:
        resume(path, iterations=8, decay="restart")
    for file in ("00000006", "00000008"):
        (paths[1] / "checkpoints" / f"{file}.safetensors").unlink()
    assert resume(paths[1]).began == 4
    assert_same_bits(*paths)


def test_the_rates_are_those_that_are_said(whole, tmp_path):
    """An optimiser's first step is its learning rate: here seen in what a longer run learns."""
    paths = [Path(shutil.copytree(whole.path, tmp_path / name)) for name in "abc"]
    steps = []
    for path, (iterations, decay) in zip(
        paths, ((7, "stretch"), (600, "stretch"), (600, "restart")), strict=True
    ):
        stop = lambda *_: cupola.STOP  # noqa: E731
        resume(path, iterations=iterations, decay=decay, listener=stop)
        before, after = arrays_of(whole.path), arrays_of(path)
        name = "learner.policy.mean[0][0]"
        steps.append(np.abs(after[name] - before[name]).max())
    # 1 - 6/7, 1 - 6/600 and 1 of the full rate.
    np.testing.assert_allclose(steps / steps[2], [1 / 7, 0.99, 1], rtol=0.2)


def test_fewer_iterations_than_are_done_are_refused(whole, tmp_path):
    path = Path(shutil.copytree(whole.path, tmp_path / "run"))
    before = (path / "config.json").read_bytes()
    for wrong, said in (
        (5, "6 iterations are done: write --iterations 6 or more"),
        (0, "at least"),
    ):
        with pytest.raises(CupolaError, match=said):
            resume(path, iterations=wrong)
    with pytest.raises(CupolaError, match="decay must be one of stretch, restart, not 'never'"):
        resume(path, iterations=9, decay="never")
    assert (path / "config.json").read_bytes() == before


def test_the_command_says_what_happens_to_the_learning_rate(whole, tmp_path, command):
    path = Path(shutil.copytree(whole.path, tmp_path / "run"))
    status, out, err = command("resume", path, "--iterations", "8")
    assert (status, err) == (0, "")
    assert "learning rates: 25% of their start now, falling to 0 at iteration 8\n" in out
    assert re.search(r"^6/8  compiling \.\.\.$", out, re.MULTILINE)
    assert "8 iterations, 320 steps" in out
    status, out, _ = command("resume", path)
    assert status == 0
    assert "already finished: all 8 iterations are done" in out
    assert "compiling" not in out


# --- Ended ---


def stop_at(iteration: int):
    return lambda metrics, _: cupola.STOP if metrics["iteration"] == iteration else None


def test_a_listener_ends_a_run(whole, tmp_path, command):
    path = tmp_path / "run"
    run = train(path, listener=stop_at(3))
    assert (run.finished, run.config.ended) == (True, (3, "a listener returned STOP"))
    assert run.metrics == whole.metrics[:3]
    assert RunDirectory(path).newest_checkpoint("none").iteration == 3
    assert config_of(path).ended == run.config.ended
    again = resume(path)
    assert (again.began, again.finished, again.metrics) == (3, True, run.metrics)
    status, out, _ = command("resume", path)
    assert status == 0
    said = "ended at iteration 3 of 6 (a listener returned STOP); to train on: cupola resume"
    assert f"{said} {path} --iterations 6\n" in out
    [shown] = results.load(path.parent).runs
    assert (shown.state, shown.reason) == ("finished", "ended early: a listener returned STOP")
    # Trained on, it ends as if nothing had been.
    assert resume(path, iterations=6).metrics == whole.metrics
    assert_same_bits(path, whole.path)
    assert config_of(path) == whole.config
    assert "ended" not in json.loads((path / "config.json").read_text())


def test_only_stop_stops(whole, tmp_path):
    answers = iter((None, True, False, "STOP", 0, 1))
    assert train(tmp_path / "run", listener=lambda *_: next(answers)).metrics == whole.metrics


def test_a_stop_in_the_last_iteration_is_a_finished_run(tmp_path):
    run = train(tmp_path / "run", listener=stop_at(6))
    assert (run.finished, run.config.ended) == (True, None)


def test_a_run_that_is_killed_while_it_ends_ends_with_the_same_iteration(tmp_path, monkeypatch):
    """The end is written down before the last checkpoint."""
    whole, path = train(tmp_path / "whole", listener=stop_at(5)), tmp_path / "run"
    with monkeypatch.context() as patch:
        original = RunDirectory.checkpoint

        def die(self, iteration, *rest):
            if iteration == 5:
                raise MemoryError("killed")
            original(self, iteration, *rest)

        patch.setattr(RunDirectory, "checkpoint", die)
        with pytest.raises(MemoryError, match="killed"):
            train(path, listener=stop_at(5))
    assert checkpoints.iterations(Folder(path, "checkpoints")) == [2, 4]
    run = resume(path)
    assert (run.began, run.finished, len(run.metrics)) == (4, True, 5)
    assert_same_bits(path, whole.path)


def test_a_restarted_run_forgets_that_it_ended(whole, tmp_path):
    path = tmp_path / "run"
    train(path, listener=stop_at(3))
    assert resume(path, restart=True).metrics == whole.metrics


@pytest.fixture(scope="module")
def impatient(tmp_path_factory) -> cupola.Run:
    path = tmp_path_factory.mktemp("impatient") / "run"
    return train(path, iterations=60, patience=5, batch_size=8, minibatch_size=4)


def test_patience_ends_a_run_that_finds_nothing_better(impatient, tmp_path):
    ended = impatient.config.ended
    assert impatient.finished
    assert ended == (len(impatient.metrics), "no better policy for 5 iterations")
    # The policy that collected the last batch was the fifth that was no better.
    assert ended.iteration - 1 - impatient.best.iteration == 5
    assert ended.iteration < 60
    # Until then it was a run as any other.
    fields = {"iterations": 60, "batch_size": 8, "minibatch_size": 4}
    patient = train(tmp_path / "run", listener=stop_at(ended.iteration), **fields)
    assert patient.metrics == impatient.metrics
    assert patient.best == impatient.best
    # Trained on, it does not end again at once.
    path = Path(shutil.copytree(impatient.path, tmp_path / "copy"))
    assert len(resume(path, iterations=ended.iteration + 2).metrics) == ended.iteration + 2


def test_patience_counts_on_in_a_resumed_run(impatient, tmp_path):
    path = tmp_path / "run"
    fields = {"iterations": 60, "patience": 5, "batch_size": 8, "minibatch_size": 4}
    moment = impatient.best.iteration + 3

    def fail(metrics, _):
        if metrics["iteration"] == moment:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(path, listener=fail, **fields)
    resumed = resume(path)
    assert resumed.began == moment
    assert resumed.config.ended == impatient.config.ended
    assert_same_bits(path, impatient.path)
