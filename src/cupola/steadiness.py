"""How steadily a run holds the limit of a cost: at its end, and over all of it.

Definitions, for cost returns J_k with standard errors e_k and a limit b over iterations k = 1..n:

- last tenth: the last n // 10 iterations, at least one. All but the violation are taken over it,
  over those of its iterations in which the value is known;
- mean cost: the mean of J_k;
- deviation: the sample standard deviation of J_k over iterations;
- sampling error: the root mean square of e_k. Variances add up, standard deviations do not: this is
  the deviation that independent estimates would have if no update changed the policy's cost;
- share above: the share of iterations with J_k > 1.1 b;
- cumulative violation: sum_k max(0, J_k - b), over all iterations of the run.

A limit is held steadily where

- the mean cost is at most 2 % above the limit,
- the deviation is at most 8 % of the limit, or at most 1.5 times the sampling error, and
- at most 5 % of the iterations are above 1.1 b.

The verdict is then `held`. Where the mean cost is low enough but not all of this is true, it is
`held on average`; where the mean cost is too high, `exceeded`. One iteration has no deviation, so
it does not make a limit steady. Without sampling errors (runs of earlier versions have none) 8 % of
the limit decides.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

MEAN_ABOVE = 0.02
DEVIATION, DEVIATION_ERRORS = 0.08, 1.5
FAR_ABOVE, SHARE_ABOVE = 0.1, 0.05

Verdict = Literal["-", "held", "held on average", "exceeded"]
VERDICTS: tuple[Verdict, ...] = ("-", "held", "held on average", "exceeded")
"""From the best to the worst; "-" where no cost is known."""


class Steadiness(NamedTuple):
    """How a run holds one limit; NaN where a number is not known."""

    limit: float
    mean: float
    deviation: float
    error: float
    share_above: float
    violation: float


def measure(costs: np.ndarray, errors: np.ndarray, limit: float) -> Steadiness:
    """From a curve of cost returns [T] and one of their standard errors [T]; NaN is unknown."""
    last, spread = known(last_tenth(costs)), known(last_tenth(errors))
    return Steadiness(
        limit=limit,
        mean=final(costs),
        deviation=float(last.std(ddof=1)) if len(last) > 1 else math.nan,
        error=math.sqrt(np.mean(spread**2)) if len(spread) else math.nan,
        share_above=float(np.mean(last > (1 + FAR_ABOVE) * limit)) if len(last) else math.nan,
        violation=cumulative_violation(costs, limit),
    )


def verdict(found: Steadiness) -> Verdict:
    """Whether the limit is held steadily, only on average, or not."""
    if math.isnan(found.mean):
        return "-"
    if found.mean > (1 + MEAN_ABOVE) * found.limit:
        return "exceeded"
    widest = np.fmax(DEVIATION * found.limit, DEVIATION_ERRORS * found.error)  # NaN: the other
    steady = found.deviation <= widest and found.share_above <= SHARE_ABOVE
    return "held" if steady else "held on average"


def tenth(count: int) -> int:
    """A tenth of so many iterations, at least one."""
    return max(1, count // 10)


def last_tenth(values: np.ndarray) -> np.ndarray:
    """Of a curve [T]."""
    return values[-tenth(len(values)) :]


def known(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def final(values: np.ndarray) -> float:
    """Mean of the last tenth of a curve [T]; NaN where nothing is known."""
    last = known(last_tenth(values))
    return float(last.mean()) if len(last) else math.nan


def cumulative_violation(costs: np.ndarray, limit: float) -> float:
    """sum_k max(0, J_k - b) over a curve [T]; iterations before the first episode do not count."""
    return float(np.nansum(np.maximum(costs - limit, 0.0)))


def relative_excess(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """(J - b) / b for costs [K] and limits [K]; J where b = 0."""
    return (costs - limits) / np.where(limits > 0, limits, 1.0)


def violation(costs: np.ndarray, limits: np.ndarray) -> float:
    """The largest excess of costs [K] over their limits [K], relative to them; 0 where none is."""
    return float(np.max(relative_excess(costs, limits), initial=0.0))
