"""Frames of several episodes side by side, in the real time of the task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cupola.tasks.base import Task
from cupola.tasks.canvas import ALARM, INK, Colour, caption, write
from cupola.types import Step

MAX_EPISODES = 4
"""Side by side; later ones are not shown."""
MAX_SECONDS = 20.0
"""Of the task's time; the rest of longer episodes is not shown."""
MAX_FRAMES = 250
MAX_RATE = 25.0
"""Frames a second."""
HOLD = 1.0
"""Seconds for which the last frame stays."""
_SIDES = {1: 400, 2: 320, 3: 260, 4: 240}
"""Pixels of a picture's side, by the number of pictures."""
_LINE, _BAR, _FRAME = 15, 8, 4
_WHITE: Colour = (1.0, 1.0, 1.0)
_GREY: Colour = (0.45, 0.45, 0.48)


class Limited(NamedTuple):
    """A cost as a film shows it."""

    name: str
    limit: float | None
    discounted: bool

    def allowance(self, gamma: float, steps: int) -> float:
        """The cost of a step that, in all ``steps``, would use the limit up exactly.

        It is limit / sum of gamma^t, or limit / steps. Steps beyond it are marked: those in which
        a cost of 0 or 1 occurs, those in which a robot is faster than it could always be.
        """
        if self.limit is None:
            return math.inf
        if not self.discounted or gamma == 1.0:
            return self.limit / steps
        return self.limit * (1 - gamma) / (1 - gamma**steps)


