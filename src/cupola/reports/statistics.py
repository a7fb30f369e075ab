"""Statistics over seeds that hold: with few of them, with ties, with one, with failed ones.

Definitions, for a run with cost returns J_k and limits b over iterations k = 1..n:

- final performance: mean over the last tenth of the iterations (`cupola.steadiness`, which also
  defines when a limit is held steadily, and the cumulative violation);
- interquartile mean: the mean of the middle half, of all seeds (and tasks) together;
- interval: 95 %, percentile bootstrap over seeds, each task's seeds resampled among themselves;
- regret in cost: sum_k (J_k - b), in which safe iterations offset unsafe ones;
- first feasible: environment steps up to the first iteration in which all costs are within limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 9999

Strata = Sequence[np.ndarray]
"""One array of scores per task: [..., seeds of that task]."""
Statistic = Callable[[Strata], np.ndarray]
"""Reduces the last axis of every stratum, and the strata, to one number."""


class Estimate(NamedTuple):
    """A number and its 95 % interval; NaN where the seeds are too few for one."""

    value: float
    low: float = math.nan
    high: float = math.nan


def mean(strata: Strata) -> np.ndarray:
    """The mean over tasks of the mean over seeds."""
    return np.mean([stratum.mean(axis=-1) for stratum in strata], axis=0)


def interquartile_mean(strata: Strata) -> np.ndarray:
    """The mean of the middle half of all scores, a quarter (rounded down) cut off either side."""
    pooled = np.sort(np.concatenate(strata, axis=-1), axis=-1)
    count = pooled.shape[-1]
    cut = count // 4
    return pooled[..., cut : count - cut].mean(axis=-1)


def estimate(strata: Strata, statistic: Statistic, seed: int = 0) -> Estimate:
    """A statistic with its bootstrap interval; without one if a task has fewer than two seeds."""
    strata = [np.asarray(s, float)[np.isfinite(s)] for s in strata]
    strata = [stratum for stratum in strata if len(stratum)]
    if not strata:
        return Estimate(math.nan)
    value = float(statistic(strata))
    if min(len(stratum) for stratum in strata) < 2:
        return Estimate(value)
    low, high = bootstrap(strata, statistic, np.random.default_rng(seed))
    return Estimate(value, low, high)


def bootstrap(
    strata: Strata, statistic: Statistic, rng: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of a statistic over resampled seeds, stratum by stratum."""
    resampled = [
        stratum[rng.integers(0, len(stratum), (RESAMPLES, len(stratum)))] for stratum in strata
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(statistic(resampled), [tail, 1 - tail])
    return float(low), float(high)


def regret(costs: np.ndarray, limit: float) -> float:
    """sum_k (J_k - b) over a curve [T]."""
    return float(np.nansum(costs - limit))


def first_feasible(steps: np.ndarray, costs: np.ndarray, limits: np.ndarray) -> float:
    """Steps [T] of the first iteration whose costs [K, T] are all within limits [K]; inf: never."""
    feasible = (costs <= limits[:, None]).all(axis=0)
    return float(steps[np.argmax(feasible)]) if feasible.any() else math.inf


def median(values: Sequence[float]) -> float:
    """The median; infinite where half of the values are."""
    return float(np.median(values)) if len(values) else math.nan


def normalised(scores: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scores by name on a common scale: 0 is the lowest of all, 1 the highest."""
    known = np.concatenate([values[np.isfinite(values)] for values in scores.values()] or [[]])
    if len(known) == 0:
        return scores
    low, spread = known.min(), np.ptp(known)
    return {
        name: (values - low) / spread if spread else values * 0.0 for name, values in scores.items()
    }
