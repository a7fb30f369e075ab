"""What an iteration measured, as one line of metrics.jsonl."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupola.episodes import Estimates, Finished, mean_or_nan
from cupola.runs.schema import Record
from cupola.types import Problem


def metrics_record(
    problem: Problem, finished: Finished, estimates: Estimates, update: dict[str, np.ndarray]
) -> Record:
    """Episodes, costs with errors beside their limits, and the metrics of the update.

    A scalar of ``update`` is recorded under its name, an array [K] once for each cost.
    """
    mean_return, length = estimates.last
    record: Record = {
        "episodes": len(finished.returns),
        "length": number(length),
        "return": number(mean_return),
    }
    undiscounted = mean_or_nan(finished.costs)
    for i, name in enumerate(problem.costs):
        record[f"cost/{name}"] = number(estimates.cost_returns[i])
        record[f"cost_error/{name}"] = number(estimates.cost_errors[i])
        record[f"cost_undiscounted/{name}"] = number(undiscounted[i])
        record[f"limit/{name}"] = problem.limits[i]
    for key, value in update.items():
        if np.ndim(value) == 0:
            record[key] = number(value)
        else:
            for i, name in enumerate(problem.costs):
                record[f"{key}/{name}"] = number(value[i])
    return record


def number(value: Any) -> float | int | None:
    """A JSON number; null where it is not known yet."""
    plain = np.asarray(value).item()
    return None if isinstance(plain, float) and np.isnan(plain) else plain
