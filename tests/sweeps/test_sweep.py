"""Sweeps on this machine: killed, stopped, changed, failed; always the same results."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cupola
from cupola import training
from cupola.cli import main
from cupola.runs.files import Folder
from cupola.signals import StopRequest
from cupola.sweeps import grid
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.local_engine import LocalPool
from cupola.sweeps.loop import RETRIES, WorkerExit, failure_line, work
from cupola.sweeps.worker import attempt

# The shapes of tests/conftest.py: they are compiled once.
SHARED = """
evaluation_episodes = 2
[shared]
batch_size = 200
num_envs = 4
minibatch_size = 50
epochs = 2
hidden = [8, 8]
multiplier_lr = 0.1
checkpoint_every = 2
"""
GRID = """
iterations = 24
algorithms = ["cup"]
tasks = ["ProbeRegulator"]
seeds = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(GRID + SHARED)
    return path


def begin(file: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cupola", "sweep", str(file), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def workers(out: Path) -> list[int]:
    """Processes at work in a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"cupola.sweeps.worker" in words and str(out).encode() in words:
                found.append(int(entry.parent.name))
    return found


def until(happened: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


def lines(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("*/metrics.jsonl"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_kills_change_nothing(file: Path, tmp_path: Path) -> None:
    """A killed worker, a killed parent, a stopped sweep; then equal to undisturbed trainings."""
    out = tmp_path / "sweep"
    cells = grid.read(file).cells
    # First, so that the workers find everything compiled.
    alone = {
        cell.name: cupola.train(cell.algo, cell.task, out=tmp_path / cell.name, **cell.arguments())
        for cell in cells
    }
    parent = begin(file, out, "--jobs", "2")
    until(lambda: lines(out) > 2)
    os.kill(workers(out)[0], signal.SIGKILL)
    until(lambda: lines(out) > 10)
    parent.kill()
    parent.communicate()
    until(lambda: not workers(out), seconds=5)  # nobody is left who writes
    parent = begin(file, out, "--jobs", "1")
    before = lines(out)
    until(lambda: lines(out) > before + 2 or parent.poll() is not None)
    parent.terminate()
    text, _ = parent.communicate()
    assert parent.returncode == 130
    assert "stopped; go on with the same command" in text
    assert not workers(out)
    parent = begin(file, out)
    text, errors = parent.communicate()
    assert parent.returncode == 0, errors
    assert "2 of 2 cells finished" in text
    for name, run in alone.items():
        for part in ("config.json", "metrics.jsonl", "checkpoints/00000024.safetensors"):
            assert (out / name / part).read_bytes() == (run.path / part).read_bytes()
        assert [f.name for f in (out / name / "checkpoints").iterdir()] == ["00000024.safetensors"]
        result = SweepDirectory.open(out).result(name)
        assert result is not None
        for kind in ("sampled", "deterministic"):
            fresh = cupola.evaluate(
                cupola.load(run.path), episodes=2, deterministic=kind == "deterministic"
            )
            assert result[kind]["return"]["mean"] == fresh.returns.mean
            for cost, known in fresh.costs.items():
                assert result[kind]["costs"][cost]["mean"] == known.value.mean


class Inline:
    """A pool without processes: a cell is done when it has started."""

    def __init__(self, sweep: SweepDirectory, args: object) -> None:
        self._sweep = sweep
        self._ended: list[WorkerExit] = []

    def has_room(self, cell: Cell) -> bool:
        return not self._ended

    def start(self, cell: Cell) -> None:
        self._ended.append(WorkerExit(cell.name, attempt(self._sweep, cell.name)))

    def exits(self) -> list[WorkerExit]:
        found, self._ended = self._ended, []
        return found

    def running(self) -> set[str]:
        return {ended.name for ended in self._ended}

    def stop(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def inline(monkeypatch) -> None:
    monkeypatch.setattr("cupola.commands.sweep.make_pool", Inline)
    monkeypatch.setattr("cupola.sweeps.loop.POLL_SECONDS", 0.0)


@pytest.mark.usefixtures("inline")
def test_a_failed_cell_leaves_the_others_alone(
    file: Path, tmp_path: Path, capfd, monkeypatch
) -> None:
    """NaN, a missing task, no memory, a directory of something else; and one that works."""
    text = GRID.replace("seeds = 2", "seeds = 4").replace("= 24", "= 2")
    text = text.replace('["ProbeRegulator"]', '["ProbeRegulator", "PointGoal9"]')
    text = text.replace('"cup"', '"ppo"') + SHARED.replace("multiplier_lr = 0.1\n", "")
    text += '[[override]]\nwhere = { task = "ProbeRegulator", seed = 1 }\n'
    file.write_text(text + "set = { learning_rate = 1e38 }\n")
    out = tmp_path / "sweep"
    SweepDirectory(out, grid.read(file)).write()
    (out / "ppo-ProbeRegulator-2").mkdir()
    (out / "ppo-ProbeRegulator-2" / "thesis.tex").write_text("")
    real = training.train

    def train(*args: str, seed: int, **more: object) -> object:
        if seed == 3 and args[1] == "ProbeRegulator":
            raise MemoryError
        return real(*args, seed=seed, **more)

    monkeypatch.setattr("cupola.training.train", train)
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(file), "--out", str(out)])
    assert stop.value.code == 1
    said = capfd.readouterr()
    assert "1 of 8 cells finished, 7 failed" in said.out
    last = said.err.splitlines()[-1]
    assert re.fullmatch(r"cupola: 7 of 8 cells failed; ppo-ProbeRegulator-1: .*", last)
    sweep = SweepDirectory.open(out)
    statuses = {name: sweep.status(name) for name in sweep.cells}
    assert statuses["ppo-ProbeRegulator-0"].state == "finished"
    assert "unknown task 'PointGoal9'" in statuses["ppo-PointGoal9-0"].reason
    assert "is not finite" in statuses["ppo-ProbeRegulator-1"].reason
    assert statuses["ppo-ProbeRegulator-1"].state == "failed"
    assert "is not empty" in statuses["ppo-ProbeRegulator-2"].reason
    assert statuses["ppo-ProbeRegulator-3"].reason == "out of memory"


@pytest.mark.usefixtures("inline")
def test_changed_cells_are_found(file: Path, tmp_path: Path, capfd) -> None:
    out = tmp_path / "sweep"
    file.write_text((GRID + SHARED).replace("= 24", "= 2").replace("seeds = 2", "seeds = 1"))
    main(["sweep", str(file), "--out", str(out)])
    run = out / "cup-ProbeRegulator-0"
    first, stamp = (run / "metrics.jsonl").read_bytes(), (run / "result.json").stat().st_mtime_ns
    main(["sweep", str(file), "--out", str(out)])  # finished: nothing is done again
    assert (run / "result.json").stat().st_mtime_ns == stamp
    file.write_text(file.read_text() + "lam = 0.5\nkeep_checkpoints = 2\n")
    capfd.readouterr()
    with pytest.raises(SystemExit):
        main(["sweep", str(file), "--out", str(out)])
    refused = capfd.readouterr().err
    assert "cup-ProbeRegulator-0 was trained with other settings (lam 0.95 -> 0.5)" in refused
    assert "--retrain-changed" in refused
    assert (run / "metrics.jsonl").read_bytes() == first
    main(["sweep", str(file), "--out", str(out), "--retrain-changed"])
    assert json.loads((run / "config.json").read_text())["algorithm"]["lam"] == 0.5
    assert (run / "metrics.jsonl").read_bytes() != first


@pytest.mark.usefixtures("inline")
def test_a_report_is_proposed_only_where_there_is_something_to_report(
    file: Path, tmp_path: Path, capfd
) -> None:
    file.write_text(GRID.replace('["ProbeRegulator"]', '["PointGoal9"]') + SHARED)
    with pytest.raises(SystemExit):
        main(["sweep", str(file), "--out", str(tmp_path / "sweep")])
    said = capfd.readouterr()
    assert "2 of 2 cells failed" in said.err
    assert "next:" not in said.out


def test_directories_of_something_else(file: Path, tmp_path: Path, capfd) -> None:
    def complaint(*args: str | Path) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stop:
            main([str(arg) for arg in args])
        assert stop.value.code == 1
        said = capfd.readouterr()
        assert said.out == ""
        assert re.fullmatch(r"cupola: .*\n", said.err)
        assert sorted(tmp_path.rglob("*")) == before
        return said.err

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    assert "holds no sweep" in complaint("sweep", file, "--out", other)
    assert "is a file" in complaint("sweep", file, "--out", file)
    assert "neither a sweep nor runs" in complaint("report", other)
    assert "there is no directory" in complaint("report", tmp_path / "none")
    assert "report.html" in complaint("report", other, "--out", "report.pdf")
    assert "does not hold a run" in complaint("compare", other)
    assert "--engine ray" in complaint("sweep", file, "--address", "auto")
    assert "jobs must be" in complaint("sweep", file, "--out", tmp_path / "new", "--jobs", "-1")
    mine = SweepDirectory(tmp_path / "mine", grid.read(file))
    mine.write()
    assert "nothing to report yet" in complaint("report", tmp_path / "mine")
    file.write_text('name = "yours"\n' + file.read_text())
    assert "holds the sweep 'toy'" in complaint("sweep", file, "--out", tmp_path / "mine")
    (tmp_path / "mine" / "sweep.json").write_text("{}")
    assert "sweep.json is damaged" in complaint("report", tmp_path / "mine")


def test_two_sweeps_do_not_fight(file: Path, tmp_path: Path) -> None:
    sweep = SweepDirectory(tmp_path / "sweep", grid.read(file))
    taken = rf"the sweep {sweep.path} is in use: process {os.getpid()} on .* since .* UTC\.$"
    with sweep.lock(), pytest.raises(cupola.CupolaError, match=taken), sweep.lock():
        pass
    with sweep.lock():
        pass


class Scripted:
    """A pool whose workers end as a script says; each entry is an exit code."""

    def __init__(self, sweep: SweepDirectory, codes: dict[str, list[int]]) -> None:
        self._sweep, self._codes = sweep, codes
        self._running: set[str] = set()
        self.started: list[str] = []
        self.most = 0

    def has_room(self, cell: Cell) -> bool:
        return len(self._running) < 2

    def start(self, cell: Cell) -> None:
        self.started.append(cell.name)
        self._running.add(cell.name)
        self.most = max(self.most, len(self._running))

    def exits(self) -> list[WorkerExit]:
        found = [WorkerExit(name, self._codes[name].pop(0)) for name in sorted(self._running)]
        for ended in found:
            if ended.code == 0:
                run = self._sweep.run_path(ended.name)
                run.mkdir()
                evaluation = {"return": {"mean": 1.0}, "costs": {}}
                result = {"sampled": evaluation, "deterministic": evaluation}
                self._sweep.write_result(ended.name, {"episodes": 2, **result})
        self._running.clear()
        return found

    def running(self) -> set[str]:
        return self._running

    def stop(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def scripted(file: Path, tmp_path: Path, monkeypatch) -> SweepDirectory:
    monkeypatch.setattr("cupola.sweeps.loop.POLL_SECONDS", 0.0)
    file.write_text(file.read_text().replace("seeds = 2", "seeds = 3"))
    sweep = SweepDirectory(tmp_path / "sweep", grid.read(file))
    sweep.write()
    return sweep


def test_who_is_started_again(scripted: SweepDirectory) -> None:
    """Killed workers are, a few times; crashed ones are not."""
    a, b, c = scripted.cells
    scripted.log_path(b).write_text(
        "compiling\nterminate called: std::bad_alloc\n  @ 0x7f error\n\n"
    )
    pool = Scripted(scripted, {a: [-9, 130, 0], b: [-6], c: [-9] * (RETRIES + 1)})
    statuses = work(scripted, pool, lambda _: None, StopRequest())
    assert (pool.started.count(a), pool.started.count(b)) == (3, 1)
    assert pool.started.count(c) == 1 + RETRIES
    assert pool.most == 2
    assert statuses[a].state == "finished"
    assert statuses[b].state == statuses[c].state == "failed"
    assert "SIGABRT (out of memory?): terminate called: std::bad_alloc" in statuses[b].reason
    assert "out of memory?" in statuses[c].reason
    assert scripted.status(c) == statuses[c]
    again = Scripted(scripted, {b: [0], c: [0]})
    statuses = work(scripted, again, lambda _: None, StopRequest())
    assert sorted(again.started) == sorted([b, c])
    assert {status.state for status in statuses.values()} == {"finished"}


def test_the_line_of_a_log_that_tells_of_the_failure(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\n two \n\n")
    assert failure_line(Folder(tmp_path), "log") == "two"
    assert failure_line(Folder(tmp_path), "none") == "nothing was printed"


def test_jobs_get_cores_of_their_own(scripted: SweepDirectory, monkeypatch) -> None:
    """Two jobs on two cores do not share one; more jobs than cores are spread evenly."""
    chosen: list[list[int]] = []

    class Process:
        stdin = None

        def poll(self) -> None: ...

    def start(sweep: Path, name: str, cores: list[int], trust: bool) -> Process:
        chosen.append(list(cores))
        return Process()

    monkeypatch.setattr("cupola.sweeps.local_engine.worker.start", start)
    monkeypatch.setattr("cupola.sweeps.local_engine.core_ids", lambda: [4, 7])
    cells = list(scripted.cells.values())
    pool = LocalPool(scripted)
    for cell in cells[:2]:
        assert pool.has_room(cell)
        pool.start(cell)
    assert not pool.has_room(cells[2])
    assert chosen == [[4], [7]]
    crowd = LocalPool(scripted, jobs=3)
    chosen.clear()
    for cell in cells:
        assert crowd.has_room(cell)
        crowd.start(cell)
    assert not crowd.has_room(cells[0])
    assert chosen == [[4], [7], [4]]


PENDULUM = """
iterations = 2
algorithms = ["cup"]
tasks = ["gym:Pendulum-v1"]
seeds = 1
evaluation_episodes = 2
[shared]
cost = "pendulum_costs:fast"
limit = 5
batch_size = 200
num_envs = 4
minibatch_size = 50
epochs = 2
hidden = [8, 8]
max_episode_steps = 50
"""


def test_an_environment_of_ones_own_with_a_cost_function_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same run as `train` makes in this process, without worker processes."""
    monkeypatch.chdir(tmp_path)
    Path("pendulum_costs.py").write_text(
        "def fast(next_obs):\n    return float(abs(next_obs[2]) > 1)\n"
    )
    Path("pendulum.toml").write_text(PENDULUM + "workers = 2\n")
    with pytest.raises(SystemExit):
        main(["sweep", "pendulum.toml"])
    assert "would import 'pendulum_costs' and call 'fast': add --trust" in capsys.readouterr().err
    assert not Path("runs").exists()
    main(["sweep", "pendulum.toml", "--trust"])
    (cell,) = grid.read(Path("pendulum.toml")).cells
    arguments = cell.arguments() | {"workers": 0}
    alone = training.train(cell.algo, cell.task, out="alone", **arguments)
    swept, own = (
        path / "metrics.jsonl" for path in (Path("runs/pendulum") / cell.name, alone.path)
    )
    assert swept.read_bytes() == own.read_bytes()
    assert alone.metrics[-1]["cost/cost"] > 0
