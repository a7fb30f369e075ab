"""The table that says how steadily limits are held; `cupola.steadiness` has the definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from cupola.reports.formats import MARK, Entry, Table, Value
from cupola.reports.results import Results
from cupola.steadiness import (
    DEVIATION,
    DEVIATION_ERRORS,
    FAR_ABOVE,
    MEAN_ABOVE,
    SHARE_ABOVE,
    VERDICTS,
    Steadiness,
    known,
    verdict,
)


def steadiness(results: Results) -> Table:
    """Two rows for every cost: means over seeds, and the worst of each number."""
    columns = [
        *("task", "algorithm", "seeds", "cost", "limit", "over seeds", "mean cost", "deviation"),
        *("sampling error", "share above 1.1 limit", "cumulative violation", "verdict"),
    ]
    rows = []
    for task, series, _, runs in results.groups():
        for cost in runs[0].costs if runs else []:
            found = [run.steadiness(cost) for run in runs if cost in run.limits]
            named = (task, series, len(found), cost, runs[0].limits[cost])
            worst = max(map(verdict, found), key=VERDICTS.index)
            rows += [
                row(named, "mean", reduced(found, np.mean), f"{seeds_that_hold(found)} held"),
                row(named, "worst", reduced(found, np.max), worst),
            ]
    note = (
        "Of the last tenth of the iterations, but for the cumulative violation, which is that of"
        " the whole training. Deviation: the standard deviation of the cost over iterations."
        " Sampling error: the root mean square of the standard errors of these costs, which is the"
        " deviation that independent estimates of an unchanging cost would have. Held:"
        f" the mean cost is at most {100 * MEAN_ABOVE:g} % above the limit, the deviation at most"
        f" {100 * DEVIATION:g} % of the limit or {DEVIATION_ERRORS:g} times the sampling error"
        " (where that is known), and at most"
        f" {100 * SHARE_ABOVE:g} % of the iterations are above {1 + FAR_ABOVE:g} times the limit."
        " Held on average: the mean cost is low enough, but not all of this is true. Worst: the"
        f" highest of each number over the seeds, and their worst verdict. {MARK} above the limit."
    )
    return Table("steadiness", "Steadiness", columns, rows, note)


def row(named: Iterable[Value], label: str, held: Steadiness, words: str) -> list[Entry]:
    return [
        *map(Entry, named),
        Entry(label),
        Entry(held.mean, infeasible=held.mean > held.limit),
        Entry(held.deviation),
        Entry(held.error),
        Entry(held.share_above),
        Entry(held.violation),
        Entry(words),
    ]


def reduced(found: list[Steadiness], reduce: Callable[[np.ndarray], float]) -> Steadiness:
    """The mean or the highest of each number over seeds; NaN where no seed knows it."""
    columns = (known(np.array(column)) for column in zip(*found, strict=True))
    return Steadiness(*(float(reduce(c)) if len(c) else math.nan for c in columns))


def seeds_that_hold(found: list[Steadiness]) -> str:
    return f"{sum(verdict(s) == 'held' for s in found)} of {len(found)}"
