"""Trials: what was tried, how it did, and which is the best.

A trial's score is the mean over its seeds of the final return, and its cost that of the final cost:
final is the mean over the last tenth of the iterations, as in reports. It is feasible where every
mean cost is within its limit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cupola.steadiness import relative_excess, violation
from cupola.sweeps.cells import Fields
from cupola.sweeps.pruning import Level, marks

FEWEST = 5
"""Trials that a bar needs."""
REACHED = 0.75
"""The share of them that a bar lets pass."""

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
    """At every mark the level that three quarters of the trials reached, of those that came there.

    None while they are few.
    """
    ended = [trial.outcome for trial in trials if trial.outcome]
    found = []
    for mark in marks(iterations):
        levels = [level for one in ended for level in one.levels if level.iteration == mark]
        levels.sort(key=lambda level: level.rank)
        if len(levels) >= FEWEST:
            found.append(levels[math.ceil(REACHED * len(levels)) - 1])
    return tuple(found)
