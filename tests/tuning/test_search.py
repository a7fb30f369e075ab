"""The search on runs that are a formula: its optimum is known, and nothing is trained."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupola.config import Ending
from cupola.errors import CupolaError
from cupola.reports.merge import load
from cupola.runs.directory import RunDirectory
from cupola.signals import StopRequest
from cupola.sweeps import grid
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.loop import WorkerExit
from cupola.sweeps.pruning import pruner
from cupola.training import STOP
from cupola.tuning import record, study
from cupola.tuning.directory import StudyDirectory
from cupola.tuning.search import search
from cupola.tuning.tables import best_trials, study_tables
from cupola.tuning.trials import best, ranked

FILE = """
algorithm = "ppo_lag"
task = "ProbeQuadratic"
seeds = 2
iterations = 20
trials = 25

[space]
learning_rate = { low = 1e-5, high = 1e-1, log = true }
log_std = { low = -3.0, high = 1.0 }
epochs = { low = 1, high = 20 }
"""
OPTIMUM = 10.0
"""Of the formula: at learning_rate 10^-2.5 and log_std -1; epochs do nothing."""


def formula(fields: dict[str, Any]) -> tuple[float, float]:
    """Return and cost. The limit of 0.5 is active at the best, beyond it returns reach 11.5."""
    u, v = math.log10(fields["learning_rate"]), fields["log_std"]
    return 12.5 + u - (v + 1) ** 2, u + 3


class Formula:
    """A pool whose cells are done when they have started; ``fail`` says which do not work."""

    def __init__(
        self, sweep: SweepDirectory, fail: Callable[[Cell], str] = lambda cell: ""
    ) -> None:
        self._sweep, self._fail = sweep, fail
        self._ended: list[WorkerExit] = []
        self.started: list[str] = []

    def has_room(self, cell: Cell) -> bool:
        return not self._ended

    def start(self, cell: Cell) -> None:
        self.started.append(cell.name)
        reason = self._fail(cell)
        if reason:
            self._sweep.record_failure(cell.name, reason)
        else:
            write_run(self._sweep, cell)
        self._ended.append(WorkerExit(cell.name, 1 if reason else 0))

    def exits(self) -> list[WorkerExit]:
        found, self._ended = self._ended, []
        return found

    def running(self) -> set[str]:
        return {ended.name for ended in self._ended}

    def stop(self) -> None: ...

    def close(self) -> None: ...


def write_run(sweep: SweepDirectory, cell: Cell) -> None:
    config = cell.resolve()
    assert config is not None
    final, cost = formula(cell.fields)
    rng = np.random.default_rng(cell.seed)
    listener = pruner(sweep.run_path(cell.name), cell.bars, cell.iterations)
    with RunDirectory.create(sweep.run_path(cell.name), config.to_json()) as run:
        run.rewind(0, keep=1)
        for i in range(1, cell.iterations + 1):
            share = i / cell.iterations
            metrics = {"iteration": i, "steps": 100 * i, "episodes": 100, "length": 1.0}
            metrics |= {"return": final * share + 0.01 * rng.normal(), "cost/cost": cost}
            metrics |= {"limit/cost": 0.5, "nu/cost": 0.0}
            times = {"iteration": i, "rollout_seconds": 0.1, "update_seconds": 0.1}
            run.log(metrics, times | {"steps_per_second": 1.0})
            if listener and listener(metrics, times) is STOP:
                ended = Ending(i, "a listener returned STOP")
                run.rewrite_config(dataclasses.replace(config, ended=ended).to_json())
                break
    evaluation = {"return": {"mean": final}, "costs": {"cost": {"mean": cost}}}
    result = {"episodes": 20, "sampled": evaluation, "deterministic": evaluation}
    sweep.write_result(cell.name, result)


class Stopping(StopRequest):
    """Set after so many looks."""

    def __init__(self, looks: float = math.inf) -> None:
        super().__init__()
        self._looks = looks

    def is_set(self) -> bool:
        self._looks -= 1
        return self._looks < 0


Run = Callable[..., StudyDirectory]


@pytest.fixture(autouse=True, scope="module")
def no_waiting() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cupola.sweeps.loop.POLL_SECONDS", 0.0)
        yield


def searched(
    text: str,
    path: Path,
    looks: float = math.inf,
    fail: Callable[[Cell], str] = lambda cell: "",
) -> StudyDirectory:
    """Search in a directory: what the study knows afterwards."""
    file = path.parent / "toy.toml"
    file.write_text(text)
    directory = StudyDirectory(path, study.read(file))
    directory.open()
    search(directory, Formula(directory.sweep(), fail), lambda statuses: None, Stopping(looks))
    return directory


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda text=FILE, name="study", **more: searched(text, tmp_path / name, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StudyDirectory:
    """A study that has ended; no test changes it."""
    text = FILE.replace("[space]", "[shared]\nhidden = [4]\nthreads = 2\n\n[space]")
    return searched(text, tmp_path_factory.mktemp("whole") / "study")


def known(directory: StudyDirectory) -> bytes:
    return (directory.path / "tuning.json").read_bytes()


def test_the_optimum_is_found(whole: StudyDirectory) -> None:
    """25 trials, limits held, within 5 % of the best return that any feasible setting has."""
    assert len(whole.trials) == 25
    found = best(whole.trials)
    assert found is not None
    assert found.outcome is not None
    assert found.outcome.costs["cost"] <= 0.5
    assert OPTIMUM >= formula(found.values)[0] > 0.95 * OPTIMUM
    # Others return more, but above the limit.
    assert max(formula(trial.values)[0] for trial in whole.trials) > OPTIMUM
    # The score is the mean over seeds of the last tenth, which the formula's noise hardly moves.
    assert found.outcome.mean_return == pytest.approx(0.975 * formula(found.values)[0], abs=0.02)


def test_the_first_trial_is_what_the_file_says_without_the_space(run: Run) -> None:
    text = FILE.replace("[space]", "[shared]\nlearning_rate = 0.002\nepochs = 7\n\n[space]")
    values = run(text.replace("trials = 25", "trials = 1")).trials[0].values
    assert values == {"learning_rate": 0.002, "log_std": -0.5, "epochs": 7}


@pytest.mark.parametrize("at_once", [1, 4])
def test_interruptions_change_nothing(run: Run, at_once: int) -> None:
    """Stopped after every few looks, and continued: the same bytes as in one go."""
    text = FILE.replace("trials = 25", f"trials = 14\nat_once = {at_once}")
    whole = run(text, "whole")
    for looks in range(3, 60, 7):
        parts = run(text, "parts", looks=looks)
        if len(parts.trials) == 14 and all(trial.outcome for trial in parts.trials):
            break
    parts = run(text, "parts")
    assert known(parts) == known(whole)
    assert all(trial.outcome for trial in parts.trials)


def test_a_kill_between_a_trial_and_its_cells(run: Run) -> None:
    """Workers find the cells of a trial that only tuning.json knew."""
    text = FILE.replace("= 25", "= 2")
    path = run(text, looks=3).path
    assert any(trial.outcome is None for trial in record.read(path).trials)
    (path / "sweep.json").unlink()

    def check(cell: Cell) -> str:
        assert cell.name in SweepDirectory.open(path).cells
        return ""

    assert all(trial.outcome for trial in run(text, fail=check).trials)


def test_more_trials_go_on_where_the_study_ended(run: Run) -> None:
    fewer, more = FILE.replace("= 25", "= 12"), FILE.replace("= 25", "= 14")
    run(fewer, "twice")
    assert known(run(more, "twice")) == known(run(more, "once"))


def test_bad_trials_are_pruned(whole: StudyDirectory) -> None:
    """A run ends at a mark, where it is worse than three quarters of five trials and more."""
    directory = whole
    states = [trial.outcome.state for trial in directory.trials if trial.outcome]
    assert states[:5] == ["finished"] * 5
    assert states.count("pruned") > 2
    sweep = directory.sweep()
    for trial in directory.trials:
        assert trial.outcome
        for cell in directory.cells(trial):
            lines = RunDirectory.open(sweep.run_path(cell.name)).metrics()
            ends = {bar.iteration for bar in trial.bars} | {20}
            assert len(lines) in ends
            assert (len(lines) < 20) == (trial.outcome.state == "pruned")


def test_nothing_is_pruned_without_pruning(run: Run) -> None:
    text = FILE.replace("[space]", "pruning = false\n\n[space]").replace("= 25", "= 9")
    assert all(trial.outcome.state == "finished" for trial in run(text).trials if trial.outcome)


def test_failed_trials_are_tried_again(run: Run) -> None:
    def fail(cell: Cell) -> str:
        return "no memory" if cell.point["trial"] in (2, 5) and cell.seed == 1 else ""

    text = FILE.replace("= 25", "= 8")
    directory = run(text, fail=fail)
    failed = [trial for trial in directory.trials if trial.outcome and trial.outcome.reason]
    assert [trial.number for trial in failed] == [2, 5]
    assert [trial.number for trial in ranked(directory.trials)][-2:] == [2, 5]
    again = run(text)
    assert all(trial.outcome.state != "failed" for trial in again.trials if trial.outcome)
    assert [t.values for t in again.trials] == [t.values for t in directory.trials]


def test_the_search_gives_up_where_everything_fails(run: Run) -> None:
    with pytest.raises(CupolaError, match="the last 3 trials failed; trial 2: no memory"):
        run(fail=lambda cell: "no memory")


def test_the_best_file_trains_the_best_settings_with_new_seeds(whole: StudyDirectory) -> None:
    file = whole.path / "best.toml"
    experiment, found = grid.read(file), best(whole.trials)
    assert found is not None
    assert experiment.name == "toy-best"
    assert [cell.seed for cell in experiment.cells] == [2, 3]
    for cell, trained in zip(experiment.cells, whole.cells(found), strict=True):
        mine, its = cell.resolve(), trained.resolve()
        assert mine is not None
        assert its is not None
        assert mine.algorithm == its.algorithm
        assert dataclasses.replace(mine.options, seed=0) == dataclasses.replace(its.options, seed=0)
    assert tomllib.loads(file.read_text())["algorithms"][0]["name"] == "ppo_lag-tuned"


def test_nothing_feasible_writes_no_best_file(run: Run) -> None:
    text = FILE.replace("low = 1e-5", "low = 1e-2").replace("= 25", "= 4")
    directory = run(text)
    assert best(directory.trials) is None
    assert not (directory.path / "best.toml").exists()
    violations = [trial.outcome.excesses["cost"] for trial in ranked(directory.trials)]
    assert violations == sorted(violations)


def test_a_report_of_a_study(whole: StudyDirectory) -> None:
    """The tables hold what the study found; the curves are of the best trials."""
    directory = whole
    found = record.read(directory.path)
    assert found is not None
    assert found.trials == tuple(directory.trials)
    settings, trials = study_tables(found)
    winner = best(directory.trials)
    assert winner is not None
    assert {row[0].value: row[1].value for row in settings.rows} == winner.values
    assert sum(found.importances.values()) == pytest.approx(1)
    assert trials.rows[0][0].value == winner.number
    assert len(trials.rows) == 25
    results = best_trials(load(directory.path).results, found)
    assert len(results.runs) == 20
    assert results.runs[0].point == {"trial": winner.number}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("high = 20 }", "high = 30 }"), "begun with another space"),
        (("seeds = 2", "seeds = 3"), "begun with another seeds"),
        (('"ProbeQuadratic"', '"ProbeRegulator"'), "begun with another task"),
        (("seeds = 2", 'name = "other"\nseeds = 2'), "begun as 'toy'"),
    ],
)
def test_a_directory_of_another_study_is_refused(
    run: Run, change: tuple[str, str], says: str
) -> None:
    text = FILE.replace("= 25", "= 1")
    run(text)
    with pytest.raises(CupolaError, match=says):
        run(text.replace(*change))


def test_what_does_not_change_results_may_change(run: Run) -> None:
    text = FILE.replace("= 25", "= 1")
    run(text)
    run(text.replace("[space]", "[shared]\ncheckpoint_every = 3\n[space]"))


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Somebody edits tuning.json, and computes its check value anew."""
    found = json.loads(path.read_text())
    del found["check"]
    change(found)
    path.write_text(json.dumps(found | {"check": record.digest(found)}))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["trials"][0]["values"].update(learning_rate=5.0),
        lambda found: found["trials"][0]["values"].update(start_from="/etc"),
        lambda found: found["trials"][0]["values"].pop("epochs"),
        lambda found: found["trials"][0]["outcome"].update(state="won"),
        lambda found: found["trials"][0]["outcome"].update(costs={"other": 1.0}),
        lambda found: found["trials"][0]["outcome"].update(mean_return=None),
        lambda found: found["trials"][0].update(bars=[{"iteration": 1}]),
        lambda found: found.update(importances={"epochs": "all"}),
        lambda found: found["asked"].update(space=[]),
    ],
)
def test_a_damaged_study_is_one_sentence(run: Run, change: Any) -> None:
    text = FILE.replace("= 25", "= 1")
    path = run(text).path / "tuning.json"
    changed(path, change)
    with pytest.raises(CupolaError, match=r"tuning.json is damaged"):
        run(text)


def test_a_study_that_was_cut_off_or_changed_is_one_sentence(run: Run) -> None:
    text = FILE.replace("= 25", "= 1")
    path = run(text).path / "tuning.json"
    data = path.read_text()
    for other in (data[:-20], data.replace('"state": "finished"', '"state": "pruned"'), "\x80", ""):
        path.write_text(other)
        with pytest.raises(CupolaError, match=r"tuning.json is damaged"):
            run(text)


def test_links_in_a_study_are_not_followed(run: Run, tmp_path: Path) -> None:
    text = FILE.replace("= 25", "= 1")
    path = run(text).path / "tuning.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(CupolaError, match="is a link, which cupola does not follow"):
        run(text)
