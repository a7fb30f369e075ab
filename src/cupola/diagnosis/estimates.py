"""Means and their standard errors, also where what is averaged shares batches."""

from __future__ import annotations

import math

import numpy as np

from cupola.diagnosis.result import Estimate


def over_rows(rows: np.ndarray) -> list[Estimate]:
    """Of the columns of [E, R], whose rows are independent."""
    count = len(rows)
    means = rows.mean(axis=0) if count else np.full(rows.shape[1], np.nan)
    errors = rows.std(axis=0, ddof=1) / count**0.5 if count > 1 else np.full_like(means, np.nan)
    return [Estimate(*pair) for pair in zip(means.tolist(), errors.tolist(), strict=True)]


def over_pairs(values: np.ndarray, used: np.ndarray) -> Estimate:
    """Of values [M, M] of pairs of M independent batches, those that are ``used`` [M, M].

    Pairs share batches, so the error is that of the jackknife: each batch is left out in turn,
    with all pairs that it is part of.
    """
    chosen = np.where(used, values, 0.0)

    def left(table: np.ndarray) -> np.ndarray:
        """What each batch leaves of the sum of a table without a diagonal."""
        return table.sum() - table.sum(axis=0) - table.sum(axis=1)

    if not used.any():
        return Estimate(math.nan, math.nan)
    mean = float(chosen.sum() / used.sum())
    involved = used.any(axis=0) | used.any(axis=1)
    counts = left(used.astype(int))[involved]
    if (counts <= 0).any():  # one batch is part of every pair
        return Estimate(mean, math.nan)
    without, size = left(chosen)[involved] / counts, len(counts)
    error = math.sqrt((size - 1) / size * float(np.sum((without - without.mean()) ** 2)))
    return Estimate(mean, error)
