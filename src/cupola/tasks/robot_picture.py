"""Pictures of a MuJoCo robot: by MuJoCo where it can draw here, otherwise flat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from cupola.tasks.canvas import ALARM, INK, PAPER, Canvas, Colour
from cupola.tasks.opengl import Camera, find_camera

if TYPE_CHECKING:
    import mujoco

_GROUND: Colour = (0.80, 0.78, 0.73)
_GRID: Colour = (0.91, 0.90, 0.865)
_STRIP: Colour = (0.55, 0.85, 0.6)
_CIRCLE: Colour = (0.15, 0.4, 0.9)

View = Literal["side", "top"]
_SPAN: dict[View, float] = {"side": 4.0, "top": 8.0}
_MAP = 0.36
"""Side of the map, of the shorter side of the picture."""


class Circle(NamedTuple):
    """What lies on the ground of the Circle tasks: a circle and the strip |x| <= strip."""

    radius: float
    strip: float


class Photographer:
    """Draws one kind of robot."""

    def __init__(self, model: mujoco.MjModel, view: View, circle: Circle | None) -> None:
        import mujoco  # slow to import, and tasks are listed without it

        self._model, self._view, self._circle = model, view, circle
        self._data = mujoco.MjData(model)
        self._cameras: dict[tuple[int, int], Camera | None] = {}

    def draw(self, qpos: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """A picture uint8 [H, W, 3] of the robot at ``qpos`` [nq], which stays in its middle."""
        import mujoco

        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)
        bodies = [i for i in range(self._model.ngeom) if self._model.geom_bodyid[i]]
        middle = self._data.subtree_com[1]  # which moves more smoothly than any body
        if size not in self._cameras:
            self._cameras[size] = find_camera(self._model, size)
        camera = self._cameras[size]
        if camera is None:
            picture = self._draw_flat(middle, bodies, size)
        else:
            picture = camera.shoot(self._data, middle, self._view == "top", self._circle)
        if self._circle is not None:
            add_map(picture, self._circle, self._data.qpos[:2])
        return picture

    def close(self) -> None:
        for camera in self._cameras.values():
            if camera is not None:
                camera.close()
        self._cameras.clear()

    def _draw_flat(
        self, middle: np.ndarray, bodies: list[int], size: tuple[int, int]
    ) -> np.ndarray:
        """Capsules and spheres, seen from the side or from above."""
        import mujoco

        model, data, side = self._model, self._data, self._view == "side"
        right, up, away = (0, 2, 1) if side else (0, 1, 2)
        span = _SPAN[self._view]
        height = span / 2 - 0.5 if side else float(middle[up])
        canvas = Canvas(size, span, (float(middle[right]), height))
        canvas.grid(_GRID, 0.004 * span)
        if side:
            far = 2 * max(canvas.half)
            canvas.box(np.array([middle[right], -far]), (far, far), 0.0, _GROUND)
        if self._circle is not None:
            draw_circle(canvas, self._circle)
        nearness = -data.geom_xpos[:, away] if side else data.geom_xpos[:, away]
        for i in sorted(bodies, key=lambda i: nearness[i]):
            long = model.geom_type[i] == mujoco.mjtGeom.mjGEOM_CAPSULE
            axis = data.geom_xmat[i].reshape(3, 3)[:, 2] * (model.geom_size[i, 1] if long else 0.0)
            begin, end = ((data.geom_xpos[i] + sign * axis)[[right, up]] for sign in (-1, 1))
            radius = float(model.geom_size[i, 0])
            red, green, blue = (float(part) for part in model.geom_rgba[i, :3])
            canvas.capsule(begin, end, radius + 0.003 * span, (red / 2, green / 2, blue / 2))
            canvas.capsule(begin, end, radius, (red, green, blue))
        return canvas.image()


def draw_circle(canvas: Canvas, circle: Circle) -> None:
    """The strip and the circle on the ground."""
    middle = np.zeros(2)
    canvas.box(middle, (circle.strip, 3 * circle.radius), 0.0, _STRIP, 0.5)
    canvas.ring(middle, circle.radius, 0.1, _CIRCLE)


def add_map(picture: np.ndarray, circle: Circle, place: np.ndarray) -> None:
    """Draw a map of the whole circle into the upper right corner of a picture, in place.

    Around the robot there is often nothing of the strip to be seen.
    """
    side = round(_MAP * min(picture.shape[:2]))
    span = 2.4 * max(circle.radius, float(np.abs(place).max()))
    canvas = Canvas((side, side), span, (0.0, 0.0), PAPER)
    draw_circle(canvas, circle)
    canvas.ring(np.zeros(2), circle.radius, 0.02 * span, _CIRCLE)
    colour = INK if abs(place[0]) <= circle.strip else ALARM
    canvas.disc(np.asarray(place), 0.035 * span, colour)
    inset = canvas.image()
    inset[[0, -1]] = inset[:, [0, -1]] = 120
    picture[:side, -side:] = inset
