"""Where the objects of an episode lie: rejection sampling with keepouts.

Plain Python on purpose: most candidates are too near to the first or second of the other objects,
so checking them one by one is faster than any array operation on all of them.
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from cupola.errors import CupolaError

TRIES = 100
"""Candidates for one object before the whole layout is sampled again."""
LAYOUTS = 2000
GOAL_TRIES = 10_000
_CHUNK = 20

Placed = list[tuple[float, float, float]]
"""x, y and keepout of objects."""


def sample_layout(rng: np.random.Generator, extent: float, keepouts: list[float]) -> np.ndarray:
    """Places [M, 2] of objects with keepouts [M], in the square [-extent, extent]^2.

    One object after the other is placed uniformly in the square shrunk by its keepout, at distances
    from the earlier ones of at least the sum of both keepouts.
    """
    if max(keepouts) <= extent:
        for _ in range(LAYOUTS):
            placed: Placed = []
            for keepout in keepouts:
                place = draw_free(rng, extent, keepout, placed, TRIES)
                if place is None:
                    break
                placed.append((*place, keepout))
            else:
                return np.array([(x, y) for x, y, _ in placed])
    raise CupolaError(
        f"{len(keepouts)} objects with keepouts of {min(keepouts):g} to {max(keepouts):g} m do not"
        f" fit in a square of {2 * extent:g} m: take fewer objects, smaller keepouts or more room."
    )


def draw_free(
    rng: np.random.Generator, extent: float, keepout: float, placed: Placed, tries: int
) -> tuple[float, float] | None:
    """A uniform place that respects the keepouts of the ``placed`` objects, or None."""
    reach = extent - keepout
    others = [(x, y, (keepout + other) ** 2) for x, y, other in placed]
    others.sort(key=itemgetter(2), reverse=True)  # those most likely in the way first
    for _ in range(-(-tries // _CHUNK)):
        for x, y in rng.uniform(-reach, reach, (_CHUNK, 2)).tolist():
            for other_x, other_y, least in others:
                across, along = x - other_x, y - other_y
                if across * across + along * along < least:
                    break
            else:
                return x, y
    return None
