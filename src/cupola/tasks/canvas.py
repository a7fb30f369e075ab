"""Pictures in plain numpy: flat shapes with smooth edges, no screen and no graphics library."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Colour = tuple[float, float, float]
"""Red, green, blue, each in [0, 1]."""


class Canvas:
    """A square picture of the plane around ``centre``; x to the right, y upwards.

    Every shape is given by its signed distance in metres: negative inside, positive outside.
    """

    def __init__(
        self, pixels: int, width: float, centre: tuple[float, float], background: Colour
    ) -> None:
        self._scale = pixels / width
        self._left, self._top = centre[0] - width / 2, centre[1] + width / 2
        self._pixels = pixels
        self._paint = np.empty((pixels, pixels, 3))
        self._paint[:] = background

    def disc(self, centre: np.ndarray, radius: float, colour: Colour, opacity: float = 1.0) -> None:
        def outside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.hypot(x - centre[0], y - centre[1]) - radius

        self._fill(outside, centre - radius, centre + radius, colour, opacity)

    def ring(
        self, centre: np.ndarray, radius: float, width: float, colour: Colour, opacity: float = 1.0
    ) -> None:
        def outside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.abs(np.hypot(x - centre[0], y - centre[1]) - radius) - width / 2

        reach = radius + width
        self._fill(outside, centre - reach, centre + reach, colour, opacity)

    def box(
        self,
        centre: np.ndarray,
        half: tuple[float, float],
        angle: float,
        colour: Colour,
        opacity: float = 1.0,
    ) -> None:
        """A rectangle with half sides ``half``, turned by ``angle``."""
        cos, sin = np.cos(angle), np.sin(angle)

        def outside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            dx, dy = x - centre[0], y - centre[1]
            along, across = np.abs(cos * dx + sin * dy), np.abs(cos * dy - sin * dx)
            return np.maximum(along - half[0], across - half[1])

        reach = np.abs([[cos, sin], [sin, cos]]) @ half
        self._fill(outside, centre - reach, centre + reach, colour, opacity)

    def capsule(
        self,
        begin: np.ndarray,
        end: np.ndarray,
        radius: float,
        colour: Colour,
        opacity: float = 1.0,
    ) -> None:
        """Everything within ``radius`` of the line from ``begin`` to ``end``."""
        along = end - begin
        length = max(float(along @ along), 1e-12)

        def outside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            dx, dy = x - begin[0], y - begin[1]
            share = np.clip((dx * along[0] + dy * along[1]) / length, 0.0, 1.0)
            return np.hypot(dx - share * along[0], dy - share * along[1]) - radius

        low, high = np.minimum(begin, end) - radius, np.maximum(begin, end) + radius
        self._fill(outside, low, high, colour, opacity)

    def wedge(
        self,
        centre: np.ndarray,
        radii: tuple[float, float],
        angles: tuple[float, float],
        colour: Colour,
        opacity: float = 1.0,
    ) -> None:
        """A piece of a ring between two radii and two angles up to a quarter turn apart."""
        middle, half = (angles[0] + angles[1]) / 2, (angles[1] - angles[0]) / 2

        def outside(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            dx, dy = x - centre[0], y - centre[1]
            distance = np.hypot(dx, dy)
            off = (np.arctan2(dy, dx) - middle + np.pi) % (2 * np.pi) - np.pi
            sideways = distance * np.sin(np.clip(np.abs(off) - half, -np.pi / 2, np.pi / 2))
            return np.maximum(np.maximum(radii[0] - distance, distance - radii[1]), sideways)

        rays = np.array([[np.cos(a), np.sin(a)] for a in (angles[0], middle, angles[1])])
        corners = centre + np.concatenate([radii[0] * rays, radii[1] / np.cos(half) * rays])
        self._fill(outside, corners.min(axis=0), corners.max(axis=0), colour, opacity)

    def _fill(
        self,
        outside: Callable[[np.ndarray, np.ndarray], np.ndarray],
        low: np.ndarray,
        high: np.ndarray,
        colour: Colour,
        opacity: float,
    ) -> None:
        """Blend a shape in that lies between the corners ``low`` [2] and ``high`` [2]."""
        ends = (
            ((low[0] - self._left) * self._scale, (high[0] - self._left) * self._scale),
            ((self._top - high[1]) * self._scale, (self._top - low[1]) * self._scale),
        )
        columns, rows = (
            slice(max(0, int(begin) - 1), max(0, min(self._pixels, int(end) + 2)))
            for begin, end in ends
        )
        x = self._left + (np.arange(columns.start, columns.stop) + 0.5) / self._scale
        y = self._top - (np.arange(rows.start, rows.stop) + 0.5) / self._scale
        cover = 0.5 - outside(x[None, :], y[:, None]) * self._scale
        share = opacity * np.clip(cover, 0.0, 1.0)[..., None]
        patch = self._paint[rows, columns]
        patch += share * (np.asarray(colour) - patch)

    def image(self) -> np.ndarray:
        """The picture, [pixels, pixels, 3] uint8."""
        return np.rint(255 * np.clip(self._paint, 0.0, 1.0)).astype(np.uint8)
