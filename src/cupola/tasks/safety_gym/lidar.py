"""What the robot sees: closeness of objects in 16 directions around it.

The axis of objects comes first and that of environments last, [M, n]: that is faster in NumPy.
"""

from __future__ import annotations

import numpy as np

BINS = 16
REACH = 3.0
# Centres of the bins in units of bins, ahead being 0, in [-8, 8) like the angles below.
_CENTRES = (np.arange(BINS) + 0.5 + BINS / 2) % BINS - BINS / 2


def ego(relative: np.ndarray, height: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Objects on the ground in the robot's frame, [2, M, n].

    ``relative`` [2, M, n] are their places in the world minus the robot's, ``height`` [n] that of
    the robot, ``frame`` [n, 9] its axes: a tilted robot sees the ground tilted.
    """
    axes = frame.T.reshape(3, 3, 1, -1)[:, :2]  # world axis, robot axis
    seen = relative[0] * axes[0]
    seen += relative[1] * axes[1]
    seen -= height * axes[2]
    return seen


def lidar(places: np.ndarray, kinds: list[slice]) -> np.ndarray:
    """Readings [n, 16 L] of L ``kinds`` of objects at ego-centric ``places`` [2, M, n].

    An object reads max(0, 3 - distance)/3 in its own bin and, weighted by how near they are, in the
    two neighbours; a bin shows its largest reading.
    """
    x, y = places
    closeness = np.sqrt(x * x + y * y)
    closeness *= -1 / REACH
    closeness += 1
    np.maximum(closeness, 0.0, out=closeness)
    turn = np.arctan2(y, x)
    turn *= BINS / (2 * np.pi)
    # Weight: 1 up to half a bin from the bin's centre, falling to 0 at one and a half.
    weight = turn[..., None] - _CENTRES
    np.abs(weight, out=weight)
    weight -= BINS / 2
    np.abs(weight, out=weight)  # now 8 - the gap around the circle
    weight -= BINS / 2 - 1.5
    np.maximum(np.minimum(weight, 1.0, out=weight), 0.0, out=weight)
    weight *= closeness[..., None]
    readings = np.empty((x.shape[1], len(kinds), BINS))
    for k, kind in enumerate(kinds):
        np.maximum.reduce(weight[kind], axis=0, out=readings[:, k])
    return readings.reshape(len(readings), -1)
