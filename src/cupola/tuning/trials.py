"""Trials: what was tried, how it did, and which is the best.

A trial's score is the mean over its seeds of the final return, and its cost that of the final cost:
final is the mean over the last tenth of the iterations, as in reports. It is feasible where every
mean cost is within its limit.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cupola.steadiness import relative_excess, violation
from cupola.sweeps.cells import Fields
from cupola.sweeps.pruning import Level, marks

MEDIAN_OF = 5
"""Finished trials that a bar needs."""

TrialState = Literal["finished", "pruned", "failed"]
STATES: tuple[TrialState, ...] = ("finished", "pruned", "failed")
"""From the best to the worst."""


@dataclass(frozen=True)
class Outcome:
    """How a trial did; of a pruned one, up to where it was ended."""

    state: TrialState
    reason: str = ""
    mean_return: float | None = None
    costs: dict[str, float] = dataclasses.field(default_factory=dict)
    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    levels: tuple[Level, ...] = ()
    """Of the mean over seeds at the marks."""

    @property
    def excesses(self) -> dict[str, float]:
        """(J - b) / b of each cost: a constraint, met where it is at most 0."""
        costs, limits = (np.array(list(d.values())) for d in (self.costs, self.limits))
        return dict(zip(self.costs, relative_excess(costs, limits).tolist(), strict=True))

    @property
    def feasible(self) -> bool:
        within = all(self.costs[name] <= limit for name, limit in self.limits.items())
        return self.state == "finished" and within

    @property
    def rank(self) -> tuple[float, ...]:
        """Smaller is better: finished, then the smaller violation, then the higher return."""
        costs, limits = (np.array(list(d.values())) for d in (self.costs, self.limits))
        value = 0.0 if self.mean_return is None else self.mean_return
        return STATES.index(self.state), violation(costs, limits), -value


@dataclass(frozen=True)
class Trial:
    """One setting, trained with every seed."""

    number: int
    values: Fields
    bars: tuple[Level, ...] = ()
    outcome: Outcome | None = None
    """None until all its runs have ended."""


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Those that have ended, the best first; of two equal ones the earlier."""
    ended = [(trial.outcome.rank, trial.number, trial) for trial in trials if trial.outcome]
    return [trial for _, _, trial in sorted(ended, key=lambda entry: entry[:2])]


def best(trials: Sequence[Trial]) -> Trial | None:
    """The feasible trial with the highest return."""
    found = [trial for trial in ranked(trials) if trial.outcome and trial.outcome.feasible]
    return found[0] if found else None


def bars_of(trials: Sequence[Trial], iterations: int) -> tuple[Level, ...]:
    """The median level of the finished trials at every mark; none while they are few.

    Of an even number it is the lower of the two in the middle.
    """
    finished = [t.outcome for t in trials if t.outcome and t.outcome.state == "finished"]
    found = []
    for mark in marks(iterations):
        levels = [level for one in finished for level in one.levels if level.iteration == mark]
        if len(levels) >= MEDIAN_OF:
            middle = statistics.median_high([level.rank for level in levels])
            found.append(Level(mark, middle[0], -middle[1]))
    return tuple(found)
