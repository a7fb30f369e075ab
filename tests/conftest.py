"""Shared fixtures."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import cupola
from cupola.cli import main
from cupola.compilation import warm_up_cache
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.runs.result import write as write_result
from cupola.sweeps import grid
from cupola.sweeps.directory import SweepDirectory

# The same shapes and numbers as in tests/runs/test_resume.py: they are compiled once.
TINY = {
    "batch_size": 200,
    "num_envs": 4,
    "minibatch_size": 50,
    "epochs": 2,
    "hidden": (8, 8),
    "multiplier_lr": 0.1,
    "iterations": 6,
    "checkpoint_every": 2,
    "threads": 1,
}
TINY_ARGS = [
    *("--batch-size", "200", "--num-envs", "4", "--minibatch-size", "50", "--epochs", "2"),
    *("--hidden", "8", "8", "--iterations", "6", "--checkpoint-every", "2", "--threads", "1"),
    *("--multiplier-lr", "0.1"),
]

Command = Callable[..., tuple[int, str, str]]
Complaint = Callable[..., str]


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> None:
    """Tests may run in the background, where these are ignored, and children inherit that."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many tests and their child processes compile the same functions: once is enough."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        warm_up_cache()
        yield


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(scope="session")
def synthetic_sweep() -> Callable[..., None]:
    """Writes a sweep's directory with finished runs: `(path, experiment file's text)`."""
    return write_synthetic_sweep


def write_synthetic_sweep(path: Path, text: str, seed: int = 0) -> None:
    """Nothing is trained: the curves are a formula with noise."""
    file = path.with_suffix(".toml")
    file.write_text(text)
    sweep = SweepDirectory(path, grid.read(file))
    sweep.write()
    rng = np.random.default_rng(seed)
    for number, cell in enumerate(sweep.cells.values()):
        config = cell.resolve()
        assert config is not None
        run, count = RunDirectory.create(path / cell.name, config.to_json()), cell.iterations
        level = 100.0 * (1 + number % 7)
        returns = level * (1 - np.exp(-np.arange(count) / count * 4)) + rng.normal(0, 9, count)
        with run:
            run.rewind(0, keep=3)
            for i in range(count):
                record: dict[str, Any] = {
                    "iteration": i + 1,
                    "steps": (i + 1) * 5000,
                    "episodes": 5,
                }
                record |= {"length": 1000.0, "return": None if i == 0 else returns[i]}
                for name, limit in config.limits.items():
                    cost = limit * (0.4 + 0.2 * (number % 5)) + rng.normal(0, 1)
                    record |= {f"cost/{name}": None if i == 0 else cost, f"limit/{name}": limit}
                    record |= {f"cost_error/{name}": None if i < 2 else 0.5 + 0.1 * (i % 3)}
                    record |= {f"nu/{name}": 0.1 * rng.random(), "value_loss": rng.random()}
                update = 0.1 if i else 9.1  # the first one compiles
                times = {"iteration": i + 1, "rollout_seconds": 0.4, "update_seconds": update}
                run.log(record, times | {"steps_per_second": 10000.0})
        mean = {"mean": level, "low": level - 1, "high": level + 1}
        costs = {name: {**mean, "limit": limit} for name, limit in config.limits.items()}
        evaluation = {"return": mean, "costs": costs}
        result = {"episodes": 20, "versions": {"cupola": "0.1.0", "python": "3.11.7"}}
        result |= {"sampled": evaluation, "deterministic": evaluation}
        sweep.write_result(cell.name, result)


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """Fields of a training that takes a moment."""
    return dict(TINY)


@pytest.fixture(scope="session")
def tiny_args() -> list[str]:
    """The same on the command line."""
    return list(TINY_ARGS)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> Command:
    """Run `cupola ...` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*args: str | Path) -> tuple[int, str, str]:
        status: Any = 0
        capsys.readouterr()
        try:
            main([str(arg) for arg in args])
        except SystemExit as stop:
            status = stop.code
        return (status or 0, *capsys.readouterr())

    return run


@pytest.fixture
def complaint(command: Command, tmp_path: Path) -> Complaint:
    """The one line that a command which is refused prints; it leaves nothing behind."""

    def run(*args: str | Path) -> str:
        before = sorted(tmp_path.rglob("*"))
        status, out, err = command(*args)
        assert status not in (0, None)
        assert out == ""
        assert re.fullmatch(r"cupola: .*\n", err), err
        assert sorted(tmp_path.rglob("*")) == before, "something was left behind"
        return err.removeprefix("cupola: ").strip()

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> cupola.Run:
    """A small finished run."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return cupola.train("cup", "HopperSpeed", limits=5.0, out=out, **TINY)


@pytest.fixture(scope="session")
def probe_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a moment, with the result that a sweep adds; no test changes it."""
    path = tmp_path_factory.mktemp("probe") / "run"
    cupola.train(
        "ppo_lag",
        "ProbeQuadratic",
        out=path,
        iterations=6,
        checkpoint_every=2,
        batch_size=40,
        num_envs=4,
        minibatch_size=20,
        epochs=1,
        hidden=(4,),
        threads=1,
    )
    interval = {"mean": 1.0, "low": 0.5, "high": 1.5}
    evaluation = {"return": interval, "length": interval, "costs": {}}
    result = {"episodes": 20, "versions": {}, "sampled": evaluation, "deterministic": evaluation}
    write_result(Folder(path), result)
    return path


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium with an empty page, as tests/chromium.py drives it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium on this machine")
    spec = importlib.util.spec_from_file_location(
        "chromium", Path(__file__).with_name("chromium.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.Browser(program, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def copy(trained: cupola.Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained.path, tmp_path / "copy"))
