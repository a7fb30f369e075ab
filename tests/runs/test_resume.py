"""A run that is stopped, killed or damaged and then resumed ends as the one that never was."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cupola import training
from cupola.cli import main
from cupola.errors import CupolaError
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.runs.sinks import make_sinks

ITERATIONS, EVERY, KEEP = 40, 3, 3
SMALL = (
    *("train", "cup", "HopperSpeed", "--limit", "5", "--multiplier-lr", "0.1", "--seed", "1"),
    *("--batch-size", "200", "--num-envs", "4", "--minibatch-size", "50", "--epochs", "2"),
    *("--hidden", "8", "8", "--iterations", str(ITERATIONS)),
    *("--checkpoint-every", str(EVERY), "--keep-checkpoints", str(KEEP)),
)
Child = subprocess.Popen[str]
PATIENCE = 180.0  # seconds; machines can be slow


def start(*args: str | Path, program: tuple[str, ...] = ("-m", "cupola")) -> Child:
    command = [sys.executable, *program, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child: Child) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=PATIENCE)
    return child.returncode, out, err


def lines(path: Path) -> int:
    file = path / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for(condition: Callable[[], bool], child: Child) -> None:
    """Until the condition holds or the child ended."""
    deadline = time.monotonic() + PATIENCE
    while not condition() and child.poll() is None:
        assert time.monotonic() < deadline, "the child makes no progress"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("undisturbed") / "run"
    status, _, err = finish(start(*SMALL, "--threads", "1", "--out", path))
    assert (status, err) == (0, "")
    return path


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "copy"))


def assert_same_outcome(run: Path, reference: Path) -> None:
    assert (run / "metrics.jsonl").read_bytes() == (reference / "metrics.jsonl").read_bytes()
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    assert [record["iteration"] for record in timings] == list(range(1, ITERATIONS + 1))
    kept = checkpoints.iterations(Folder(run, "checkpoints"))
    assert len(kept) == KEEP
    assert kept[-1] == ITERATIONS
    assert not list(run.rglob("*.tmp"))
    (i, ours, m), (j, theirs, n) = (
        checkpoints.read(Folder(path, "checkpoints"), checkpoints.name_of(ITERATIONS))
        for path in (run, reference)
    )
    assert (i, m) == (j, n)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype
        assert ours[name].tobytes() == theirs[name].tobytes(), name


def test_the_undisturbed_run_exercises_everything_that_is_saved(undisturbed):
    """Else the comparisons below would show little: multipliers, episodes and networks change."""
    records = RunDirectory.open(undisturbed).metrics()
    assert [record["iteration"] for record in records] == list(range(1, ITERATIONS + 1))
    assert sum(record["episodes"] for record in records) > 50
    assert sum(record["epochs_project"] for record in records) > ITERATIONS / 4
    assert len({record["nu/speed"] for record in records}) > 5
    names = set(RunDirectory(undisturbed).newest_checkpoint("none").arrays)
    parts = ("learner.policy", "learner.critic_opt", "learner.nu", "moments", "task.physics")
    for part in (*parts, "best.policy"):
        assert any(part in name for name in names), part


# --- Stopped and killed ---


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_stopped_run_says_how_to_continue_and_ends_alike(undisturbed, tmp_path, number):
    run = tmp_path / "run"
    child = start(*SMALL, "--out", run)
    wait_for(lambda: lines(run) >= 4, child)
    child.send_signal(number)
    status, out, err = finish(child)
    assert (status, err) == (130, "")
    assert f"cupola resume {run}" in out
    assert "iterations so far" in out
    stopped = lines(run)
    assert 4 <= stopped < ITERATIONS
    # Nothing is lost: the iteration at hand was finished and saved.
    assert RunDirectory(run).newest_checkpoint("none").iteration == stopped
    expected = (undisturbed / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    assert (run / "metrics.jsonl").read_bytes() == b"".join(expected[:stopped])
    status, out, err = finish(start("resume", run))
    assert (status, err) == (0, "")
    assert f"{ITERATIONS} iterations" in out
    assert_same_outcome(run, undisturbed)


def test_kills_at_random_moments_change_nothing(undisturbed, tmp_path):
    run, rng = tmp_path / "run", np.random.default_rng(4)
    moments = np.sort(rng.choice(np.arange(4, ITERATIONS - 1), 3, replace=False))
    resumed_at = []
    for moment in (0, *moments):  # the first while it starts
        held = (run / "config.json").exists()
        child = start("resume", run) if held else start(*SMALL, "--out", run)
        wait_for(lambda moment=moment: lines(run) >= moment, child)
        time.sleep(rng.uniform(0, 0.06 if moment else 2.0))
        child.send_signal(signal.SIGKILL)
        assert finish(child)[0] in (-signal.SIGKILL, 0)
        found, _ = checkpoints.newest(Folder(run, "checkpoints"))
        resumed_at.append(found.iteration if found else 0)
    assert finish(start("resume", run))[::2] == (0, "")
    assert_same_outcome(run, undisturbed)
    assert len(set(resumed_at)) > 2
    assert max(resumed_at) < ITERATIONS


def test_a_stop_while_the_progress_is_shown_loses_no_iteration(tmp_path):
    """The signal comes after the decision whether to save."""
    fields = {"batch_size": 200, "num_envs": 4, "minibatch_size": 50, "epochs": 2}
    run = training.train(
        "cup",
        "HopperSpeed",
        out=tmp_path / "run",
        limits=5.0,
        listener=lambda metrics, _: (
            signal.raise_signal(signal.SIGTERM) if metrics["iteration"] == 4 else None
        ),
        **fields,
        hidden=(8, 8),
        multiplier_lr=0.1,
        checkpoint_every=3,
    )
    assert not run.finished
    assert run.stopped_by == signal.SIGTERM
    assert len(run.metrics) == 4
    assert RunDirectory(run.path).newest_checkpoint("none").iteration == 4


BOUNDED = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_FSIZE, ({bound}, {bound}))
runpy.run_module("cupola", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs bounds on file sizes")
def test_files_that_may_not_grow_end_the_run_with_a_sentence(tmp_path):
    """As on a full disk: files that are appended to meet the bound, checkpoints fit below it."""
    run, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    light = (*SMALL, "--critic-memory", "0")
    assert finish(start(*light, "--out", undisturbed))[0] == 0
    largest = max(file.stat().st_size for file in (undisturbed / "checkpoints").iterdir())
    bound = (largest + (undisturbed / "metrics.jsonl").stat().st_size) // 2
    assert bound > largest + 500
    child = start(*light, "--out", run, program=("-c", BOUNDED.format(bound=bound)))
    try:
        status, _, err = finish(child)
    finally:
        child.kill()
        child.communicate()
    assert status == 1
    saved = RunDirectory(run).newest_checkpoint("none").iteration
    assert saved > 0
    assert err.startswith(f"cupola: cannot write to {run} (")
    assert err.endswith(f"then 'cupola resume {run}'.\n")
    assert err.count("\n") == 1
    main(["resume", str(run)])
    assert_same_outcome(run, undisturbed)


# --- Damaged ---


@pytest.mark.filterwarnings("always::UserWarning")
@pytest.mark.parametrize("damage", ["truncated", "flipped", "two of three"])
def test_damaged_checkpoints_are_passed_over_with_a_warning(undisturbed, copy, capsys, damage):
    files = sorted((copy / "checkpoints").iterdir(), reverse=True)
    bad = files[:2] if damage == "two of three" else files[:1]
    for file in bad:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 16
        file.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    main(["resume", str(copy)])
    warned = capsys.readouterr().err.splitlines()
    back = ITERATIONS - 4 if damage == "two of three" else ITERATIONS - 1
    assert len(warned) == len(bad)
    for sentence, file in zip(warned, bad, strict=True):
        assert sentence.startswith("cupola: warning: ")
        assert str(file) in sentence
        assert sentence.endswith(f"Going back to iteration {back}.")
    assert_same_outcome(copy, undisturbed)


@pytest.mark.parametrize("missing", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_half_a_line_at_the_end_of_the_metrics_is_written_anew(undisturbed, copy, missing):
    """As a crash leaves it: beyond the last checkpoint, and not to its end."""
    (copy / "checkpoints" / f"{ITERATIONS:08d}.safetensors").unlink()
    for name in ("metrics.jsonl", "timings.jsonl"):
        data = (copy / name).read_bytes()
        (copy / name).write_bytes(data[:-missing])
    main(["resume", str(copy)])
    assert_same_outcome(copy, undisturbed)


# --- Harmless differences ---


def test_threads_change_nothing(undisturbed, tmp_path):
    main([*SMALL, "--threads", "2", "--out", str(tmp_path / "run")])
    assert_same_outcome(tmp_path / "run", undisturbed)


def test_resume_of_a_finished_run_is_harmless_and_shows_its_table(undisturbed, copy, capsys):
    before = {p: p.read_bytes() for p in copy.rglob("*") if p.suffix in (".safetensors", ".jsonl")}
    main(["resume", str(copy)])
    out, err = capsys.readouterr()
    assert err == ""
    assert f"{ITERATIONS} iterations" in out
    assert "so far" not in out
    assert {p: p.read_bytes() for p in before} == before
    assert_same_outcome(copy, undisturbed)


# --- Every write that can be the last one ---


CONFIG = {"algo": "cup", "task": "x", "limits": {}, "algorithm": {"batch_size": 1}, "format": 4}


class Crash(BaseException):
    """The process ends here: nothing catches it but the test."""


def pretend_training(path: Path) -> None:
    """What the training loop does to its directory, with a sum in place of learning."""
    try:
        run = RunDirectory.open(path)
        run.lock()
    except CupolaError:
        run = RunDirectory.create(path, CONFIG)
    [sink] = make_sinks(["tensorboard"])
    iteration = 0
    try:
        saved = run.recover(5)
        iteration = saved.iteration if saved else 0
        total = saved.arrays["total"] if saved else np.zeros(3)
        run.rewind(iteration, keep=2)
        sink.start(path, {}, iteration + 1)
        while iteration < 5:
            iteration += 1
            total = 1.5 * total + iteration
            metrics = {"iteration": iteration, "steps": iteration, "return": total.sum()}
            metrics["length"] = None
            timings = {"iteration": iteration, "rollout_seconds": 0.0, "update_seconds": 0.0}
            run.log(metrics, timings)
            sink.log(metrics, timings)
            if iteration % 2 == 0 or iteration == 5:
                run.checkpoint(iteration, {"total": total}, keep=2)
    finally:
        run.close()
        sink.close(finished=iteration == 5)


def test_a_crash_before_the_oldest_checkpoint_is_forgotten(tmp_path, tiny, monkeypatch):
    """After the last checkpoint of a run there is no other that would forget the oldest."""
    fields = tiny | {"iterations": 4, "checkpoint_every": 2, "keep_checkpoints": 1}
    remove = Folder.remove

    def crash(self: Folder, name: str) -> None:
        if name == checkpoints.name_of(2):
            raise Crash
        remove(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove", crash)
        with pytest.raises(Crash):
            training.train("ppo_lag", "ProbeQuadratic", out=tmp_path / "run", **fields)
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {checkpoints.name_of(2), checkpoints.name_of(4)}
    assert training.resume(tmp_path / "run").finished
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {checkpoints.name_of(4)}


CALLS = ((os, "fsync"), (os, "replace"), (os, "unlink"), (os, "open"), (os, "mkdir"))


def crash_at(call: int, patch: pytest.MonkeyPatch) -> None:
    """Crash before the given one of all calls that change the disk."""
    left = [call]
    for owner, name in CALLS:
        original = getattr(owner, name)

        def counted(*args: object, original=original, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return original(*args, **options)

        patch.setattr(owner, name, counted)


def crash_points(path: Path) -> Iterator[Path]:
    """One directory for each call at which a new run can crash."""
    for call in range(1, 1000):
        run = path / str(call)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(call, patch)
            try:
                pretend_training(run)
            except Crash:
                patch.undo()
                gc.collect()  # files that the crash left open
                yield run
                continue
        return


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.slow
def test_a_crash_at_any_write_changes_nothing(tmp_path):
    pretend_training(tmp_path / "whole")
    expected = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    points = 0
    for run in crash_points(tmp_path):
        if not (run / "config.json").exists():
            continue
        points += 1
        pretend_training(run)
        assert (run / "metrics.jsonl").read_bytes() == expected
        assert checkpoints.iterations(Folder(run, "checkpoints")) == [4, 5]
        found, damaged = checkpoints.newest(Folder(run, "checkpoints"))
        assert damaged == []
        whole = RunDirectory(tmp_path / "whole").newest_checkpoint("none")
        assert (found.iteration, found.metrics) == (5, whole.metrics)
        assert found.arrays["total"].tobytes() == whole.arrays["total"].tobytes()
        assert not list(run.rglob("*.tmp"))
    assert points > 20


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_crash_before_the_config_was_written_leaves_room_for_a_new_run(tmp_path):
    begun = 0
    for run in crash_points(tmp_path):
        if (run / "config.json").exists():
            break
        begun += run.exists()
        pretend_training(run)
    assert begun > 0
