"""The results of runs: the cells of a sweep, or any runs below a directory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cupola import steadiness
from cupola.errors import CupolaError
from cupola.naming import text_of
from cupola.reports import statistics
from cupola.runs import result
from cupola.runs.directory import RunDirectory, column, reaching
from cupola.runs.files import Folder
from cupola.runs.search import is_run
from cupola.steadiness import Steadiness
from cupola.sweeps.cells import Cell, known_tasks
from cupola.sweeps.directory import NOT_COMPARED, SweepDirectory

Curves = dict[str, np.ndarray]

LARGEST = 1e100
"""Of the numbers that reports show."""
MAX_DEPTH = 50
"""Of directories in which runs are looked for."""


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
        if not len(self.seconds) or not self.iterations:
            return math.nan
        # Steps an iteration, as they were counted: a config can be edited.
        batch_size = self.curves["steps"][-1] / self.iterations
        return float(batch_size / np.median(self.seconds.sum(axis=1)))

    def evaluated(self, kind: str, cost: str | None = None) -> float:
        """Mean return or cost of the evaluation with `sampled` or `deterministic` actions."""
        found = self.result.get(kind, {})
        part = found.get("return") if cost is None else found.get("costs", {}).get(cost)
        return math.nan if part is None or part["mean"] is None else part["mean"]


class LeftOut(NamedTuple):
    """A run that is not among the results, and why not."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} is left out: {self.reason}"


@dataclass(frozen=True)
class Results:
    """All runs of a directory, in the order of the experiment."""

    title: str
    runs: list[RunResult]
    left_out: tuple[LeftOut, ...] = ()

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

    def is_discounted(self, task: str, cost: str) -> bool:
        """Whether a limit is on the discounted return; as the first run of the task has it."""
        config = next(run.config for run in self.runs if run.task == task)
        return is_discounted(task, cost, config)


def is_discounted(task: str, cost: str, config: dict[str, Any]) -> bool:
    """Whether the limit of a cost is on its discounted return, as far as that is known."""
    if "gym" in config:
        return config["gym"].get("discounted") is True
    spec = known_tasks().get(task)
    return spec is not None and any(c.name == cost and c.discounted for c in spec.costs)


def load(path: Path) -> Results:
    """The results of a sweep's directory, or of all runs below a directory."""
    with reaching(path):
        if not path.is_dir():
            raise CupolaError(f"there is no directory or file {path}.")
        if Folder(path).has("sweep.json"):
            return load_sweep(SweepDirectory.open(path))
        found = sorted(folder for folder in folders_below(path) if is_run(Folder(folder)))
    if not found:
        raise CupolaError(f"{path} holds neither a sweep nor runs.")
    return Results(path.resolve().name, *load_runs(found))


def folders_below(path: Path) -> Iterator[Path]:
    """Directories with a config.json in them; links are not followed. Any depth would overflow.

    Those that cannot be entered, or are gone meanwhile, or whose path is too long are left out.
    """
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            if not depth:
                raise
            continue
        if any(entry.name == "config.json" for entry in entries):
            yield folder
        if depth < MAX_DEPTH:
            inside = (entry for entry in entries if entry.is_dir(follow_symlinks=False))
            waiting += [(Path(entry.path), depth + 1) for entry in inside]


def load_sweep(sweep: SweepDirectory) -> Results:
    runs, left_out = [], []
    for name, cell in sweep.cells.items():
        try:
            runs.append(load_cell(sweep, cell))
        except CupolaError as error:
            left_out.append(LeftOut(name, str(error)))
    return Results(sweep.experiment.name, runs, tuple(left_out))


def load_cell(sweep: SweepDirectory, cell: Cell) -> RunResult:
    known = read_run(sweep.run_path(cell.name)) if sweep.has_begun(cell.name) else {}
    refuse_enormous(cell.name, {}, cell.point)
    evaluated, status = sweep.result(cell.name) or {}, sweep.status(cell.name)
    return RunResult(
        cell.name, cell.label, cell.task, cell.seed, cell.point, status.state, status.reason,
        **known, result=evaluated,
    )  # fmt: skip


