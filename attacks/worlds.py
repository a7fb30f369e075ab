"""Gymnasium environments: one that behaves, and one that does what the attack asks for.

They are named on the command line: env:attacks.worlds:Point and env:attacks.worlds:Hostile.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

ORDER = "CUPOLA_ATTACK"
"""The environment variable that says what `Hostile` does, as JSON: {"what": ..., "at": step}."""

NUMBERS = {
    "nan": np.nan, "inf": np.inf, "-inf": -np.inf, "1e30": 1e30, "-1e30": -1e30, "1e300": 1e300,
    "-0": -0.0, "subnormal": 5e-324, "float32 max": 3.4e38, "1e19": 1e19,
}  # fmt: skip


class Point(gymnasium.Env):
    """A point on a line; its cost is its distance. It can be saved and restored."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self) -> None:
        self.place, self.speed, self.steps = 0.0, 0.0, 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed = float(self.np_random.normal()), 0.0
        return self.observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        self.steps += 1
        self.speed = 0.8 * self.speed + 0.2 * float(action[0]) + 0.02 * self.np_random.normal()
        self.place += self.speed
        ended = abs(self.place) > 4
        return self.observe(), -abs(self.place - 1), ended, False, {"cost": abs(self.place)}

    def observe(self) -> Any:
        return np.array([self.place, self.speed])


class Hostile(Point):
    """Behaves until its step number ``at``, and then does one thing that it should not."""

    def __init__(self) -> None:
        super().__init__()
        order = json.loads(os.environ.get(ORDER, "{}"))
        self.what, self.at = order.get("what", ""), order.get("at", 0)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        answer = super().reset(seed=seed)
        if self.steps >= self.at and self.what == "reset":
            raise ValueError("no reset\ntoday")
        return answer if self.steps < self.at or self.what != "reset alone" else answer[0]

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.steps < self.at:
            return obs, reward, terminated, truncated, info
        where, _, name = self.what.partition(" ")
        if name in NUMBERS:
            bad = NUMBERS[name]
            obs = np.full(2, bad) if where == "obs" else obs
            reward = bad if where == "reward" else reward
            info = {"cost": bad} if where == "cost" else info
            return obs, reward, terminated, truncated, info
        return misbehave(self.what, (obs, reward, terminated, truncated, info))


MISDEEDS = {
    "obs long": lambda o, r, t, c, i: (np.zeros(3), r, t, c, i),
    "obs short": lambda o, r, t, c, i: (np.zeros(1), r, t, c, i),
    "obs 2d": lambda o, r, t, c, i: (o[None], r, t, c, i),
    "obs text": lambda o, r, t, c, i: ("here", r, t, c, i),
    "obs none": lambda o, r, t, c, i: (None, r, t, c, i),
    "obs complex": lambda o, r, t, c, i: (o * 1j, r, t, c, i),
    "obs objects": lambda o, r, t, c, i: (np.array([None, "x"], object), r, t, c, i),
    "obs integers": lambda o, r, t, c, i: (np.array([2**62, 1]), r, t, c, i),
    "reward array": lambda o, r, t, c, i: (o, np.array([r, r]), t, c, i),
    "reward one": lambda o, r, t, c, i: (o, np.array([[r]]), t, c, i),
    "reward text": lambda o, r, t, c, i: (o, "much", t, c, i),
    "reward none": lambda o, r, t, c, i: (o, None, t, c, i),
    "reward huge int": lambda o, r, t, c, i: (o, 10**400, t, c, i),
    "info none": lambda o, r, t, c, i: (o, r, t, c, None),
    "info list": lambda o, r, t, c, i: (o, r, t, c, [1]),
    "info empty": lambda o, r, t, c, i: (o, r, t, c, {}),
    "cost array": lambda o, r, t, c, i: (o, r, t, c, {"cost": np.zeros(2)}),
    "cost text": lambda o, r, t, c, i: (o, r, t, c, {"cost": "dear"}),
    "cost negative": lambda o, r, t, c, i: (o, r, t, c, {"cost": -1.0}),
    "costs renamed": lambda o, r, t, c, i: (o, r, t, c, {"costs": {"[/b]": 1.0}}),
    "ended array": lambda o, r, t, c, i: (o, r, np.array([True, False]), c, i),
    "ended none": lambda o, r, t, c, i: (o, r, None, None, i),
    "four values": lambda o, r, t, c, i: (o, r, t, i),
    "nothing": lambda o, r, t, c, i: None,
}
DEEDS = ("raise", "raise base", "exit", "exit 0", "abort", "kill", "hang", "interrupt", "recurse")


def misbehave(what: str, answer: tuple[Any, ...]) -> Any:
    if what in MISDEEDS:
        return MISDEEDS[what](*answer)
    if what == "raise":
        raise RuntimeError("two lines\nof [/b] text")
    if what == "raise base":
        raise BaseException("not an Exception")
    if what.startswith("exit"):
        sys.exit(0 if what.endswith("0") else 3)
    if what == "abort":
        os.abort()
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if what == "recurse":
        return misbehave(what, answer)
    while what == "hang":
        time.sleep(1)
    return answer
