"""`cupola tune` as a user calls it, with real trainings."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cupola
from cupola.runs.directory import RunDirectory, column
from cupola.runs.files import Folder
from cupola.runs.lock import locked
from cupola.sweeps import grid
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.loop import WorkerExit
from cupola.sweeps.worker import attempt
from cupola.tasks.probes import QUADRATICS
from cupola.tuning import record
from cupola.tuning.trials import best

PROBE = Path(__file__).parents[2] / "experiments" / "tune-probe.toml"
# The shapes of tests/conftest.py: they are compiled once.
FILE = """
algorithm = "cup"
task = "ProbeRegulator"
seeds = 2
iterations = 12
trials = 2
evaluation_episodes = 2

[shared]
limit = 900
batch_size = 200
num_envs = 4
minibatch_size = 50
epochs = 2
hidden = [8, 8]
multiplier_lr = 0.1
checkpoint_every = 2

[space]
normalise_obs = [true, false]
"""


class Inline:
    """A pool without processes: a cell is done when it has started."""

    def __init__(self, sweep: SweepDirectory, jobs: int, *, trust: bool) -> None:
        self._path = sweep.path
        self._ended: list[WorkerExit] = []

    def has_room(self, cell: Cell) -> bool:
        return not self._ended

    def start(self, cell: Cell) -> None:
        sweep = SweepDirectory.open(self._path)
        self._ended.append(WorkerExit(cell.name, attempt(sweep, cell.name)))

    def exits(self) -> list[WorkerExit]:
        found, self._ended = self._ended, []
        return found

    def running(self) -> set[str]:
        return {ended.name for ended in self._ended}

    def stop(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cupola.sweeps.local_engine.LocalPool", Inline)
    monkeypatch.setattr("cupola.sweeps.loop.POLL_SECONDS", 0.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(FILE)
    return path


@pytest.mark.usefixtures("inline")
def test_trials_are_runs_like_any_other(file: Path, command, tmp_path, monkeypatch) -> None:
    """Their metrics are those of `cupola.train`; their score is computed from them by hand."""
    monkeypatch.setattr("cupola.reports.page.write_figures", lambda *_: [])
    status, said, errors = command("tune", file, "--out", "study")
    assert (status, errors) == (0, "")
    assert "2 of 2 trials, best: trial" in said
    assert f"sweep {Path('study') / 'best.toml'}" in said
    known = record.read(tmp_path / "study")
    assert known is not None
    cells = SweepDirectory.open(tmp_path / "study").cells.values()
    for trial in known.trials:
        assert trial.outcome is not None
        finals = []
        for cell in (cell for cell in cells if cell.point == {"trial": trial.number}):
            lines = RunDirectory.open(tmp_path / "study" / cell.name).metrics()
            finals.append([column(lines, key)[-1] for key in ("return", "cost/effort")])
            assert len(lines) == 12
        score, cost = np.mean(finals, axis=0)  # a tenth of 12 is the last one
        assert trial.outcome.mean_return == score
        assert trial.outcome.costs == {"effort": cost}
    winner = best(known.trials)
    assert winner is not None
    assert winner.outcome is not None
    assert winner.outcome.mean_return == max(t.outcome.mean_return for t in known.trials)
    (cell, _) = [cell for cell in cells if cell.point == {"trial": winner.number}]
    alone = cupola.train(cell.algo, cell.task, out=tmp_path / "alone", **cell.arguments())
    mine = tmp_path / "study" / cell.name
    for part in ("config.json", "metrics.jsonl"):
        assert (mine / part).read_bytes() == (alone.path / part).read_bytes()
    tuned = [one.fields for one in grid.read(tmp_path / "study" / "best.toml").cells]
    assert [one["normalise_obs"] for one in tuned] == [winner.values["normalise_obs"]] * 2
    assert command("report", "study")[0] == 0
    page = (tmp_path / "study" / "report.html").read_text()
    assert "<h2>Best feasible settings</h2>" in page
    assert page.index("<h2>Trials</h2>") < page.index("<h2>Return and cost</h2>")
    rows = (tmp_path / "study" / "report" / "tables" / "trials.csv").read_text().splitlines()
    assert rows[0] == "trial,state,return,effort (limit 900.0),normalise_obs,reason"
    assert len(rows) == 3
    # Again: there is nothing left to do. As a sweep it is not taken.
    before = (tmp_path / "study" / "tuning.json").read_bytes()
    assert command("tune", file, "--out", "study")[0] == 0
    assert (tmp_path / "study" / "tuning.json").read_bytes() == before
    status, _, errors = command("sweep", "study/best.toml", "--out", "study")
    assert status == 1
    assert "study holds a study of 'cupola tune'" in errors


def test_refusals_leave_nothing_behind(file: Path, complaint, tmp_path: Path, monkeypatch) -> None:
    assert "there is no file" in complaint("tune", "missing.toml")
    assert "unknown option '--job'" in complaint("tune", file, "--job", "2")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    assert "is not empty and holds no study" in complaint("tune", file, "--out", "other")
    assert "toy.toml is a file" in complaint("tune", file, "--out", "toy.toml")
    file.write_text(FILE.replace('"ProbeRegulator"', '"env:my_envs:make"'))
    assert "my_envs" in complaint("tune", file)
    file.write_text(FILE)
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = complaint("tune", file)
    assert said == "tuning needs the package optuna: pip install 'cupola[tune]'."


def test_two_searches_do_not_share_a_directory(file: Path, command, tmp_path: Path) -> None:
    out = tmp_path / "study"
    out.mkdir()
    with locked(Folder(out), "sweep.lock", "it", seconds=0.0):
        status, _, errors = command("tune", file, "--out", "study")
    assert status == 1
    assert "is in use: process" in errors
    assert [one.name for one in out.iterdir()] == ["sweep.lock"]


def until(happened: Callable[[], object], seconds: float = 3600) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_search_finds_the_optimum_of_a_probe(tmp_path: Path) -> None:
    """25 trials of PPO-L, killed in the middle of one: a feasible return within 5 % of the best."""
    out = tmp_path / "study"
    command = [sys.executable, "-m", "cupola", "tune", str(PROBE), "--out", str(out)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)

    def is_amid() -> bool:
        """Whether a later trial trains, beyond its first checkpoint: any of them may be pruned."""
        files = [f for n in range(10, 20) for f in out.glob(f"*-trial={n}-*/metrics.jsonl")]
        counts = {file.parent: file.read_bytes().count(b"\n") for file in files}
        return any(
            21 <= count < 50 and not (run / "result.json").exists() for run, count in counts.items()
        )

    until(lambda: is_amid() or first.poll() is not None)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    at_kill = shutil.copytree(out, tmp_path / "killed")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    known, before = record.read(out), record.read(at_kill)
    assert known is not None
    assert before is not None
    assert len(known.trials) == 25
    assert all(trial.outcome for trial in known.trials)
    # Nothing that was known is lost, and the interrupted runs went on from where they were.
    *ended, interrupted = before.trials
    assert len(ended) >= 10
    assert known.trials[: len(ended)] == tuple(ended)
    assert interrupted.outcome is None
    assert interrupted.values == known.trials[len(ended)].values
    for old in at_kill.glob(f"*-trial={len(ended)}-*/metrics.jsonl"):
        whole = old.read_bytes().splitlines()[:20]  # up to a checkpoint
        assert (out / old.parent.name / old.name).read_bytes().splitlines()[: len(whole)] == whole
    found, (_, optimum) = best(known.trials), QUADRATICS["ProbeQuadratic"].optimum()
    assert found is not None
    assert found.outcome is not None
    assert found.outcome.costs["cost"] <= 0.5
    assert found.outcome.mean_return >= 0.95 * optimum
    # The first trial, the default, is far from it.
    default = known.trials[0].outcome
    assert default is not None
    assert default.costs["cost"] > 0.5 or default.mean_return < 0.95 * optimum
