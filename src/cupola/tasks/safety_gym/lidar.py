"""What the robot sees: closeness of objects in 16 directions around it."""

from __future__ import annotations

import numpy as np

BINS = 16
REACH = 3.0
# Centres of the bins in units of bins, ahead being 0, in [-8, 8) like the angles below.
_CENTRES = (np.arange(BINS) + 0.5 + BINS / 2) % BINS - BINS / 2


def ego(relative: np.ndarray, height: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Objects on the ground in the robot's frame, [n, M, 2].

    ``relative`` [n, M, 2] are their places in the world minus the robot's, ``height`` [n] that of
    the robot, ``frame`` [n, 9] its axes: a tilted robot sees the ground tilted.
    """
    axes = frame.reshape(-1, 3, 3)
    seen = np.einsum("nmi,nij->nmj", relative, axes[:, :2, :2])
    seen -= (height[:, None] * axes[:, 2, :2])[:, None]
    return seen


def lidar(places: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """Readings [n, L, 16] of L kinds of objects at ego-centric ``places`` [n, M, 2].

    ``firsts`` [L] are the kinds' first objects. An object reads max(0, 3 - distance)/3 in its own
    bin and, weighted by how near they are, in the two neighbours; a bin shows its largest reading.
    """
    x, y = places[..., 0], places[..., 1]
    closeness = REACH - np.sqrt(x * x + y * y)
    closeness *= 1 / REACH
    np.maximum(closeness, 0.0, out=closeness)
    turn = np.arctan2(y, x)
    turn *= BINS / (2 * np.pi)
    # Weight: 1 up to half a bin from the bin's centre, falling to 0 at one and a half.
    weight = turn[..., None] - _CENTRES
    np.abs(weight, out=weight)
    weight -= BINS / 2
    np.abs(weight, out=weight)  # now 8 - the gap around the circle
    weight -= BINS / 2 - 1.5
    np.minimum(np.maximum(weight, 0.0, out=weight), 1.0, out=weight)
    weight *= closeness[..., None]
    return np.maximum.reduceat(weight, firsts, axis=1)
