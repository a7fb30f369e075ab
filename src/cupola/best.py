"""The best policy of a training so far.

The policy that collects the batch of iteration k is the one after k - 1 updates. It is judged by
the means of return and costs over the last `WINDOW` iterations up to k, those before the first
episode left out. It is the best so far where

1. it is judged by more iterations, which happens in the first few only; or else
2. its violation is smaller: the largest of (J - b) / b over the costs, J where b = 0, and 0 where
   all costs are within their limits; or else
3. its return is higher.

What is kept is part of every checkpoint, so that a resumed run goes on with the same one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cupola import nets
from cupola.core.moments import Moments
from cupola.runs import checkpoints
from cupola.runs.checkpoints import Arrays
from cupola.steadiness import violation

WINDOW = 10


class Standing(NamedTuple):
    """How a policy did."""

    iteration: int
    """Updates behind the policy."""
    mean_return: float
    costs: tuple[float, ...]
    """[K], as their limits count them."""
    judged_by: int = WINDOW
    """Iterations behind these means."""


class Best:
    """Looks at every policy of a training and keeps the best one."""

    def __init__(self, limits: tuple[float, ...], policy: nets.Policy, moments: Moments) -> None:
        """``policy`` and ``moments`` are of the shapes that will come."""
        self._limits = np.array(limits)
        self._policy, self._moments = policy, moments
        self._window = np.zeros((0, 1 + len(limits)))
        self.standing: Standing | None = None

    def consider(
        self, updates: int, policy: nets.Policy, moments: Moments, seen: np.ndarray
    ) -> None:
        """A policy after so many updates, and the return and costs [1 + K] of its own batch."""
        if np.isnan(seen).any():
            return
        self._window = np.concatenate([self._window, seen[None]])[-WINDOW:]
        found, *costs = self._window.mean(axis=0).tolist()
        standing = Standing(updates, found, tuple(costs), len(self._window))
        if self.standing is None or self._rank(standing) < self._rank(self.standing):
            self.standing, self._policy, self._moments = standing, policy, moments

    def _rank(self, standing: Standing) -> tuple[float, ...]:
        excess = violation(np.array(standing.costs), self._limits)
        return -standing.judged_by, excess, -standing.mean_return

    def save(self) -> Arrays:
        arrays: Arrays = {"window": self._window}
        if self.standing:
            arrays["iteration"] = np.array(self.standing.iteration)
            arrays["judged_by"] = np.array(self.standing.judged_by)
            arrays["means"] = np.array([self.standing.mean_return, *self.standing.costs])
            arrays |= checkpoints.flatten("policy", self._policy)
            arrays |= checkpoints.flatten("moments", self._moments)
        return {f"best.{name}": array for name, array in arrays.items()}

    def restore(self, arrays: Arrays) -> None:
        """From the arrays of a checkpoint; those of earlier versions say nothing of it."""
        width = 1 + len(self._limits)
        if "best.window" in arrays:
            self._window = checkpoints.array_of(arrays, "best.window", (None, width), "f")
        if "best.iteration" in arrays:
            means = checkpoints.array_of(arrays, "best.means", (width,), "f").tolist()
            updates, judged_by = (
                int(checkpoints.array_of(arrays, f"best.{name}", (), "iu"))
                for name in ("iteration", "judged_by")
            )
            self.standing = Standing(updates, means[0], tuple(means[1:]), judged_by)
            self._policy = checkpoints.unflatten("best.policy", arrays, self._policy)
            self._moments = checkpoints.unflatten("best.moments", arrays, self._moments)
