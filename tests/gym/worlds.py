"""Environments as users write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple


class Drift(gymnasium.Env):
    """A point on a line: a Dict observation, two costs in `info`, and episodes that never end."""

    observation_space = Dict(
        place=Box(-np.inf, np.inf, (2,), np.float64),
        mode=Discrete(3),
        parts=Tuple((Box(0, 1, (1, 2), np.float32), MultiBinary(2))),
    )
    action_space = Box(np.array([0, -3], np.float32), np.array([10, 3], np.float32))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.seen = self.np_random.normal(), 0.0, []
        return self._observe(), {}

    def step(self, action):
        self.seen.append(action.copy())
        self.speed = 0.9 * self.speed + 0.1 * float(action[1]) + 0.01 * self.np_random.normal()
        self.place += self.speed
        costs = {"far": abs(self.place), "fast": self.speed**2}
        return self._observe(), -abs(self.place - 1), False, False, {"costs": costs}

    def _observe(self):
        mode = int(self.place > 0) + int(self.place > 1)
        parts = (np.full((1, 2), 0.25, np.float32), np.array([0, 1], np.int8))
        return {"place": np.array([self.place, self.speed]), "mode": mode, "parts": parts}


class Place(NamedTuple):
    x: float
    trace: tuple


@dataclass(frozen=True)
class Wind:
    strength: float
    past: np.ndarray


class Records(gymnasium.Env):
    """Its state is a named tuple and a frozen dataclass, which are replaced in every step."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = Place(self.np_random.normal(), ())
        self.wind = Wind(0.0, np.zeros(3))
        return self._observe(), {}

    def step(self, action):
        past = np.append(self.wind.past[1:], self.np_random.normal())
        self.wind = replace(self.wind, strength=float(past.sum()), past=past)
        x = self.place.x + action + self.wind.strength
        self.place = Place(x, (*self.place.trace[-2:], x))
        return self._observe(), sum(self.place.trace), False, False, {"cost": 0.0}

    def _observe(self):
        return np.array([self.place.x, self.wind.strength])


class Engine:
    """State that an environment keeps out of sight."""

    def __init__(self):
        self.angle = 0.0


class Opaque(gymnasium.Env):
    """Nobody knows how to save an `Engine`. Ends after 10 steps; its cost is one number."""

    observation_space = Box(-1, 1, (1,), np.float64)
    action_space = Discrete(2, start=5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.engine, self.steps = Engine(), 0
        self.engine.angle = self.np_random.uniform(-1, 1)
        return np.array([np.sin(self.engine.angle)]), {}

    def step(self, action):
        assert action in (5, 6)
        self.steps += 1
        self.engine.angle += 0.1 * (action - 5)
        obs = np.array([np.sin(self.engine.angle)])
        return obs, float(obs[0]), self.steps == 10, False, {"cost": float(action == 6)}


class SavesItself(Opaque):
    def save_state(self):
        generator = self.np_random.bit_generator.state
        return {"angle": np.array([self.engine.angle]), "steps": self.steps, "random": generator}

    def restore_state(self, state):
        self.engine.angle, self.steps = float(state["angle"][0]), state["steps"]
        self.np_random.bit_generator.state = state["random"]


class SixValues:
    """Not even a `gymnasium.Env`: a step gives the cost as its third value."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        self.at = 0
        return np.zeros(1), {}

    def step(self, action):
        self.at += 1
        return np.array([float(self.at)]), 1.0, 0.5 * action, self.at == 3, False, {}

    def close(self):
        pass


class Menu(gymnasium.Env):
    """One choice an episode: rewards 1, 0.6, 0 at costs 1, 0.2, 0."""

    observation_space = Box(-1, 1, (1,), np.float64)
    action_space = Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        info = {"cost": (1.0, 0.2, 0.0)[action]}
        return np.zeros(1), (1.0, 0.6, 0.0)[action], True, False, info


class Fades(Opaque):
    """Its observations become NaN in the second episode; it cannot take an action that is NaN."""

    action_space = Box(-1, 1, (1,))

    def step(self, action):
        assert np.isfinite(action).all()
        obs, *rest = super().step(5)
        self.taken = getattr(self, "taken", 0) + 1
        return obs * (np.nan if self.taken > 30 else 1.0), *rest


class Breaks(Opaque):
    """Fails in the 50th step of its life."""

    life = 0

    def step(self, action):
        self.life += 1
        if self.life == 50:
            raise RuntimeError("the gearbox is on fire")
        return super().step(action)


class Unbounded(Opaque):
    action_space = Box(-np.inf, np.inf, (2,), np.float32)


class Binary(Opaque):
    action_space = MultiBinary(3)


class Prose(Opaque):
    observation_space = Dict(story=Text(10))


class Shapeless(Opaque):
    """Its observations do not have the shape that its space promises."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3), {}


def speed(next_obs):
    """A cost for Pendulum: how fast it turns."""
    return abs(float(next_obs[2]))


def fast(next_obs):
    """Another one: it turns faster than 3."""
    return float(abs(next_obs[2]) > 3)


def lean(next_obs):
    """A cost for CartPole: the pole leans to the right."""
    return {"lean": float(next_obs[2] > 0.0)}


def two(obs):
    return np.zeros(2)


def word(obs):
    return "much"


def nan(obs):
    return {"cost": float("nan")}


def boom(obs, info):
    raise ValueError("no such thing")


def greedy(state, obs):
    return 0.0
