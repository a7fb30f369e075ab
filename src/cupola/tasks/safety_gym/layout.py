"""Where the objects of an episode lie: rejection sampling with keepouts."""

from __future__ import annotations

import numpy as np

from cupola.errors import CupolaError

TRIES = 100
"""Candidates for one object before the whole layout is begun anew."""
LAYOUTS = 1000
GOAL_TRIES = 10_000


def sample_layout(rng: np.random.Generator, extent: float, keepouts: np.ndarray) -> np.ndarray:
    """Places [M, 2] of objects with keepouts [M], in the square [-extent, extent]^2.

    One object after the other is placed uniformly in the square shrunk by its keepout, at distances
    from the earlier ones of at least the sum of both keepouts.
    """
    if np.all(keepouts <= extent):
        for _ in range(LAYOUTS):
            places = np.empty((len(keepouts), 2))
            for i, keepout in enumerate(keepouts):
                place = draw_free(rng, extent, keepout, places[:i], keepouts[:i], TRIES)
                if place is None:
                    break
                places[i] = place
            else:
                return places
    raise CupolaError(
        f"{len(keepouts)} objects with keepouts of {keepouts.min():g} to {keepouts.max():g} m do not"
        f" fit in a square of {2 * extent:g} m: take fewer objects, smaller keepouts or more room."
    )


def draw_free(
    rng: np.random.Generator,
    extent: float,
    keepout: float,
    others: np.ndarray,
    keepouts: np.ndarray,
    tries: int,
) -> np.ndarray | None:
    """A uniform place [2] that respects the ``keepouts`` [M] of ``others`` [M, 2], or None."""
    reach = extent - keepout
    least = (keepouts + keepout) ** 2
    drawn = 0
    while drawn < tries:
        count = min(TRIES, tries - drawn)
        candidates = rng.uniform(-reach, reach, (count, 2))
        gaps = candidates[:, None] - others
        free = np.all(np.einsum("tmi,tmi->tm", gaps, gaps) >= least, axis=1)
        if free.any():
            return candidates[free.argmax()]
        drawn += count
    return None
