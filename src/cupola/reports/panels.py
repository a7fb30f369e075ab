"""What the charts of a report show, as plain data.

`charts.py` draws these panels as PNG and SVG, `assets/page.js` draws them in the page. Both take
the limits, the dashed lines, from here: see `Quantity.limit`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cupola.naming import text_of
from cupola.reports import statistics
from cupola.reports.results import Results, RunResult
from cupola.reports.statistics import estimate

# Okabe and Ito's palette, which all kinds of colour vision tell apart; grey stands for its yellow,
# which is too pale for lines.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888",
)  # fmt: skip
DASHES = ("", "6 3", "2 2", "8 3 2 3")
MARKERS = ("circle", "square", "triangle", "diamond")
LATE = 0.015
"""Share of the training without a value that can be seen in a chart."""
MOST_POINTS, FEWEST_POINTS = 500, 40
MOST_NUMBERS = 700_000
"""In all curves of the page: about seven bytes each."""


class Style(NamedTuple):
    """How a series looks: no two of 32 are alike."""

    colour: str
    dash: str
    marker: str


def style(index: int) -> Style:
    lap = index // len(COLOURS)
    marker = MARKERS[(index + lap) % len(MARKERS)]
    return Style(COLOURS[index % len(COLOURS)], DASHES[lap % len(DASHES)], marker)


class Quantity(NamedTuple):
    """What a panel shows of the runs."""

    kind: str  # return, cost or multiplier
    cost: str = ""
    discounted: bool = False  # whether the limit of the cost is on its discounted return
    evaluated: str = ""  # on episodes of its own, with sampled or deterministic actions

    @property
    def key(self) -> str:
        """Its name in the metrics of a run."""
        prefix = {"return": "return", "cost": "cost/", "multiplier": "nu/"}[self.kind]
        apart = f"eval_{self.evaluated}/" if self.evaluated else ""
        return apart + prefix + self.cost

    @property
    def label(self) -> str:
        return self.axis + (f", evaluated, {self.evaluated} actions" if self.evaluated else "")

    @property
    def axis(self) -> str:
        """The label without what only a title has room for."""
        if self.kind == "return":
            return "return"
        of = "" if self.cost == "cost" else f" of {self.cost}"  # Safety Gym's is called so
        if self.kind == "multiplier":
            return f"Lagrange multiplier{of}"
        return f"{'discounted ' * self.discounted}cost{of}"

    def values(self, curve: np.ndarray, bucket: int) -> np.ndarray:
        """A curve as it is drawn: means over ``bucket`` iterations."""
        return thin(joined(curve) if self.evaluated else curve, bucket)

    def limit(self, runs: list[RunResult]) -> float | None:
        """Where the dashed line of these runs is drawn; None unless this is a cost."""
        return runs[0].limits.get(self.cost) if self.kind == "cost" else None


class Line(NamedTuple):
    """The seeds of one series over the environment steps."""

    series: int
    steps: np.ndarray  # [P]
    runs: list[np.ndarray]  # each [<= P]; NaN where unknown
    limit: float | None
    unfinished: list[bool]  # which of the runs are


class Curve(NamedTuple):
    """A panel over the training."""

    task: str
    quantity: Quantity
    lines: list[Line]


class PlanePoint(NamedTuple):
    """One series in the plane of cost and return."""

    series: int
    seeds: list[tuple[int, float, float]]  # seed, cost, return
    limit: float | None


class Plane(NamedTuple):
    """A panel of final returns over final costs."""

    task: str
    cost: Quantity
    points: list[PlanePoint]


class SensitivityPoint(NamedTuple):
    """A final value with its interval at one value of a varied field."""

    series: int
    at: float
    value: float
    low: float
    high: float
    limit: float | None


class Sensitivity(NamedTuple):
    """A panel of final values over a varied field, all else equal."""

    field: str
    task: str
    quantity: Quantity
    ticks: list[str] | None
    """Names of the values 0, 1, ... of a field that is not a number."""
    lines: dict[str, list[SensitivityPoint]]


def costs_of(results: Results, task: str) -> list[tuple[str, bool]]:
    """The costs of a task, each with whether its limit is on the discounted return."""
    return [(cost, results.is_discounted(task, cost)) for cost in results.costs_of(task)]


def over_training(costs: list[tuple[str, bool]]) -> list[Quantity]:
    """All that is drawn over a training with these `costs_of`; not every run has evaluations."""
    kinds = [("return", "", False), *(("cost", *cost) for cost in costs)]
    return [
        *(Quantity(*kind) for kind in kinds),
        *(Quantity("multiplier", *cost) for cost in costs),
        *(Quantity(*kind, how) for how in ("sampled", "deterministic") for kind in kinds),
    ]


def points_per_run(results: Results) -> int:
    """How finely curves are drawn, so that the page stays small."""
    curves = sum(
        key == "return" or key.startswith(("cost/", "nu/", "eval_"))
        for run in results.runs
        for key in run.curves
    )
    return max(FEWEST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(1, curves)))


def curves(results: Results, points: int) -> list[Curve]:
    found = []
    for task in results.tasks:
        for quantity in over_training(costs_of(results, task)):
            lines = []
            for index, series in enumerate(results.series):
                runs = [run for run in results.group(task, series) if quantity.key in run.curves]
                if runs:
                    lines.append(line(index, runs, quantity, points))
            if lines:
                found.append(Curve(task, quantity, lines))
    return found


def line(index: int, runs: list[RunResult], quantity: Quantity, points: int) -> Line:
    longest = max((run.curves["steps"] for run in runs), key=len)
    bucket = max(1, math.ceil(len(longest) / points))
    return Line(
        index,
        thin(longest, bucket),
        [quantity.values(run.curves[quantity.key], bucket) for run in runs],
        quantity.limit(runs),
        [not run.finished for run in runs],
    )


def late_start(line: Line) -> float | None:
    """The step at which a curve begins, if that is visibly after the first iteration.

    Returns and costs are not known before the first episode has ended.
    """
    known = [np.flatnonzero(np.isfinite(run)) for run in line.runs]
    first = min((int(found[0]) for found in known if len(found)), default=0)
    begin, start, end = line.steps[first], line.steps[0], line.steps[-1]
    return float(begin) if begin - start > LATE * (end - start) else None


def thin(values: np.ndarray, bucket: int) -> np.ndarray:
    """Means over stretches of ``bucket`` values, without those that are not known."""
    if bucket == 1:
        return values
    padded = np.concatenate([values, np.full(-len(values) % bucket, np.nan)]).reshape(-1, bucket)
    known = np.isfinite(padded)
    count = known.sum(axis=1)
    total = np.where(known, padded, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def joined(values: np.ndarray) -> np.ndarray:
    """Straight lines between the values that are known."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return values
    nan = math.nan
    return np.interp(np.arange(len(values)), known, values[known], left=nan, right=nan)


