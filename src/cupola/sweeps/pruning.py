"""Ending a run that does worse than others did at the same iteration, through its listener.

At each of a few marks, the level of a run is the means of return and costs over the tenth of its
iterations that ends there. A bar is the level that others had: a run below it is ended. Levels are
ordered as policies are (`cupola.best`): the smaller violation first, then the higher return. A cost
counts as above its limit from `SLACK` on, since a run that holds a limit swings around it.

A run judges by its own file of metrics, so an interrupted one comes to the same end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cupola.runs.directory import RunDirectory, column
from cupola.runs.schema import Record
from cupola.steadiness import known, tenth, violation

if TYPE_CHECKING:  # a sweep can be looked at without waiting for JAX
    from cupola.training import Listener

FIRST_MARK = 3
"""Tenths of the iterations after which a run is judged for the first time."""
SLACK = 0.1


@dataclass(frozen=True)
class Level:
    """How runs did up to an iteration."""

    iteration: int
    violation: float
    """Of the mean costs, beyond the slack."""
    mean_return: float

    @property
    def rank(self) -> tuple[float, float]:
        """Smaller is better."""
        return self.violation, -self.mean_return


def marks(iterations: int) -> list[int]:
    """The iterations at which a run is judged; none where a tenth is not whole."""
    if iterations < 10:
        return []
    return [iterations * tenths // 10 for tenths in range(FIRST_MARK, 10)]


def level(runs: Iterable[list[Record]], mark: int, iterations: int) -> Level | None:
    """Of the mean over runs (seeds) of one problem; None where a number is not known."""
    parts = [metrics[mark - tenth(iterations) : mark] for metrics in runs if len(metrics) >= mark]
    if not parts:
        return None
    costs = [key for key in parts[0][-1] if key.startswith("cost/")]
    # [seeds, 1 + K]
    found = np.array([[mean_of(part, key) for key in ("return", *costs)] for part in parts])
    mean_return, *mean_costs = found.mean(axis=0).tolist()
    if not np.isfinite(found).all():
        return None
    limits = [parts[0][-1][key.replace("cost/", "limit/", 1)] for key in costs]
    excess = violation(np.array(mean_costs), np.array(limits, float))
    return Level(mark, max(0.0, excess - SLACK), mean_return)


def mean_of(metrics: list[Record], key: str) -> float:
    values = known(column(metrics, key))
    return float(values.mean()) if len(values) else np.nan


def is_below(metrics: list[Record], bar: Level, iterations: int) -> bool:
    """Whether a run is worse than the bar."""
    own = level([metrics], bar.iteration, iterations)
    return own is not None and own.rank > bar.rank


def pruner(path: Path, bars: Sequence[Level], iterations: int) -> Listener | None:
    """The listener of the run in ``path``; None where nothing can end it."""
    from cupola.training import STOP

    by_iteration = {bar.iteration: bar for bar in bars}

    def listen(metrics: Record, timings: Record) -> object:
        bar = by_iteration.get(metrics["iteration"])
        if bar and is_below(RunDirectory(path).metrics(), bar, iterations):
            return STOP
        return None

    return listen if bars else None