class Film:
    """Watches environments and keeps frames of the first few of them.

    A frame shows for each episode its time, its return, each cost so far against its limit, a bar
    on which the steps that violate a limit are red, and a red frame around the picture where one
    was taken just now.
    """

    def __init__(
        self,
        limits: Mapping[str, float],
        gamma: float,
        episodes: int = MAX_EPISODES,
        size: tuple[int, int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.frames: list[np.ndarray] = []
        self.times: list[float] = []
        """Seconds of the task at which a frame is shown."""
        self._limits, self._gamma, self._progress = limits, gamma, progress
        self._count = min(episodes, MAX_EPISODES)
        self._size = size or (_SIDES[self._count], _SIDES[self._count])
        self._episodes: list[_Episode] = []
        self._steps = self._stride = self._horizon = self._fps = 0
        self.complete = False
        """Whether nothing that comes can add to it."""

    @property
    def end(self) -> float:
        """The time at which the film ends."""
        return self.times[-1] + HOLD if self.times else 0.0

    def watch(self, envs: Task, running: np.ndarray, step: Step) -> None:
        """Take a step of all environments into account, of which ``running`` [N] counted."""
        if self.complete:
            return
        if not self._episodes:
            self._begin(envs)
        self._steps += 1
        for i, episode in enumerate(self._episodes):
            if running[i]:
                episode.take(step, i)
        over = not any(episode.running for episode in self._episodes)
        self.complete = over or self._steps >= self._horizon
        ended = any(episode.just_ended for episode in self._episodes)
        if ended or self.complete or (self._steps - 1) % self._stride == 0:
            self._draw(envs)

    def _begin(self, envs: Task) -> None:
        count, limit, fps = min(self._count, envs.num_envs), envs.spec.time_limit, envs.fps
        self._fps = fps
        self._horizon = max(1, min(limit, round(MAX_SECONDS * fps)))
        rate = min(MAX_RATE, MAX_FRAMES * fps / self._horizon)
        self._stride = max(1, math.ceil(fps / rate - 1e-9))
        discounted = {cost.name: cost.discounted for cost in envs.spec.costs}
        costs = tuple(
            Limited(name, self._limits.get(name), discounted[name]) for name in envs.costs
        )
        allowances = np.array([cost.allowance(self._gamma, limit) for cost in costs])
        self._episodes = [
            _Episode(costs, allowances, self._gamma, self._horizon) for _ in range(count)
        ]

    def _draw(self, envs: Task) -> None:
        tiles = []
        for i, episode in enumerate(self._episodes):
            if episode.running or episode.just_ended or episode.picture is None:
                episode.picture = envs.render(i, *self._size, end=episode.just_ended)
                episode.gauges = [(text, INK) for text in envs.gauges(i)]
            tiles.append(episode.tile(i + 1, self._fps))
            episode.shown()
        height = max(len(tile) for tile in tiles)
        height += height % 2  # as many encoders want it
        padded = [np.pad(tile, ((0, height - len(tile)), (0, 0), (0, 0))) for tile in tiles]
        frame = np.concatenate(padded, axis=1)
        self.frames.append(frame[:, : frame.shape[1] // 2 * 2])
        self.times.append((self._steps - 1) / self._fps)
        if self._progress:
            self._progress(self._steps, self._horizon)


class _Episode:
    """What a film knows of one episode."""

    def __init__(
        self, costs: tuple[Limited, ...], allowances: np.ndarray, gamma: float, horizon: int
    ) -> None:
        self._costs, self._allowances, self._gamma = costs, allowances, gamma
        self._sums = np.zeros(len(costs))
        self._weights = np.ones(len(costs))
        self._discounts = np.array([gamma if cost.discounted else 1.0 for cost in costs])
        self._marks = np.zeros(horizon, bool)
        self._return, self._steps, self._violates = 0.0, 0, False
        self._ending = ""
        self.running, self.just_ended = True, False
        self.picture: np.ndarray | None = None
        self.gauges: list[tuple[str, Colour]] = []

    def take(self, step: Step, i: int) -> None:
        """One step of environment ``i``."""
        self._return += float(step.reward[i])
        self._sums += self._weights * step.costs[i]
        self._weights *= self._discounts
        marked = bool((step.costs[i] > self._allowances).any())
        self._marks[self._steps] = marked
        self._violates |= marked
        self._steps += 1
        if step.terminated[i] or step.truncated[i]:
            self._ending = "ended" if step.terminated[i] else "time is up"
            self.running, self.just_ended = False, True

    def shown(self) -> None:
        self._violates = self.just_ended = False

    def tile(self, number: int, fps: int) -> np.ndarray:
        """Texts, picture and bar of the episode, uint8 [H, W, 3]."""
        assert self.picture is not None
        width = self.picture.shape[1]
        head = f"episode {number}   {self._steps / fps:.1f} s"
        lines: list[tuple[str, Colour]] = [
            (f"{head}   {self._ending}" if self._ending else head, _GREY),
            (f"return {_number(self._return)}", INK),
        ]
        for cost, total in zip(self._costs, self._sums, strict=True):
            over = cost.limit is not None and total > cost.limit
            name = cost.name if cost.name == "cost" else f"cost {cost.name}"
            limit = "" if cost.limit is None else f" / {_number(cost.limit)}"
            kind = ", discounted" if cost.discounted else ""
            lines.append((f"{name} {_number(total)}{limit}{kind}", ALARM if over else INK))
        header = _block(_LINE * len(lines) + 6, width, _WHITE)
        for row, (text, colour) in enumerate(lines):
            header = write(header, (6, 3 + _LINE * row), text, colour, 12)
        picture = self.picture.copy()
        if self._violates:
            for edge in (np.s_[:_FRAME], np.s_[-_FRAME:], np.s_[:, :_FRAME], np.s_[:, -_FRAME:]):
                picture[edge] = _bytes(ALARM)
        picture = caption(picture, self.gauges)
        if not (self._violates or self.running):
            picture = (0.6 * picture + 0.4 * 255).astype(np.uint8)
        return np.concatenate([header, picture, self._bar(width)])

    def _bar(self, width: int) -> np.ndarray:
        """The time of the film from left to right; red where a step violates a limit."""
        bar = _block(_BAR, width, (0.9, 0.9, 0.9))
        ends = np.arange(width + 1) * len(self._marks) // width
        for column, (begin, end) in enumerate(pairwise(ends)):
            if begin < self._steps:
                marked = self._marks[begin : max(end, begin + 1)].any()
                bar[:, column] = _bytes(ALARM if marked else _GREY)
        return bar


def _number(value: float) -> str:
    """With about three digits, which stand still while it changes."""
    return (
        f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    )


def _bytes(colour: Colour) -> np.ndarray:
    return np.rint(255 * np.array(colour)).astype(np.uint8)


def _block(height: int, width: int, colour: Colour) -> np.ndarray:
    return np.broadcast_to(_bytes(colour), (height, width, 3)).copy()
