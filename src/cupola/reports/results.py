"""The results of runs: the cells of a sweep, or any runs below a directory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cupola import steadiness
from cupola.errors import CupolaError
from cupola.reports import statistics
from cupola.runs.directory import RunDirectory, column, reaching
from cupola.steadiness import Steadiness
from cupola.sweeps.cells import text_of
from cupola.sweeps.directory import NOT_COMPARED, SweepDirectory, read_json

Curves = dict[str, np.ndarray]


@dataclass(frozen=True)
class RunResult:
    """One run, finished or not."""

    name: str
    label: str
    task: str
    seed: int
    point: dict[str, Any]
    """The fields that vary beside algorithm, task and seed."""
    state: str
    reason: str
    limits: dict[str, float] = field(default_factory=dict)
    """By the name of the cost. All tables, and all dashed lines in charts, take them from here."""
    config: dict[str, Any] = field(default_factory=dict)
    """The settings; empty for a run that comes from a file of curves."""
    curves: Curves = field(default_factory=dict)
    """Arrays [T] by the keys of metrics.jsonl; NaN where a value is not known."""
    seconds: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    """[T, 2]: of the rollout and of the update."""
    result: dict[str, Any] = field(default_factory=dict)
    """Evaluations and versions of a finished cell."""

    @property
    def series(self) -> str:
        """What is compared: the algorithm, and the fields that vary."""
        return " ".join((self.label, *(f"{k}={text_of(v)}" for k, v in self.point.items())))

    @property
    def costs(self) -> list[str]:
        return list(self.limits)

    @property
    def iterations(self) -> int:
        """How many iterations there are so far."""
        return len(self.curves.get("steps", ()))

    @property
    def finished(self) -> bool:
        return self.state == "finished" and self.iterations > 0

    def final(self, key: str) -> float:
        return steadiness.final(self.curves[key]) if key in self.curves else math.nan

    @cached_property
    def feasible(self) -> bool:
        """Whether all final costs are within their limits."""
        return all(self.final(f"cost/{name}") <= limit for name, limit in self.limits.items())

    def steadiness(self, cost: str) -> Steadiness:
        """How the limit of a cost is held; runs of earlier versions have no sampling errors."""
        unknown = np.full(self.iterations, math.nan)
        costs, errors = (
            self.curves.get(f"{kind}/{cost}", unknown) for kind in ("cost", "cost_error")
        )
        return steadiness.measure(costs, errors, self.limits[cost])

    def violation(self, cost: str) -> float:
        return self.steadiness(cost).violation

    def regret(self, cost: str) -> float:
        return statistics.regret(self.curves[f"cost/{cost}"], self.limits[cost])

    @cached_property
    def first_feasible(self) -> float:
        if not self.costs or not self.iterations:
            return math.nan
        costs = np.array([self.curves[f"cost/{name}"] for name in self.costs])
        return statistics.first_feasible(
            self.curves["steps"], costs, np.array(list(self.limits.values()))
        )

    @property
    def steps_per_second(self) -> float:
        """The median over iterations; the first one compiles."""
        if not len(self.seconds):
            return math.nan
        return self.config["algorithm"]["batch_size"] / float(np.median(self.seconds.sum(axis=1)))

    def evaluated(self, kind: str, cost: str | None = None) -> float:
        """Mean return or cost of the evaluation with `sampled` or `deterministic` actions."""
        found = self.result.get(kind, {})
        part = found.get("return") if cost is None else found.get("costs", {}).get(cost)
        return part["mean"] if part else math.nan


@dataclass(frozen=True)
class Results:
    """All runs of a directory, in the order of the experiment."""

    title: str
    runs: list[RunResult]

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for run in self.runs))

    @cached_property
    def series(self) -> list[str]:
        return list(dict.fromkeys(run.series for run in self.runs))

    @cached_property
    def varied(self) -> list[str]:
        """Fields that vary beside algorithm, task and seed."""
        return list(dict.fromkeys(key for run in self.runs for key in run.point))

    def group(self, task: str, series: str) -> list[RunResult]:
        """The runs, one per seed, of a series on a task."""
        return [run for run in self.runs if (run.task, run.series) == (task, series)]

    def groups(self) -> Iterable[tuple[str, str, list[RunResult], list[RunResult]]]:
        """Task, series, all their runs and the finished ones, for every pair that occurs."""
        for task in self.tasks:
            for series in self.series:
                runs = self.group(task, series)
                if runs:
                    yield task, series, runs, [run for run in runs if run.finished]

    def costs_of(self, task: str) -> list[str]:
        names = (name for run in self.runs if run.task == task for name in run.costs)
        return list(dict.fromkeys(names))


def load(path: Path) -> Results:
    """The results of a sweep's directory, or of all runs below a directory."""
    with reaching(path):
        if not path.is_dir():
            raise CupolaError(f"there is no directory or file {path}.")
        if (path / "sweep.json").is_file():
            return load_sweep(SweepDirectory.open(path))
        found = sorted(file.parent for file in path.rglob("config.json") if is_run(file))
    if not found:
        raise CupolaError(f"{path} holds neither a sweep nor runs.")
    return Results(path.resolve().name, load_runs(found))