def load_runs(paths: Iterable[Path]) -> tuple[list[RunResult], tuple[LeftOut, ...]]:
    """Single runs, told apart by the fields in which those of one algorithm and task differ.

    Those that cannot be read are left out.
    """
    known: list[tuple[Path, dict[str, Any]]] = []
    left_out = []
    for path in paths:
        try:
            evaluated = result.read(Folder(path)) or {}
            known.append((path, {**read_run(path), "result": evaluated}))
        except CupolaError as error:
            left_out.append(LeftOut(str(path), str(error)))
    runs = []
    points = differing_settings([part["config"] for _, part in known])
    for (path, part), point in zip(known, points, strict=True):
        config = part["config"]
        ended = config.get("ended", {})
        asked = ended.get("iteration", config.get("iterations"))
        complete = len(part["curves"].get("steps", ())) == asked
        runs.append(
            RunResult(
                name=str(path),
                label=config["algo"],
                task=config["task"],
                seed=config.get("seed", 0),
                point=point,
                state="finished" if complete else "interrupted",
                reason=f"ended early: {ended['reason']}" if ended else "",
                **part,
            )
        )
    return runs, tuple(left_out)


def differing_settings(configs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each run the settings in which those of its algorithm and task differ."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for config in configs:
        groups.setdefault((config["algo"], config["task"]), []).append(settings(config))
    varied = {}
    for problem, members in groups.items():
        keys = dict.fromkeys(key for one in members for key in one)
        first = members[0]
        varied[problem] = {k for k in keys if any(o.get(k) != first.get(k) for o in members)}
    return [
        {k: v for k, v in settings(c).items() if k in varied[c["algo"], c["task"]]} for c in configs
    ]


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """All settings of a run that can change its results, but for the seed."""
    limits = config["limits"]
    limit = next(iter(limits.values())) if len(limits) == 1 else limits
    own = {
        k: v for k, v in config.items() if k not in (*NOT_COMPARED, "seed", "algorithm", "limits")
    }
    return own | {"limit": limit} | config["algorithm"]


def refuse_enormous(name: str, curves: Curves, settings: dict[str, Any]) -> None:
    """Raise where a number is so large that differences of two overflow: nothing can draw it."""
    lists = {key: values[np.isfinite(values)] for key, values in curves.items()}
    sizes = {key: float(np.abs(known).max(initial=0)) for key, known in lists.items()}
    sizes |= {key: abs(value) for key, value in settings.items() if isinstance(value, int | float)}
    for key, size in sizes.items():
        if LARGEST < size < math.inf:
            raise CupolaError(f"{name} has a {key!r} beyond {LARGEST:g}, which nothing can show.")


def refuse_other_limits(run: RunDirectory, curves: Curves) -> None:
    """Raise where the config, which has no check value, limits costs otherwise than the metrics."""
    limits, prefix = run.config()["limits"], "limit/"
    for key in (key for key in curves if key.startswith(prefix)):
        asked = limits.get(key.removeprefix(prefix))
        other = curves[key][curves[key] != (math.nan if asked is None else asked)]
        if len(other):
            wanted = "no limit" if asked is None else f"the limit {asked!r}"
            raise CupolaError(
                f"{run.config_file} has {wanted} of {key.removeprefix(prefix)!r}, but the run was"
                f" trained with {float(other[0])!r}: put that back."
            )


def read_run(path: Path) -> dict[str, Any]:
    """Config, limits, curves and timings of a run directory: fields of `RunResult`."""
    run = RunDirectory.open(path)
    config, metrics, timings = run.config(), run.metrics(), run.timings()
    keys = list(metrics[-1]) if metrics else []
    for cost in config["limits"]:
        if keys and f"cost/{cost}" not in keys:
            raise CupolaError(f"{path} limits the cost {cost!r}, of which its metrics are silent.")
    curves = {key: column(metrics, key) for key in keys}
    refuse_enormous(str(path), curves, config["limits"] | config["algorithm"])
    refuse_other_limits(run, curves)
    seconds = [(t["rollout_seconds"], t["update_seconds"]) for t in timings]
    return {
        "config": config,
        "limits": config["limits"],
        "curves": curves,
        "seconds": np.array(seconds, float).reshape(len(seconds), 2),
    }