def planes(results: Results) -> list[Plane]:
    found = []
    for task in results.tasks:
        for name in results.costs_of(task):
            cost = Quantity("cost", name, results.is_discounted(task, name))
            points = []
            for index, series in enumerate(results.series):
                runs = [r for r in results.group(task, series) if r.finished and name in r.limits]
                seeds = [(run.seed, run.final(cost.key), run.final("return")) for run in runs]
                seeds = [seed for seed in seeds if all(map(math.isfinite, seed))]
                if seeds:
                    points.append(PlanePoint(index, seeds, cost.limit(runs)))
            if points:
                found.append(Plane(task, cost, points))
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
            costs = (Quantity("cost", *cost) for cost in costs_of(results, task))
            for quantity in (Quantity("return"), *costs):
                lines: dict[str, list[SensitivityPoint]] = {}
                for label, value, runs in slices(results, task, field):
                    final = estimate(
                        [np.array([run.final(quantity.key) for run in runs])], statistics.mean
                    )
                    series = results.series.index(runs[0].series)
                    point = SensitivityPoint(series, at[value], *final, quantity.limit(runs))
                    lines.setdefault(label, []).append(point)
                if lines:
                    lines = {k: sorted(v, key=lambda p: p.at) for k, v in lines.items()}
                    ticks = None if numeric else list(values)
                    found.append(Sensitivity(field, task, quantity, ticks, lines))
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
