"""MuJoCo's own renderer without a screen, by EGL or OSMesa where one of them works.

A graphics driver that does not work may end the process. So the first picture is drawn in another
one. The environment variable MUJOCO_GL chooses as it does in MuJoCo: egl, osmesa, or disable.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import os
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mujoco

    from cupola.tasks.robot_picture import Circle

PLATFORMS = ("egl", "osmesa")
PATIENCE = 60.0
"""Seconds that a trial may take."""
_TRIAL = """
import sys
sys.path[:] = {path!r}
import mujoco, numpy
from cupola.tasks.opengl import Camera
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><light pos='0 0 3'/><geom size='1'/></worldbody></mujoco>"
)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
camera = Camera({platform!r}, model, (48, 48))
sys.exit(0 if camera.shoot(data, numpy.zeros(3), True, None).std() > 5 else 1)
"""
_SEGMENTS = 180


@cache
def working_platform() -> str | None:
    """The platform that draws here, tried once in another process; None where there is none."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked and asked not in PLATFORMS:
        return None
    for platform in (asked,) if asked else PLATFORMS:
        program = _TRIAL.format(path=sys.path, platform=platform)
        environment = {**os.environ, "MUJOCO_GL": platform}
        environment.pop("PYOPENGL_PLATFORM", None)
        try:
            trial = subprocess.run(
                [sys.executable, "-P", "-c", program],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if trial.returncode == 0:
            return platform
    return None


def find_camera(model: mujoco.MjModel, size: tuple[int, int]) -> Camera | None:
    """A camera for pictures of ``size``; None where MuJoCo cannot draw."""
    platform = working_platform()
    if platform is None:
        return None
    try:
        return Camera(platform, model, size)
    except Exception:  # whatever a driver says: there is a drawing without it
        return None


def _unroll_floor(model: mujoco.MjModel) -> None:
    """Let the floor have no end in pictures, as it has none for the physics."""
    import mujoco

    for i in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        side, material = 2 * model.geom_size[i, :2], model.geom_matid[i]
        if material >= 0 and side.min() > 0:
            model.mat_texrepeat[material] /= side  # then it counts for a metre
            model.geom_size[i, :2] = 0


class Camera:
    """Takes pictures of one model and one size."""

    def __init__(self, platform: str, model: mujoco.MjModel, size: tuple[int, int]) -> None:
        import mujoco

        # Drawn twice as large and without shadows: without a graphics card that is quicker than
        # the smooth edges that OpenGL itself would make.
        self._size = (2 * size[0], 2 * size[1])
        self._gl: Any = importlib.import_module(f"mujoco.{platform}").GLContext(*self._size)
        self._gl.make_current()
        model = copy.copy(model)
        model.vis.global_.offwidth, model.vis.global_.offheight = self._size
        model.vis.quality.offsamples = 0
        model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.45, 0.55
        _unroll_floor(model)
        self._model = model
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 2 * _SEGMENTS)
        for flag in (mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_SHADOW):
            self._scene.flags[flag] = 0
        self._camera, self._option = mujoco.MjvCamera(), mujoco.MjvOption()

    def shoot(
        self, data: mujoco.MjData, middle: np.ndarray, above: bool, circle: Circle | None
    ) -> np.ndarray:
        """A picture uint8 [H, W, 3] towards ``middle`` [3], from ``above`` or from the side."""
        import mujoco

        self._gl.make_current()
        camera = self._camera
        camera.lookat[:] = middle if above else (middle[0], middle[1], 0.8)
        camera.azimuth, camera.elevation = 90, -50 if above else -8
        camera.distance = 6.5 if above else 3.6
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, camera, everything, self._scene
        )
        if circle is not None:
            self._add_circle(circle)
        rectangle = mujoco.MjrRect(0, 0, *self._size)
        mujoco.mjr_render(rectangle, self._scene, self._context)
        width, height = self._size
        picture = np.empty((height, width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, rectangle, self._context)
        blocks = picture[::-1].reshape(height // 2, 2, width // 2, 2, 3)
        return blocks.mean(axis=(1, 3)).astype(np.uint8)

    def _add_circle(self, circle: Circle) -> None:
        """Put the strip and the circle on the ground."""
        import mujoco

        strip = np.array([circle.strip, 3 * circle.radius, 0.004])
        self._add_geom(mujoco.mjtGeom.mjGEOM_BOX, strip, (0.3, 0.9, 0.4, 0.35))
        turns = np.linspace(0, 2 * np.pi, _SEGMENTS + 1)
        points = circle.radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
        for begin, end in itertools.pairwise(points):
            geom = self._add_geom(mujoco.mjtGeom.mjGEOM_CAPSULE, np.ones(3), (0.15, 0.4, 0.9, 1.0))
            ends = (np.array([*point, 0.0]) for point in (begin, end))
            mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_CAPSULE, 0.03, *ends)

    def _add_geom(self, kind: int, size: np.ndarray, colour: tuple[float, ...]) -> Any:
        import mujoco

        geom = self._scene.geoms[self._scene.ngeom]
        rgba = np.array(colour, np.float32)
        mujoco.mjv_initGeom(geom, kind, size, np.zeros(3), np.eye(3).reshape(-1), rgba)
        self._scene.ngeom += 1
        return geom

    def close(self) -> None:
        self._gl.make_current()
        self._context.free()
        self._gl.free()
