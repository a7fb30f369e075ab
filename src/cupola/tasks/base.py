"""What a task is: N environments stepped together, as numpy arrays [N, ...]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cupola.errors import CupolaError
from cupola.tasks.actor import NetworkActor
from cupola.tasks.observation import Part
from cupola.types import Cost, Rollout, Step

State = dict[str, np.ndarray]

Actor: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Actions [N, A] for the inputs of raw observations [N, I] and unit noise [N, A].

Discrete actions are 1 for the choice and 0 elsewhere.
"""


class Scaled(NamedTuple):
    """Continuous actions: -1 and 1 stand for ``low`` and ``high``; values beyond are clipped."""

    low: np.ndarray  # of any shape with A elements
    high: np.ndarray

    def decode(self, numbers: np.ndarray) -> np.ndarray:
        """A policy's numbers [..., A] as actions of the environment, [..., *shape]."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        unit = np.clip(numbers, -1, 1).reshape(*numbers.shape[:-1], *low.shape)
        actions = low + (unit + 1) / 2 * (high - low)
        return np.clip(actions.astype(self.low.dtype), self.low, self.high)


class Choice(NamedTuple):
    """Discrete actions: the largest of A numbers is the choice, counted from ``first``."""

    first: int

    def decode(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers [..., A] as choices [...]."""
        return self.first + np.argmax(numbers, axis=-1)


def action_arrays(actions: Scaled | Choice | None) -> State:
    """What a policy's numbers mean, as named arrays."""
    if actions is None:
        return {}
    return {f"actions.{name}": np.asarray(value) for name, value in actions._asdict().items()}


def actions_from(arrays: State) -> Scaled | Choice | None:
    """The way back from `action_arrays`, which may lie among other arrays."""
    if "actions.first" in arrays:
        return Choice(int(arrays["actions.first"]))
    if "actions.low" in arrays:
        return Scaled(arrays["actions.low"], arrays["actions.high"])
    return None


def alike(state: State, like: State) -> State:
    """The arrays of ``state`` that ``like`` has too, which must be of the same shapes and types.

    numpy would stretch an array that is too small, and go on with other numbers than were saved.
    """
    for name, array in like.items():
        found = state[name]
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            raise ValueError(
                f"{name!r} is {found.dtype} {found.shape}, not {array.dtype} {array.shape}"
            )
    return {name: state[name] for name in like}


class TaskSpec(NamedTuple):
    """What is known about a task before it is made."""

    name: str
    obs_size: int
    act_size: int
    costs: tuple[Cost, ...]  # all that the task can measure
    time_limit: int
    constant: tuple[int, ...] = ()  # columns of the observation that never change
    act_bound: float = 1.0  # continuous actions beyond +- this have no further effect
    actions: Scaled | Choice | None = None  # what a policy's numbers mean; None: themselves
    saturates: tuple[float, ...] = ()  # |action| where each actuator is at its end; (): act_bound
    parts: tuple[Part, ...] = ()  # of an environment's own observations; (): they are vectors

    @property
    def discrete(self) -> bool:
        return isinstance(self.actions, Choice)

    @property
    def saturation(self) -> tuple[float, ...]:
        """|action| [A] beyond which a policy's numbers have no further effect; () if none has."""
        if self.discrete:
            return ()
        found = self.saturates or (self.act_bound,) * self.act_size
        return found if min(found) < np.inf else ()

    @property
    def inputs(self) -> np.ndarray:
        """Columns of the observation that can change: the inputs of the networks."""
        return np.delete(np.arange(self.obs_size), self.constant)


