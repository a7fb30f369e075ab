"""Every cupola task as a Gymnasium environment: `cupola/HopperSpeed-v0`, one or many at once."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from cupola import tasks
from cupola.errors import CupolaError
from cupola.tasks.base import State, Task, TaskSpec
from cupola.tasks.canvas import INK, caption
from cupola.types import Step

NAMESPACE = "cupola"


def environment_id(task: str) -> str:
    """`cupola/NAME-v0`, or `cupola/NAME` where the name carries a version."""
    versioned = task if re.search(r"-v\d+$", task) else f"{task}-v0"
    return f"{NAMESPACE}/{versioned}"


def register_all() -> None:
    """Register every task of the registry with Gymnasium, once, by all of its names."""
    known = tasks.specs()
    names = {name: name for name in known} | tasks.aliases()
    for called, name in names.items():
        spec = known[name]
        if environment_id(called) not in gymnasium.registry:
            gymnasium.register(
                environment_id(called),
                entry_point=f"{__name__}:TaskEnv",
                vector_entry_point=f"{__name__}:TaskVectorEnv",
                # Tasks cut their own episodes. Who reads the registry may want to know when.
                max_episode_steps=spec.time_limit if spec.time_limit > 1 else None,
                kwargs={"task": name},
            )


def spaces_of(spec: TaskSpec) -> tuple[Space[Any], Space[Any]]:
    """Observation space and action space of one environment."""
    bound = spec.act_bound
    return (
        Box(-np.inf, np.inf, (spec.obs_size,), np.float64),
        Box(-bound, bound, (spec.act_size,), np.float32),
    )


class RenderModeError(CupolaError, TypeError):
    """Of a render mode that there is not; a TypeError, upon which SB3 goes without pictures."""


def make(name: str, num_envs: int, render_mode: str | None, threads: int = 1) -> Task:
    """The task with every cost that it can measure."""
    modes = METADATA["render_modes"]
    if render_mode is not None and render_mode not in modes:
        raise RenderModeError(
            f"{name} cannot be drawn with render_mode={render_mode!r}: write {modes[0]!r}."
        )
    costs = tuple(cost.name for cost in tasks.spec_of(name).costs)
    return tasks.make_task(name, num_envs, costs, threads)


METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": Task.fps}
"""What Gymnasium wants to know before an environment is made; each has its own `render_fps`."""


class Pictures:
    """Pictures of a task's environments, with the gauges and costs of their last step."""

    def __init__(self, task: Task, width: int, height: int) -> None:
        if min(width, height) < 16:
            raise CupolaError(
                f"pictures are at least 16 pixels wide and high: not {width}x{height}."
            )
        self._task, self._size = task, (width, height)

    def draw(self, index: int, costs: np.ndarray | None, end: bool = False) -> np.ndarray:
        """One environment; ``costs`` [K] are those of its last step, None before the first one."""
        lines = []
        if costs is not None:
            lines = [(text, INK) for text in self._task.gauges(index)]
            for cost, value in zip(self._task.spec.costs, costs, strict=True):
                if cost.limit is not None:
                    kind = "discounted sum" if cost.discounted else "sum"
                    text = f"cost {cost.name} {value:.2f} (limit {cost.limit:.4g}, {kind})"
                    lines.append((text, INK))
        return caption(self._task.render(index, *self._size, end=end), lines)


def total_cost(spec: TaskSpec, costs: np.ndarray) -> np.ndarray:
    """`info["cost"]` [N]: the sum of the costs [N, K] that are limited by default."""
    limited = [cost.limit is not None for cost in spec.costs]
    return costs[:, limited].sum(axis=1)


class TaskEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One environment of a task."""

    metadata = METADATA

    def __init__(
        self, task: str, render_mode: str | None = None, width: int = 480, height: int = 480
    ) -> None:
        self.render_mode = render_mode
        self._task = make(task, 1, render_mode)
        self._pictures = Pictures(self._task, width, height)
        self.metadata = METADATA | {"render_fps": self._task.fps}
        self._costs: np.ndarray | None = None
        self.observation_space, self.action_space = spaces_of(self._task.spec)
        # A task resets itself in the last step of an episode: its next one has begun already.
        self._waiting: np.ndarray | None = None
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: the first one of ``seed``, or the one that follows."""
        super().reset(seed=seed)
        if seed is not None or self._waiting is None:
            start = self.np_random.integers(2**62) if seed is None else seed % 2**62
            self._waiting = self._task.reset(int(start))[0]
        obs, self._waiting, self._running = self._waiting.copy(), None, True
        self._costs = None
        return obs, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._running:
            raise ResetNeeded("the episode has ended, or none has begun: call reset() first.")
        step = self._task.step(np.asarray(action)[None])
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        if terminated or truncated:
            self._waiting, self._running = step.obs[0].copy(), False
        names, self._costs = self._task.costs, step.costs[0]
        info = {
            "cost": float(total_cost(self._task.spec, step.costs)[0]),
            "costs": {name: float(step.costs[0, k]) for k, name in enumerate(names)},
        }
        return step.final_obs[0].copy(), float(step.reward[0]), terminated, truncated, info

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        return self._pictures.draw(0, self._costs, end=self._waiting is not None)

    def save_state(self) -> State:
        """Everything that `restore_state` needs to continue bit for bit."""
        waiting = {} if self._waiting is None else {"waiting": self._waiting.copy()}
        return {"running": np.array(self._running), **waiting, **self._task.save()}

    def restore_state(self, state: State) -> None:
        self._running, self._waiting = bool(state["running"]), state.get("waiting")
        self._task.restore({k: v for k, v in state.items() if k not in ("running", "waiting")})

    def close(self) -> None:
        self._task.close()


class TaskVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N environments of a task in one. Environment i of seed s is the single one of seed s + i.

    They share ``threads`` threads, one per core by default; results do not depend on how many.

    An episode that ends is followed by the next one in the same step: `final_obs` and `final_info`
    keep its end. The costs in the infos are those of the step, in every environment.
    """

    metadata = METADATA | {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        task: str,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        threads: int = 0,
        width: int = 480,
        height: int = 480,
    ) -> None:
        super().__init__()
        self.num_envs, self.render_mode = num_envs, render_mode
        self._task = make(task, num_envs, render_mode, threads)
        self._pictures = Pictures(self._task, width, height)
        self.metadata = type(self).metadata | {"render_fps": self._task.fps}
        self._last: Step | None = None
        spec = self._task.spec
        if max_episode_steps not in (None, spec.time_limit):
            raise CupolaError(
                f"the episodes of {task} last {spec.time_limit} steps: for another time limit use"
                " vectorization_mode='sync'."
            )
        self.single_observation_space, self.single_action_space = spaces_of(spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None and not isinstance(seed, int | np.integer):
            raise CupolaError("a cupola task takes one seed: environment i has seed + i.")
        super().reset(seed=seed)
        start = self.np_random.integers(2**62) if seed is None else seed % 2**62
        self._last = None
        return self._task.reset(int(start)).copy(), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._last = step = self._task.step(np.asarray(actions))
        everywhere = np.ones(self.num_envs, bool)
        infos = self._costs(step, everywhere)
        ended = step.terminated | step.truncated
        if ended.any():
            final_obs = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(ended):
                final_obs[i] = step.final_obs[i].copy()
            infos |= {"final_obs": final_obs, "_final_obs": ended.copy()}
            infos |= {"final_info": self._costs(step, ended), "_final_info": ended.copy()}
        return (
            step.obs.copy(),
            step.reward.copy(),
            step.terminated.copy(),
            step.truncated.copy(),
            infos,
        )

    def _costs(self, step: Step, where: np.ndarray) -> dict[str, Any]:
        """Costs [N] as Gymnasium batches infos: each with a mask of the environments it is of."""
        named: dict[str, Any] = {}
        for k, name in enumerate(self._task.costs):
            named |= {name: np.where(where, step.costs[:, k], 0.0), f"_{name}": where.copy()}
        total = np.where(where, total_cost(self._task.spec, step.costs), 0.0)
        return {"cost": total, "_cost": where.copy(), "costs": named, "_costs": where.copy()}

    def render(self) -> tuple[np.ndarray, ...] | None:
        if self.render_mode is None:
            return None
        return tuple(self._draw(i) for i in range(self.num_envs))

    def _draw(self, index: int) -> np.ndarray:
        last = self._last
        fresh = last is None or last.terminated[index] or last.truncated[index]
        return self._pictures.draw(index, None if last is None or fresh else last.costs[index])

    def close_extras(self, **kwargs: Any) -> None:
        self._task.close()
