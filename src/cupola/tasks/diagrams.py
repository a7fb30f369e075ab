"""Pictures of tasks without bodies: the planes of the probes, the states of a finite CMDP."""

from __future__ import annotations

import numpy as np

from cupola.tasks.canvas import ALARM, INK, Canvas, Colour

_GRID: Colour = (0.90, 0.89, 0.86)
_GOOD: Colour = (0.15, 0.65, 0.25)
_CELL: Colour = (1.0, 1.0, 1.0)
_WAY: Colour = (0.25, 0.35, 0.95)


def draw_quadratic(
    target: np.ndarray,
    normals: np.ndarray,
    limits: np.ndarray,
    action: np.ndarray | None,
    size: tuple[int, int],
) -> np.ndarray:
    """The plane of actions: green the best one without limits, red what the limits forbid.

    ``target`` [2], ``normals`` [K, 2], ``limits`` [K], and the last ``action`` [2] if there is one.
    """
    reach = 2.0 if action is None else max(2.0, float(np.abs(action - target).max()) + 0.2)
    canvas = Canvas(size, 2 * reach, (float(target[0]), float(target[1])))
    canvas.grid(_GRID, 0.004 * reach)
    far = 4 * max(canvas.half)
    for normal, limit in zip(normals, limits, strict=True):
        length = float(np.hypot(*normal))
        edge = normal * limit / length**2
        angle = float(np.arctan2(normal[1], normal[0]))
        canvas.box(edge + far * normal / length, (far, far), angle, ALARM, 0.18)
        canvas.box(edge, (0.006 * reach, far), angle, ALARM, 0.8)
    for radius in (0.5, 1.0, 1.5):
        canvas.ring(target, radius, 0.006 * reach, _GOOD, 0.5)
    canvas.disc(target, 0.03 * reach, _GOOD)
    if action is not None:
        canvas.disc(action, 0.04 * reach, INK)
    return canvas.image()


def draw_regulator(
    radius: float, before: np.ndarray, state: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    """The plane of states [2]: green the origin, around it where episodes begin."""
    reach = max(radius + 0.5, float(np.abs(state).max()) + 0.3)
    canvas = Canvas(size, 2 * reach, (0.0, 0.0))
    canvas.grid(_GRID, 0.004 * reach)
    canvas.ring(np.zeros(2), radius, 0.008 * reach, INK, 0.3)
    canvas.disc(np.zeros(2), 0.03 * reach, _GOOD)
    canvas.capsule(before, state, 0.012 * reach, _WAY, 0.7)
    canvas.disc(state, 0.04 * reach, INK)
    return canvas.image()


def draw_table(
    rewards: np.ndarray,
    costs: np.ndarray,
    columns: int,
    before: int,
    state: int,
    size: tuple[int, int],
) -> np.ndarray:
    """States in rows of ``columns``: green those with ``rewards`` [S], red with ``costs`` [S].

    The way from the state ``before`` leads to a dot in the present one.
    """
    rows = -(-len(rewards) // columns)

    def place(number: int) -> np.ndarray:
        row, column = divmod(number, columns)
        return np.array([column - (columns - 1) / 2, (rows - 1) / 2 - row])

    span = max(columns * min(size) / size[0], rows * min(size) / size[1])
    canvas = Canvas(size, 1.1 * span, (0.0, 0.0))
    best, worst = max(rewards.max(), 1e-12), max(costs.max(), 1e-12)
    for number, (reward, cost) in enumerate(zip(rewards, costs, strict=True)):
        canvas.box(place(number), (0.47, 0.47), 0.0, _CELL)
        canvas.box(place(number), (0.47, 0.47), 0.0, _GOOD, 0.6 * max(0.0, reward / best))
        canvas.box(place(number), (0.47, 0.47), 0.0, ALARM, 0.5 * max(0.0, cost / worst))
        corner = place(number) + np.array([-0.36, 0.36])
        canvas.text(corner, str(number), INK, 0.14)
    canvas.capsule(place(before), place(state), 0.03, _WAY, 0.6)
    canvas.disc(place(state), 0.2, INK)
    return canvas.image()