class Task(ABC):
    """N environments of one kind.

    ``costs`` names the costs in `Step.costs`, in that order. All randomness comes from
    `Clock.stream`: the seed of the environment and the number of the episode determine how an
    episode starts, and a saved task needs no generator state.
    """

    spec: TaskSpec
    num_envs: int
    costs: tuple[str, ...]
    restorable: bool = True
    """Whether `restore` continues bit for bit; otherwise it starts new, staggered episodes."""
    parallel: bool = True
    """Whether two tasks of this kind may be stepped in two threads."""
    engine_name: str = ""
    """What computes the rollouts, where there is a choice (tasks/engine.py)."""
    fps: int = 30
    """Steps a second in the real time of the task, or what is pleasant where it has none."""

    @abstractmethod
    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        """Start new episodes; observations [N, O]. Environment i is seeded with seed + i.

        ``stagger`` spreads the ends of the first episodes over the time limit, so that later about
        the same number of episodes end in every rollout. Staggered first episodes are shorter.
        """

    @abstractmethod
    def step(self, actions: np.ndarray) -> Step:
        """Apply actions [N, A]; environments whose episode ended are reset in the same step."""

    def step_physics(self, actions: np.ndarray) -> Any:
        """A `step` that may leave rewards and costs to `score`; it has all other fields."""
        return self.step(actions)

    def score(self, steps: list[Any], actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rewards [T, N] and costs [T, N, K] of T successive steps with ``actions`` [T, N, A].

        ``steps`` are what `step_physics` returned for them.
        """
        return np.stack([step.reward for step in steps]), np.stack([step.costs for step in steps])

    def step_engine(self, actions: np.ndarray) -> None:
        """Step the physics engine and nothing else: the upper bound in benchmarks."""
        self.step(actions)

    def drive(self, actions: np.ndarray) -> None:
        """The same for actions [T, N, A], as fast as it goes: no step waits for another one."""
        for action in actions:
            self.step_engine(action)

    def play(self, actor: NetworkActor, noise: np.ndarray, into: Rollout) -> np.ndarray | None:
        """Fill ``into`` [T, n, ...] with T steps, given unit noise [T, n, A], by compiled code.

        Returns the observations [N, O] behind them; None where the task cannot do that.
        """
        return None

    def extra_metrics(
        self, act: Actor, gamma: float, limits: tuple[float, ...]
    ) -> dict[str, float]:
        """Further metrics of a policy, for tasks that can compute more than samples show.

        ``limits`` are those of ``costs``. Most tasks have no such metrics.
        """
        return {}

    @abstractmethod
    def save(self) -> State:
        """The complete state as named arrays; after `restore` the task continues bit for bit."""

    @abstractmethod
    def restore(self, state: State) -> np.ndarray:
        """Continue from a saved state; returns the current observations [N, O]."""

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        """A picture of one environment, uint8 [height, width, 3].

        With ``end`` it shows how the environment's last episode ended.
        """
        raise CupolaError(f"{self.spec.name} cannot draw pictures.")

    def gauges(self, index: int = 0) -> list[str]:
        """Short texts about the last step of one environment, to be written into its picture."""
        return []

    def close(self) -> None:  # noqa: B027  (most tasks hold nothing)
        """Release what the task holds."""


class TaskFactory(NamedTuple):
    """A task of any origin: its spec and how to make it."""

    spec: TaskSpec
    make: Callable[[int, tuple[str, ...]], Task]
    """Of the number of environments and the names of the costs."""


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
        self.elapsed[:] = 0
        if stagger:
            self.stagger()

    def stagger(self) -> None:
        """Let the current episodes end at times spread over the time limit."""
        count = len(self.elapsed)
        self.elapsed[:] = np.arange(count) * self.time_limit // count

    def tick(self, terminated: np.ndarray) -> np.ndarray:
        """Count one step; which episodes the time limit truncates, [N] bool."""
        self.elapsed += 1
        return (self.elapsed >= self.time_limit) & ~terminated

    def begin(self, ids: np.ndarray) -> None:
        """Environments ``ids`` start their next episode."""
        self.episodes[ids] += 1
        self.elapsed[ids] = 0

    def stream(self, env: int, part: int = 0) -> np.random.Generator:
        """A generator for one part of the current episode of one environment."""
        key = [int(self.seeds[env]) & (2**64 - 1), int(self.episodes[env])]
        counter = np.array([0, 0, 0, part], np.uint64)
        return np.random.Generator(np.random.Philox(key=np.array(key, np.uint64), counter=counter))

    def save(self) -> State:
        return {
            "seeds": self.seeds.copy(),
            "episodes": self.episodes.copy(),
            "elapsed": self.elapsed.copy(),
        }

    def restore(self, state: State) -> None:
        state = alike(state, self.save())
        if min(state["episodes"].min(), state["elapsed"].min()) < 0:
            raise ValueError("a number of episodes or of steps is negative")
        self.seeds[:], self.episodes[:] = state["seeds"], state["episodes"]
        self.elapsed[:] = state["elapsed"]
