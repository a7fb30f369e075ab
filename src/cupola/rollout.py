"""Policy + task -> rollout, and the book-keeping of episodes across rollouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.tasks.base import State, Task
from cupola.types import Rollout, Step

Act = Callable[[nets.Policy, Moments, np.ndarray, np.ndarray], jax.Array]


def make_act(obs_clip: float, normalise: bool) -> Act:
    """Compiled: actions [N, A] of a policy for raw observations [N, O] and unit noise [N, A]."""

    @jax.jit
    def act(policy: nets.Policy, moments: Moments, obs: jax.Array, noise: jax.Array) -> jax.Array:
        if normalise:
            obs = obs_moments.normalise(moments, obs, obs_clip)
        mean, log_std = nets.apply_policy(policy, obs)
        return mean + jnp.exp(log_std) * noise

    return act


class Finished(NamedTuple):
    """Episodes that ended in a rollout, E of them."""

    returns: np.ndarray  # [E]
    lengths: np.ndarray  # [E]
    costs: np.ndarray  # [E, K], undiscounted
    discounted_costs: np.ndarray  # [E, K]


class Episodes:
    """Sums over the running episodes of N environments."""

    def __init__(self, num_envs: int, costs: int, gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._costs = np.zeros((num_envs, costs))
        self._discounted = np.zeros((num_envs, costs))
        # A staggered first episode is cut before its time: it would bias the estimates.
        self._counts = np.zeros(num_envs, bool)
        self._finished: list[tuple[np.ndarray, ...]] = []

    def start(self, staggered: bool) -> None:
        for total in (self._returns, self._lengths, self._costs, self._discounted):
            total[:] = 0
        self._counts[:] = not staggered
        if staggered:
            self._counts[0] = True

    @property
    def times(self) -> np.ndarray:
        """Steps since each running episode began, [N]."""
        return self._lengths

    def add(self, step: Step) -> None:
        self._returns += step.reward
        self._costs += step.costs
        self._discounted += (self._gamma**self._lengths)[:, None] * step.costs
        self._lengths += 1
        ended = step.terminated | step.truncated
        if ended.any():
            # A terminated episode is whole, staggered or not.
            whole = ended & (self._counts | step.terminated)
            sums = (self._returns, self._lengths, self._costs, self._discounted)
            self._finished.append(tuple(total[whole] for total in sums))
            for total in sums:
                total[ended] = 0
            self._counts |= ended

    def take(self) -> Finished:
        """The episodes finished since the last call."""
        sums = (self._returns, self._lengths, self._costs, self._discounted)
        pieces = [tuple(total[:0] for total in sums), *self._finished]
        self._finished = []
        return Finished(*(np.concatenate(column) for column in zip(*pieces, strict=True)))

    def save(self) -> State:
        return {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "costs": self._costs.copy(),
            "discounted": self._discounted.copy(),
            "counts": self._counts.copy(),
        }

    def restore(self, state: State) -> None:
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._costs[:], self._discounted[:] = state["costs"], state["discounted"]
        self._counts[:] = state["counts"]
        self._finished = []


class Estimates:
    """J^_c and the horizon of each cost, from the episodes that ended."""

    def __init__(self, discounted: tuple[bool, ...], gamma: float, window: int) -> None:
        self._discounted, self._gamma, self._window = np.array(discounted), gamma, window
        count = len(discounted)
        self._costs, self._horizons = np.zeros((0, count)), np.zeros((0, count))
        self.last = np.full(2, np.nan)  # return, length

    def absorb(self, finished: Finished) -> None:
        if len(finished.returns) == 0:
            return
        costs = np.where(self._discounted, finished.discounted_costs, finished.costs)
        lengths = finished.lengths[:, None]
        discounted_time = (1 - self._gamma**lengths) / (1 - self._gamma)
        horizons = np.where(self._discounted, discounted_time, lengths)
        if self._window:
            costs = np.concatenate([self._costs, costs])[-self._window :]
            horizons = np.concatenate([self._horizons, horizons])[-self._window :]
        self._costs, self._horizons = costs, horizons
        self.last = np.array([finished.returns.mean(), finished.lengths.mean()])

    @property
    def cost_returns(self) -> np.ndarray:
        return mean_or_nan(self._costs)

    @property
    def horizons(self) -> np.ndarray:
        return mean_or_nan(self._horizons)

    def save(self) -> dict[str, np.ndarray]:
        return {"costs": self._costs, "horizons": self._horizons, "last": self.last}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self._costs, self._horizons = state["costs"], state["horizons"]
        self.last = state["last"]


def mean_or_nan(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis; NaN where there is nothing."""
    return values.mean(axis=0) if len(values) else np.full(values.shape[1], np.nan)


def collect(
    task: Task,
    obs: np.ndarray,
    act: Act,
    policy: nets.Policy,
    moments: Moments,
    noise: np.ndarray,
    episodes: Episodes,
) -> tuple[Rollout, np.ndarray]:
    """T steps with unit noise [T, N, A] from ``obs`` [N, O]; the observations after them."""
    length, num_envs = noise.shape[:2]
    shape = (length, num_envs)
    rollout = Rollout(
        obs=np.empty((*shape, obs.shape[1]), np.float32),
        next_obs=np.empty((*shape, obs.shape[1]), np.float32),
        actions=np.empty(noise.shape, np.float32),
        rewards=np.empty(shape, np.float32),
        costs=np.empty((*shape, len(task.costs)), np.float32),
        terminated=np.empty(shape, bool),
        truncated=np.empty(shape, bool),
        times=np.empty(shape, np.int32),
    )
    for t in range(length):
        rollout.obs[t] = obs
        rollout.times[t] = episodes.times
        actions = np.asarray(act(policy, moments, rollout.obs[t], noise[t]))
        step = task.step(actions)
        episodes.add(step)
        obs = step.obs
        rollout.next_obs[t] = step.final_obs
        rollout.actions[t] = actions
        rollout.rewards[t] = step.reward
        rollout.costs[t] = step.costs
        rollout.terminated[t] = step.terminated
        rollout.truncated[t] = step.truncated
    return rollout, obs
