"""Pictures of MuJoCo models without a screen."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from cupola.errors import CupolaError

if TYPE_CHECKING:
    import mujoco

WIDTH, HEIGHT = 480, 480
_BACKENDS = ("egl", "osmesa", "glfw")


def graphics_context(width: int, height: int) -> Any:
    """An OpenGL context: of the kind that MUJOCO_GL names, or of the first kind that works."""
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    for backend in (asked,) if asked in _BACKENDS else _BACKENDS:
        try:
            context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
            context.make_current()
        except Exception:  # each library fails in its own way
            continue
        return context
    raise CupolaError(
        "pictures need OpenGL that works without a screen: install EGL (Debian: libegl1) and set"
        " MUJOCO_GL=egl, or install OSMesa (Debian: libosmesa6) and set MUJOCO_GL=osmesa."
    )


class Painter:
    """Draws states of one model, seen by one of its cameras or from an angle."""

    def __init__(self, model: mujoco.MjModel, camera: str = "") -> None:
        import mujoco

        self._context = graphics_context(WIDTH, HEIGHT)
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, WIDTH)
        model.vis.global_.offheight = max(model.vis.global_.offheight, HEIGHT)
        self._model, self._camera = model, mujoco.MjvCamera()
        self._option = mujoco.MjvOption()
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._canvas = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._canvas)
        if camera:
            self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._camera.fixedcamid = model.camera(camera).id
        else:
            mujoco.mjv_defaultFreeCamera(model, self._camera)

    def draw(self, data: mujoco.MjData) -> np.ndarray:
        """The picture of a state whose positions are up to date, uint8 [H, W, 3]."""
        import mujoco

        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(
            self._model, data, self._option, None, self._camera, everything, self._scene
        )
        area = mujoco.MjrRect(0, 0, WIDTH, HEIGHT)
        mujoco.mjr_render(area, self._scene, self._canvas)
        picture = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, area, self._canvas)
        return picture[::-1].copy()

    def close(self) -> None:
        self._canvas.free()
        self._context.free()
