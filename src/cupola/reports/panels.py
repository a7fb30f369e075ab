"""What the report's page and the figures draw: the same panels, as plain data."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cupola.reports import statistics
from cupola.reports.results import Results, RunResult
from cupola.reports.statistics import estimate
from cupola.sweeps.grid import text_of

# Okabe and Ito's palette, which all kinds of colour vision tell apart; grey stands for its yellow,
# which is too pale for lines.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888",
)  # fmt: skip
DASHES = ("", "6 3", "2 2", "8 3 2 3")
MARKERS = ("circle", "square", "triangle", "diamond")
MOST_POINTS, FEWEST_POINTS = 500, 40
BUDGET = 700_000
"""Numbers in the page's curves: about seven bytes each."""


class Style(NamedTuple):
    """How a series looks: no two of 32 are alike."""

    colour: str
    dash: str
    marker: str


def style(index: int) -> Style:
    lap = index // len(COLOURS)
    marker = MARKERS[(index + lap) % len(MARKERS)]
    return Style(COLOURS[index % len(COLOURS)], DASHES[lap % len(DASHES)], marker)


class Line(NamedTuple):
    """The seeds of one series over the environment steps."""

    series: int
    steps: np.ndarray  # [P]
    runs: list[np.ndarray]  # each [<= P]; NaN where unknown
    limit: float | None


class Curve(NamedTuple):
    """A panel over the training: return, a cost or a price."""

    task: str
    kind: str  # return, cost or price
    name: str
    lines: list[Line]


class Spot(NamedTuple):
    """One series in the plane of cost and return."""

    series: int
    seeds: list[tuple[int, float, float]]  # seed, cost, return
    limit: float


class Plane(NamedTuple):
    task: str
    cost: str
    spots: list[Spot]


class Reading(NamedTuple):
    """A final value with its interval at one value of a varied field."""

    series: int
    at: float
    value: float
    low: float
    high: float
    limit: float | None


class Sensitivity(NamedTuple):
    """A final value over a varied field, the rest held."""

    field: str
    task: str
    kind: str
    name: str
    ticks: list[str] | None
    """Names of the values 0, 1, ... of a field that is not a number."""
    lines: dict[str, list[Reading]]


def points_per_run(results: Results) -> int:
    """How finely curves are drawn, so that the page stays small."""
    keys = ("return", "cost/", "nu/")
    curves = sum(sum(key.startswith(keys) for key in run.curves) for run in results.runs)
    return max(FEWEST_POINTS, min(MOST_POINTS, BUDGET // max(1, curves)))


def curves(results: Results, points: int) -> list[Curve]:
    found = []
    for task in results.tasks:
        costs = results.costs_of(task)
        wanted = [("return", "return", "return")]
        wanted += [("cost", name, f"cost/{name}") for name in costs]
        wanted += [("price", name, f"nu/{name}") for name in costs]
        for kind, name, key in wanted:
            lines = []
            for index, series in enumerate(results.series):
                runs = [run for run in results.group(task, series) if key in run.curves]
                if runs:
                    limit = runs[0].limits.get(name) if kind == "cost" else None
                    lines.append(line(index, runs, key, limit, points))
            if lines:
                found.append(Curve(task, kind, name, lines))
    return found


def line(index: int, runs: list[RunResult], key: str, limit: float | None, points: int) -> Line:
    longest = max((run.curves["steps"] for run in runs), key=len)
    bucket = max(1, math.ceil(len(longest) / points))
    return Line(
        index,
        thin(longest, bucket),
        [thin(run.curves[key], bucket) for run in runs],
        limit,
    )


def thin(values: np.ndarray, bucket: int) -> np.ndarray:
    """Means over stretches of ``bucket`` values, without those that are not known."""
    if bucket == 1:
        return values
    padded = np.concatenate([values, np.full(-len(values) % bucket, np.nan)]).reshape(-1, bucket)
    known = np.isfinite(padded)
    count = known.sum(axis=1)
    total = np.where(known, padded, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def planes(results: Results) -> list[Plane]:
    found = []
    for task in results.tasks:
        for cost in results.costs_of(task):
            spots = []
            for index, series in enumerate(results.series):
                runs = [r for r in results.group(task, series) if r.finished and cost in r.limits]
                seeds = [(r.seed, r.final(f"cost/{cost}"), r.final("return")) for r in runs]
                seeds = [seed for seed in seeds if all(map(math.isfinite, seed))]
                if seeds:
                    spots.append(Spot(index, seeds, runs[0].limits[cost]))
            if spots:
                found.append(Plane(task, cost, spots))
    return found


def sensitivities(results: Results) -> list[Sensitivity]:
    """For every field that varies: final return and costs over it, all else equal."""
    found = []
    for field in results.varied:
        values = ordered(
            {text_of(r.point[field]): r.point[field] for r in results.runs if field in r.point}
        )
        if len(values) < 2:
            continue
        numeric = all(is_number(value) for value in values.values())
        at = {t: float(v) if numeric else float(i) for i, (t, v) in enumerate(values.items())}
        for task in results.tasks:
            wanted = [("return", "return", "return")]
            wanted += [("cost", name, f"cost/{name}") for name in results.costs_of(task)]
            for kind, name, key in wanted:
                lines: dict[str, list[Reading]] = {}
                for label, value, runs in slices(results, task, field):
                    strata = [np.array([run.final(key) for run in runs])]
                    limit = runs[0].limits.get(name) if kind == "cost" else None
                    series = results.series.index(runs[0].series)
                    middle = estimate(strata, statistics.mean)
                    reading = Reading(series, at[value], *middle, limit)
                    lines.setdefault(label, []).append(reading)
                if lines:
                    lines = {k: sorted(v, key=lambda r: r.at) for k, v in lines.items()}
                    ticks = None if numeric else list(values)
                    found.append(Sensitivity(field, task, kind, name, ticks, lines))
    return found


def slices(results: Results, task: str, field: str) -> list[tuple[str, str, list[RunResult]]]:
    """Label of everything but ``field``, its value, and the finished runs of both."""
    found: dict[tuple[str, str], list[RunResult]] = {}
    for run in results.runs:
        if run.task == task and run.finished and field in run.point:
            rest = (f"{k}={text_of(v)}" for k, v in run.point.items() if k != field)
            key = (" ".join((run.label, *rest)), text_of(run.point[field]))
            found.setdefault(key, []).append(run)
    return [(label, value, runs) for (label, value), runs in found.items()]


def ordered(values: dict[str, Any]) -> dict[str, Any]:
    if all(is_number(value) for value in values.values()):
        return dict(sorted(values.items(), key=lambda item: item[1]))
    return values


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
