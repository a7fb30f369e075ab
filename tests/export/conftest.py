"""Policies of every kind, as trainings leave them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import cupola

SMALL = {
    "iterations": 2,
    "batch_size": 64,
    "num_envs": 2,
    "minibatch_size": 32,
    "epochs": 2,
    "hidden": (16, 16),
    "threads": 1,
}


class Arm(gymnasium.Env):
    """Nested observations of every kind, and a Box action of shape [2, 2] with uneven bounds."""

    observation_space = Dict(
        place=Box(-np.inf, np.inf, (2,), np.float64),
        mode=Discrete(3, start=-1),
        parts=Tuple((Box(0, 1, (2, 3), np.float32), MultiBinary(2))),
        dials=MultiDiscrete([2, 4]),
    )
    action_space = Box(
        np.array([[-1, 0], [10, -300]], np.float32), np.array([[1, 5], [11, 200]], np.float32)
    )

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        assert action in self.action_space
        obs = self._observe()
        return obs, float(obs["mode"]), False, self.np_random.random() < 0.1, {"cost": 1.0}

    def _observe(self):
        rng = self.np_random
        return {
            "place": rng.normal(size=2),
            "mode": rng.integers(-1, 2),
            "parts": (rng.random((2, 3), np.float32), rng.integers(0, 2, 2, np.int8)),
            "dials": rng.integers(0, [2, 4]),
        }


class Menu(gymnasium.Env):
    """A choice of three, counted from 5, in a state that is a choice as well."""

    observation_space = Discrete(4, start=2)
    action_space = Discrete(3, start=5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(2, 6))
        return self.state, {}

    def step(self, action):
        reward = float(action - 5 == self.state % 3)
        self.state = int(self.np_random.integers(2, 6))
        return self.state, reward, False, self.np_random.random() < 0.1, {"cost": 0.0}


TRAININGS: dict[str, dict[str, object]] = {
    "robot": {"task": "HumanoidCircle"},  # it has columns that never change
    "arm": {"env": Arm, "limits": 5.0, "max_episode_steps": 20},
    "menu": {"env": Menu, "limits": 5.0, "normalise_obs": False, "last_layer_scale": 3.0}
    | {"max_episode_steps": 20},
}


@pytest.fixture(scope="session")
def policy_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], cupola.Policy]:
    """A trained policy by its name; trained once."""
    made: dict[str, Path] = {}

    def find(name: str) -> cupola.Policy:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            cupola.train("ppo_lag", out=made[name], **SMALL, **TRAININGS[name])
        return cupola.load(made[name])

    return find


@pytest.fixture
def arm_space() -> Dict:
    return Arm.observation_space
