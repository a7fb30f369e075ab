"""cupola's tasks as Safety-Gymnasium has them: a step gives six values."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from cupola import tasks
from cupola.gym.register import NAMESPACE, TaskEnv, environment_id


class SafetyTaskEnv(TaskEnv):
    """One environment of a task, whose steps give the cost as their third value."""

    def step(  # type: ignore[override]
        self, action: np.ndarray
    ) -> tuple[np.ndarray, float, float, bool, bool, dict[str, Any]]:
        """Observation, reward, cost, terminated, truncated and info.

        The info has each cost by its name, `cost_hazards` for example, and `cost_sum`.
        """
        obs, reward, terminated, truncated, info = super().step(action)
        named = {f"cost_{name}": value for name, value in info["costs"].items() if name != "cost"}
        named["cost_sum"] = info["cost"]
        return obs, reward, info["cost"], terminated, truncated, info | named


def safety_gymnasium_make(
    id: str,  # noqa: A002  (its name in safety_gymnasium.make)
    *,
    render_mode: str | None = None,
    width: int = 256,
    height: int = 256,
) -> SafetyTaskEnv:
    """What `safety_gymnasium.make` gives for a task of cupola, by any of its names."""
    spec = tasks.spec_of(id.removeprefix(f"{NAMESPACE}/"))
    env = SafetyTaskEnv(spec.name, render_mode, width, height)
    env.spec = gymnasium.spec(environment_id(spec.name))  # it knows the time limit
    return env
