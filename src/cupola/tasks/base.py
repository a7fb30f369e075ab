"""What a task is: N environments stepped together, as numpy arrays [N, ...]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from cupola.types import Cost, Step

State = dict[str, np.ndarray]

Actor: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Actions [N, A] for the inputs of raw observations [N, I] and unit noise [N, A]."""


class TaskSpec(NamedTuple):
    """What is known of a task before it is made."""

    name: str
    obs_size: int
    act_size: int
    costs: tuple[Cost, ...]  # all that the task can measure
    time_limit: int
    constant: tuple[int, ...] = ()  # columns of the observation that never change

    @property
    def inputs(self) -> np.ndarray:
        """Columns of the observation that tell something: what networks are given."""
        return np.delete(np.arange(self.obs_size), self.constant)


class Task(ABC):
    """N environments of one kind.

    ``costs`` names the costs that `Step.costs` carries, in that order. All randomness comes from
    `streams`, so that (seed of the environment, number of the episode) decides an episode's start
    and a saved task needs no generator state.
    """

    spec: TaskSpec
    num_envs: int
    costs: tuple[str, ...]

    @abstractmethod
    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        """Begin anew; observations [N, O]. Environment i is seeded with seed + i.

        ``stagger`` spreads the first episodes' ends over the time limit, so that later on about
        as many episodes end in every stretch of time. Staggered first episodes are shorter.
        """

    @abstractmethod
    def step(self, actions: np.ndarray) -> Step:
        """Apply actions [N, A]; environments whose episode ended are reset in the same step."""

    def physics(self, actions: np.ndarray) -> None:
        """Step the engine and nothing else: the ceiling that benchmarks compare with."""
        self.step(actions)

    def assess(self, act: Actor, gamma: float, limits: tuple[float, ...]) -> dict[str, float]:
        """Further metrics of a policy, where a task can tell more than its samples; none here.

        ``limits`` are those of ``costs``.
        """
        return {}

    @abstractmethod
    def save(self) -> State:
        """The complete state as named arrays; `restore` of it continues bit for bit."""

    @abstractmethod
    def restore(self, state: State) -> np.ndarray:
        """Take over a saved state; the current observations [N, O]."""

    def close(self) -> None:  # noqa: B027  (most tasks hold nothing)
        """Release what the task holds."""


class Clock:
    """Seeds, episode numbers and elapsed steps of N environments."""

    def __init__(self, num_envs: int, time_limit: int) -> None:
        self.time_limit = time_limit
        self.seeds = np.zeros(num_envs, np.int64)
        self.episodes = np.zeros(num_envs, np.int64)
        self.elapsed = np.zeros(num_envs, np.int64)

    def start(self, seed: int, stagger: bool) -> None:
        count = len(self.seeds)
        self.seeds[:] = seed + np.arange(count)
        self.episodes[:] = 0
        self.elapsed[:] = np.arange(count) * self.time_limit // count if stagger else 0

    def tick(self, terminated: np.ndarray) -> np.ndarray:
        """Count one step; which episodes the time limit cuts, [N] bool."""
        self.elapsed += 1
        return (self.elapsed >= self.time_limit) & ~terminated

    def begin(self, ids: np.ndarray) -> None:
        """Environments ``ids`` begin their next episode."""
        self.episodes[ids] += 1
        self.elapsed[ids] = 0

    def stream(self, env: int) -> np.random.Generator:
        """The random numbers of the current episode of one environment."""
        key = [int(self.seeds[env]) & (2**64 - 1), int(self.episodes[env])]
        return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64)))

    def save(self) -> State:
        return {
            "seeds": self.seeds.copy(),
            "episodes": self.episodes.copy(),
            "elapsed": self.elapsed.copy(),
        }

    def restore(self, state: State) -> None:
        self.seeds[:], self.episodes[:] = state["seeds"], state["episodes"]
        self.elapsed[:] = state["elapsed"]