def is_run(config: Path) -> bool:
    record = read_json(config)
    return record is not None and {"algo", "task", "limits", "algorithm"} <= set(record)


def load_sweep(sweep: SweepDirectory) -> Results:
    runs = []
    for name, cell in sweep.cells.items():
        status, path = sweep.status(name), sweep.run_path(name)
        known: dict[str, Any] = {}
        if (path / "config.json").is_file():
            known = read_run(path)
        runs.append(
            RunResult(
                name, cell.label, cell.task, cell.seed, cell.point, status.state, status.reason,
                **known, result=sweep.result(name) or {},
            )
        )  # fmt: skip
    return Results(sweep.experiment.name, runs)


def load_runs(paths: Iterable[Path]) -> list[RunResult]:
    """Single runs, told apart by the fields in which those of one algorithm and task differ."""
    paths = list(paths)
    known = [read_run(path) for path in paths]
    runs = []
    for path, part in zip(paths, known, strict=True):
        config = part["config"]
        peers = [o["config"] for o in known if same_problem(o["config"], config)]
        complete = len(part["curves"].get("steps", ())) == config.get("iterations")
        mine, theirs = settings(config), [settings(other) for other in peers]
        runs.append(
            RunResult(
                name=str(path),
                label=config["algo"],
                task=config["task"],
                seed=config.get("seed", 0),
                point={k: v for k, v in mine.items() if any(o.get(k) != v for o in theirs)},
                state="finished" if complete else "interrupted",
                reason="",
                **part,
                result=read_json(path / "result.json") or {},
            )
        )
    return runs


def same_problem(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["algo"], one["task"]) == (other["algo"], other["task"])


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """All settings of a run that can change its results, but for the seed."""
    limits = config["limits"]
    limit = next(iter(limits.values())) if len(limits) == 1 else limits
    own = {
        k: v for k, v in config.items() if k not in (*NOT_COMPARED, "seed", "algorithm", "limits")
    }
    return own | {"limit": limit} | config["algorithm"]


def read_run(path: Path) -> dict[str, Any]:
    """Config, limits, curves and timings of a run directory: fields of `RunResult`."""
    run = RunDirectory.open(path)
    metrics, timings = run.metrics(), run.timings()
    config = run.config()
    keys = list(metrics[-1]) if metrics else []
    curves = {key: column(metrics, key) for key in keys}
    seconds = [(t["rollout_seconds"], t["update_seconds"]) for t in timings]
    return {
        "config": config,
        "limits": config.get("limits", {}),
        "curves": curves,
        "seconds": np.array(seconds, float).reshape(len(seconds), 2),
    }
