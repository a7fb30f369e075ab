"""The book-keeping of episodes across rollouts, and what they tell about costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cupola.tasks.base import State, alike
from cupola.types import Rollout

LONGER = 0.75
"""The quantile of episodes that counts as the longer ones."""


class Finished(NamedTuple):
    """Episodes that ended in a rollout, E of them."""

    returns: np.ndarray  # [E]
    lengths: np.ndarray  # [E]
    costs: np.ndarray  # [E, K], undiscounted
    discounted_costs: np.ndarray  # [E, K]

    def horizons(self, gamma: float) -> np.ndarray:
        """sum_t gamma^t over each episode, [E]."""
        return (1 - gamma**self.lengths) / (1 - gamma)


class Episodes:
    """Sums over the running episodes of n environments, carried from one rollout to the next."""

    def __init__(self, num_envs: int, costs: int, gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._costs = np.zeros((num_envs, costs))
        self._discounted = np.zeros((num_envs, costs))
        # A staggered first episode is cut before its time: it would bias the estimates.
        self._counts = np.zeros(num_envs, bool)

    def start(self, staggered: bool) -> None:
        for total in (self._returns, self._lengths, self._costs, self._discounted):
            total[:] = 0
        self._counts[:] = not staggered
        if staggered:
            self._counts[0] = True

    def absorb(self, rollout: Rollout) -> Finished:
        """Take a rollout [T, n] in, write its ``times``, and give the episodes that ended in it."""
        length, count = rollout.rewards.shape
        ended = (rollout.terminated | rollout.truncated).T  # [n, T]
        # Every environment's stretch of time is cut behind the steps that ended an episode.
        cuts = ended.copy()
        cuts[:, -1] = True
        last = np.flatnonzero(cuts.reshape(-1))  # last step of each piece, env by env
        first = np.concatenate([[0], last[:-1] + 1])
        env = first // length
        opens = first % length == 0  # the piece goes on with an episode of the last rollout
        carried = np.where(opens, self._lengths[env], 0)
        sizes = last - first + 1
        times = np.arange(count * length) - np.repeat(first - carried, sizes)
        rollout.times[:] = times.reshape(count, length).T

        def total(signal: np.ndarray, before: np.ndarray) -> np.ndarray:
            """Sums of a signal [T, n, ...] over each piece and what was carried into it."""
            flat = np.swapaxes(signal, 0, 1).reshape(count * length, *signal.shape[2:])
            sums = np.add.reduceat(flat.astype(np.float64), first, axis=0)
            keep = opens.reshape(-1, *(1,) * (sums.ndim - 1))
            return sums + np.where(keep, before[env], 0.0)

        weights = self._gamma ** rollout.times[..., None]
        sums = Finished(
            returns=total(rollout.rewards, self._returns),
            lengths=sizes + carried,
            costs=total(rollout.costs, self._costs),
            discounted_costs=total(weights * rollout.costs, self._discounted),
        )
        done = ended.reshape(-1)[last]
        # A terminated episode is whole, staggered or not.
        terminated = rollout.terminated.T.reshape(-1)[last]
        whole = done & (~opens | self._counts[env] | terminated)
        final = np.searchsorted(env, np.arange(count), side="right") - 1  # each env's last piece
        runs_on = ~done[final]
        self._returns[:] = np.where(runs_on, sums.returns[final], 0.0)
        self._lengths[:] = np.where(runs_on, sums.lengths[final], 0)
        self._costs[:] = np.where(runs_on[:, None], sums.costs[final], 0.0)
        self._discounted[:] = np.where(runs_on[:, None], sums.discounted_costs[final], 0.0)
        self._counts |= ended.any(axis=1)
        return Finished(*(column[whole] for column in sums))

    def save(self) -> State:
        return {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "costs": self._costs.copy(),
            "discounted": self._discounted.copy(),
            "counts": self._counts.copy(),
        }

    def restore(self, state: State) -> None:
        state = alike(state, self.save())
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._costs[:], self._discounted[:] = state["costs"], state["discounted"]
        self._counts[:] = state["counts"]


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
        discounted_time = finished.horizons(self._gamma)[:, None]
        horizons = np.where(self._discounted, discounted_time, finished.lengths[:, None])
        if self._window:
            costs = np.concatenate([self._costs, costs])[-self._window :]
            horizons = np.concatenate([self._horizons, horizons])[-self._window :]
        self._costs, self._horizons = costs, horizons
        self.last = np.array([finished.returns.mean(), finished.lengths.mean()])

    @property
    def cost_returns(self) -> np.ndarray:
        return mean_or_nan(self._costs)

    @property
    def cost_errors(self) -> np.ndarray:
        """Standard errors of `cost_returns`, [K]; NaN with fewer than two episodes."""
        count, costs = self._costs.shape
        if count < 2:
            return np.full(costs, np.nan)
        return self._costs.std(axis=0, ddof=1) / np.sqrt(count)

    @property
    def horizons(self) -> np.ndarray:
        return mean_or_nan(self._horizons)

    @property
    def reach(self) -> np.ndarray:
        """sum_t gamma^t of the longer episodes, as a part of that of endless ones, [K].

        1 for an undiscounted cost, and while nothing is known.
        """
        if len(self._horizons) == 0:
            return np.ones(len(self._discounted))
        longer = np.quantile(self._horizons, LONGER, axis=0)
        return np.where(self._discounted, (1 - self._gamma) * longer, 1.0)

    def save(self) -> dict[str, np.ndarray]:
        return {"costs": self._costs, "horizons": self._horizons, "last": self.last}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self._costs, self._horizons = state["costs"], state["horizons"]
        self.last = state["last"]


def mean_or_nan(values: np.ndarray) -> np.ndarray:
    """Mean over the first axis; NaN where there is nothing."""
    return values.mean(axis=0) if len(values) else np.full(values.shape[1], np.nan)
