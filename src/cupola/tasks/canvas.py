"""Pictures in plain numpy: flat shapes with smooth edges, no screen and no graphics library."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Colour = tuple[float, float, float]
"""Red, green, blue, each in [0, 1]."""


INK: Colour = (0.15, 0.15, 0.18)
PAPER: Colour = (0.96, 0.95, 0.92)
ALARM: Colour = (0.85, 0.1, 0.1)


class Canvas:
    """A picture of the plane around ``centre``; x to the right, y upwards.

    ``size`` is its width and height in pixels, and the shorter side shows ``span`` metres. Every
    shape is given by its signed distance in metres: negative inside, positive outside.
    """

    def __init__(
        self,
        size: tuple[int, int],
        span: float,
        centre: tuple[float, float],
        background: Colour = PAPER,
    ) -> None:
        self._size, self._scale = size, min(size) / span
        self.half = (size[0] / self._scale / 2, size[1] / self._scale / 2)
        """Half of the metres that are shown, along x and y."""
        self._left, self._top = centre[0] - self.half[0], centre[1] + self.half[1]
        self._paint = np.empty((size[1], size[0], 3))
        self._paint[:] = background
        self._texts: list[tuple[tuple[float, float], str, Colour, float]] = []

    def grid(self, colour: Colour, thickness: float) -> None:
        """A line at every whole metre."""
        middle = (self._left + self.half[0], self._top - self.half[1])
        for axis in (0, 1):
            low, high = middle[axis] - self.half[axis], middle[axis] + self.half[axis]
            for line in np.arange(np.floor(low), high + 1):
                at, half = np.array(middle), [thickness, thickness]
                at[axis], half[1 - axis] = line, 2 * self.half[1 - axis]
                self.box(at, (half[0], half[1]), 0.0, colour)

    def text(self, centre: np.ndarray, text: str, colour: Colour, height: float) -> None:
        """A word above all shapes, its letters ``height`` metres high."""
        at = ((centre[0] - self._left) * self._scale, (self._top - centre[1]) * self._scale)
        self._texts.append((at, text, colour, height * self._scale))

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
            slice(max(0, int(begin) - 1), max(0, min(pixels, int(end) + 2)))
            for (begin, end), pixels in zip(ends, self._size, strict=True)
        )
        x = self._left + (np.arange(columns.start, columns.stop) + 0.5) / self._scale
        y = self._top - (np.arange(rows.start, rows.stop) + 0.5) / self._scale
        cover = 0.5 - outside(x[None, :], y[:, None]) * self._scale
        share = opacity * np.clip(cover, 0.0, 1.0)[..., None]
        patch = self._paint[rows, columns]
        patch += share * (np.asarray(colour) - patch)

    def image(self) -> np.ndarray:
        """The picture, uint8 [H, W, 3]."""
        picture = np.rint(255 * np.clip(self._paint, 0.0, 1.0)).astype(np.uint8)
        for at, text, colour, height in self._texts:
            picture = write(picture, at, text, colour, height, centred=True)
        return picture


def write(
    picture: np.ndarray,
    at: tuple[float, float],
    text: str,
    colour: Colour,
    height: float,
    centred: bool = False,
) -> np.ndarray:
    """A picture with a text in it, its upper left corner or its middle ``at`` x, y pixels."""
    from PIL import Image, ImageDraw, ImageFont  # slow to import, and most pictures have none

    sheet = Image.fromarray(picture)
    font = ImageFont.load_default(size=max(6.0, height))
    red, green, blue = (round(255 * part) for part in colour)
    anchor = "mm" if centred else "la"
    ImageDraw.Draw(sheet).text(at, text, fill=(red, green, blue), font=font, anchor=anchor)
    return np.asarray(sheet)


def fit(picture: np.ndarray, width: int, height: int) -> np.ndarray:
    """A picture of any size in the middle of one of this size."""
    from PIL import Image

    scale = min(width / picture.shape[1], height / picture.shape[0])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    sheet = Image.new("RGB", (width, height), (0, 0, 0))
    small = Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS)
    sheet.paste(small, ((width - size[0]) // 2, (height - size[1]) // 2))
    return np.asarray(sheet)


def caption(picture: np.ndarray, lines: list[tuple[str, Colour]]) -> np.ndarray:
    """A picture with lines of text on a light ground in its upper left corner."""
    from PIL import ImageFont

    if not lines:
        return picture
    height = max(9, round(min(picture.shape[:2]) / 28))
    font = ImageFont.load_default(size=height)
    width = int(max(font.getlength(text) for text, _ in lines)) + height
    pace = round(1.3 * height)
    picture = picture.copy()
    ground = picture[: pace * len(lines) + height // 2, :width]
    ground[:] = (0.25 * ground + 0.75 * 255).astype(np.uint8)
    for i, (text, colour) in enumerate(lines):
        picture = write(picture, (height / 2, height / 4 + pace * i), text, colour, height)
    return picture
