"""A MuJoCo robot made of capsules and spheres, drawn flat from the side or from above."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

from cupola.tasks.canvas import Canvas, Colour

if TYPE_CHECKING:
    import mujoco

PIXELS = 480
_SKY: Colour = (0.96, 0.95, 0.92)
_GROUND: Colour = (0.80, 0.78, 0.73)
_GRID: Colour = (0.86, 0.85, 0.81)

View = Literal["side", "top"]
Backdrop = Callable[[Canvas], None]
_WIDTH: dict[View, float] = {"side": 4.0, "top": 8.0}


def draw_robot(
    model: mujoco.MjModel, qpos: np.ndarray, view: View, backdrop: Backdrop | None
) -> np.ndarray:
    """A picture [480, 480, 3] uint8 of the robot at ``qpos`` [nq], which stays in its middle."""
    import mujoco  # slow to import, and tasks are listed without it

    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    right, up, away = (0, 2, 1) if view == "side" else (0, 1, 2)
    bodies = [i for i in range(model.ngeom) if model.geom_bodyid[i]]
    middle = data.geom_xpos[bodies].mean(axis=0)
    width = _WIDTH[view]
    height = width / 2 - 0.5 if view == "side" else float(middle[up])
    canvas = Canvas(PIXELS, width, (float(middle[right]), height), _SKY)
    for line in np.arange(np.floor(middle[right] - width / 2), middle[right] + width / 2):
        canvas.box(np.array([line, height]), (0.004 * width, width), 0.0, _GRID, 0.5)
    if view == "side":
        canvas.box(np.array([middle[right], -width / 2]), (width, width / 2), 0.0, _GROUND)
    else:
        for line in np.arange(np.floor(middle[up] - width / 2), middle[up] + width / 2):
            canvas.box(np.array([middle[right], line]), (width, 0.004 * width), 0.0, _GRID, 0.5)
    if backdrop:
        backdrop(canvas)
    nearness = -data.geom_xpos[:, away] if view == "side" else data.geom_xpos[:, away]
    for i in sorted(bodies, key=lambda i: nearness[i]):
        capsule = model.geom_type[i] == mujoco.mjtGeom.mjGEOM_CAPSULE
        axis = data.geom_xmat[i].reshape(3, 3)[:, 2] * (model.geom_size[i, 1] if capsule else 0.0)
        begin, end = ((data.geom_xpos[i] + side * axis)[[right, up]] for side in (-1, 1))
        radius = float(model.geom_size[i, 0])
        red, green, blue = (float(part) for part in model.geom_rgba[i, :3])
        canvas.capsule(begin, end, radius + 0.003 * width, (red / 2, green / 2, blue / 2))
        canvas.capsule(begin, end, radius, (red, green, blue))
    return canvas.image()
