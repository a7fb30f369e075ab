"""One Safety Gym environment seen from above."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cupola.tasks.canvas import Canvas, Colour
from cupola.tasks.safety_gym.lidar import BINS
from cupola.tasks.safety_gym.scenes import (
    BUTTON_SIZE,
    GREMLIN_SIZE,
    GREMLIN_TRAVEL,
    HAZARD_SIZE,
    VASE_SIZE,
    Scene,
)

_GRID: Colour = (0.88, 0.87, 0.84)
_BODY: Colour = (0.74, 0.05, 0.18)
_TRIM: Colour = (0.0, 0.15, 0.4)
COLOURS: dict[str, Colour] = {
    "goal": (0.15, 0.72, 0.25),
    "hazards": (0.25, 0.35, 0.95),
    "vases": (0.0, 0.72, 0.75),
    "gremlins": (0.55, 0.15, 0.85),
    "buttons": (1.0, 0.55, 0.05),
}
# Rings of readings around the robot, from the innermost outwards.
_FIRST_RING, _RING = 0.24, 0.05


class View(NamedTuple):
    """What a picture of one environment shows."""

    agent: np.ndarray  # [2]
    heading: float
    objects: np.ndarray  # [M, 2] in the scene's order
    angles: np.ndarray  # [V or G] of the vases or gremlins
    centres: np.ndarray  # [G, 2] of the gremlins' circles
    readings: np.ndarray  # [L, 16] of the lidars


def draw_scene(scene: Scene, view: View, pixels: tuple[int, int]) -> np.ndarray:
    """A picture uint8 [H, W, 3]."""
    agent, heading, objects, angles, centres, readings = view
    far = max(scene.extent + 0.5, np.abs(agent).max() + 0.5)
    canvas = Canvas(pixels, 2 * far, (0.0, 0.0))
    canvas.grid(_GRID, 0.004)
    at = scene.slices
    for place in objects[at.get("hazards", slice(0, 0))]:
        canvas.disc(place, HAZARD_SIZE, COLOURS["hazards"], 0.35)
        canvas.ring(place, HAZARD_SIZE, 0.012, COLOURS["hazards"], 0.8)
    for place in objects[at["goal"]]:
        canvas.disc(place, scene.goal_size, COLOURS["goal"], 0.45)
        canvas.ring(place, scene.goal_size, 0.015, COLOURS["goal"])
    for place in objects[at.get("buttons", slice(0, 0))]:
        canvas.disc(place, BUTTON_SIZE, COLOURS["buttons"])
    for centre in centres:
        canvas.ring(centre, GREMLIN_TRAVEL, 0.01, COLOURS["gremlins"], 0.35)
    for kind, size in (("vases", VASE_SIZE), ("gremlins", GREMLIN_SIZE)):
        for place, angle in zip(objects[at.get(kind, slice(0, 0))], angles, strict=False):
            canvas.box(place, (size, size), float(angle), COLOURS[kind])
    _draw_robot(canvas, scene, agent, heading)
    for ring, (kind, values) in enumerate(zip(scene.kinds, readings, strict=True)):
        inner = _FIRST_RING + _RING * ring
        for i, value in enumerate(values):
            angle = heading + 2 * np.pi * i / BINS
            ends = (angle + 0.02, angle + 2 * np.pi / BINS - 0.02)
            radii = (inner, inner + 0.8 * _RING)
            canvas.wedge(agent, radii, ends, COLOURS[kind], 0.1 + 0.9 * float(value))
    return canvas.image()


def _draw_robot(canvas: Canvas, scene: Scene, agent: np.ndarray, heading: float) -> None:
    def at(x: float, y: float) -> np.ndarray:
        cos, sin = np.cos(heading), np.sin(heading)
        return agent + np.array([cos * x - sin * y, sin * x + cos * y])

    if scene.agent == "Point":
        canvas.disc(agent, 0.1, _BODY)
        canvas.box(at(0.1, 0.0), (0.05, 0.05), heading, _TRIM)
        return
    for side in (-1, 1):
        canvas.box(at(side * 0.13, 0.1), (0.025, 0.05), heading, (0.2, 0.2, 0.2))
    canvas.box(agent, (0.1, 0.1), heading, _BODY)
    canvas.box(at(0.0, 0.125), (0.01, 0.025), heading, _TRIM)
    canvas.box(at(0.0, 0.15), (0.1, 0.01), heading, _TRIM)
    canvas.box(at(0.0, -0.13), (0.05, 0.03), heading, _TRIM)
    canvas.box(at(0.0, -0.165), (0.05, 0.01), heading, _TRIM)
