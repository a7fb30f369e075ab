"""Policy + task -> rollout, and the book-keeping of episodes across rollouts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from cupola import nets
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.tasks.base import Actor, State, Task
from cupola.types import Rollout

_POOL = ThreadPoolExecutor(1, thread_name_prefix="cupola-collector")


def make_actor(policy: nets.Policy, moments: Moments, obs_clip: float, normalise: bool) -> Actor:
    """The policy as plain numpy: for a few rows at a time a compiled call costs more."""
    layers = [(np.asarray(weight), np.asarray(bias)) for weight, bias in policy.mean]
    log_std = policy.log_std
    choose = one_hot if log_std is None else gaussian(np.exp(np.asarray(log_std)))
    mean, scale = (np.asarray(x) for x in obs_moments.shift_and_scale(moments))

    def act(obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        x = obs
        if normalise:
            x = (x - mean) * scale
            np.minimum(np.maximum(x, -obs_clip, out=x), obs_clip, out=x)  # np.clip is slower
        for weight, bias in layers[:-1]:
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        weight, bias = layers[-1]
        x = x @ weight
        x += bias
        return choose(x, noise)

    return act


def gaussian(std: np.ndarray) -> Actor:
    """Samples [N, A] around means [N, A]."""

    def choose(mean: np.ndarray, noise: np.ndarray) -> np.ndarray:
        mean += std * noise
        return mean

    return choose


def one_hot(logits: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Samples [N, A] of choices with ``logits`` [N, A], by the Gumbel noise of each choice."""
    chosen = np.argmax(logits + noise, axis=-1)
    return (chosen[..., None] == np.arange(logits.shape[-1])).astype(np.float32)


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


class Collector:
    """Some environments of a task, stepped in a thread of their own."""

    def __init__(self, task: Task, gamma: float) -> None:
        self.task = task
        self.episodes = Episodes(task.num_envs, len(task.costs), gamma)
        self._inputs = task.spec.inputs if task.spec.constant else slice(None)
        self.obs = np.zeros((task.num_envs, task.spec.obs_size))

    def start(self, seed: int) -> None:
        self.obs = self.task.reset(seed, stagger=True)
        self.episodes.start(staggered=True)

    def collect(self, act: Actor, noise: np.ndarray, into: Rollout) -> Finished:
        """Fill ``into`` [T, n, ...] with T steps, given unit noise [T, n, A]."""
        task, inputs, steps = self.task, self._inputs, []
        for obs, actions, unit in zip(into.obs, into.actions, noise, strict=True):
            obs[:] = self.obs[:, inputs]
            actions[:] = act(obs, unit)
            steps.append(task.step_physics(actions))
            self.obs = steps[-1].obs
        into.next_obs[:] = np.stack([step.final_obs for step in steps])[:, :, inputs]
        into.rewards[:], into.costs[:] = task.score(steps, into.actions)
        into.terminated[:] = [step.terminated for step in steps]
        into.truncated[:] = [step.truncated for step in steps]
        return self.episodes.absorb(into)

    def save(self) -> State:
        task, episodes = self.task.save(), self.episodes.save()
        return {f"task.{k}": v for k, v in task.items()} | {
            f"episodes.{k}": v for k, v in episodes.items()
        }

    def restore(self, state: State) -> None:
        self.obs = self.task.restore(strip("task.", state))
        self.episodes.restore(strip("episodes.", state))
        if not self.task.restorable:
            self.episodes.start(staggered=True)


def strip(prefix: str, arrays: State) -> State:
    """The arrays whose name begins with ``prefix``, without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def collector_sizes(num_envs: int) -> list[int]:
    """Two halves, whatever the number of cores: the results must not depend on it.

    While one half waits for Python, the other half's physics runs.
    """
    half = num_envs // 2
    return [num_envs - half, half] if half else [1]


def collect(
    collectors: list[Collector], act: Actor, noise: np.ndarray, side_by_side: bool
) -> tuple[Rollout, Finished]:
    """T steps of all collectors with unit noise [T, N, A], and the episodes that ended."""
    task = collectors[0].task
    shape = noise.shape[:2]
    obs_size, costs = len(task.spec.inputs), len(task.costs)
    rollout = Rollout(
        obs=np.empty((*shape, obs_size), np.float32),
        next_obs=np.empty((*shape, obs_size), np.float32),
        actions=np.empty(noise.shape, np.float32),
        rewards=np.empty(shape, np.float32),
        costs=np.empty((*shape, costs), np.float32),
        terminated=np.empty(shape, bool),
        truncated=np.empty(shape, bool),
        times=np.empty(shape, np.int32),
    )
    jobs: list[Callable[[], Finished]] = []
    at = 0
    for collector in collectors:
        mine = slice(at, at + collector.task.num_envs)
        part = Rollout(*(array[:, mine] for array in rollout))
        jobs.append(partial(collector.collect, act, noise[:, mine], part))
        at = mine.stop
    if side_by_side:
        others = [_POOL.submit(job) for job in jobs[1:]]
        finished = [jobs[0](), *(other.result() for other in others)]
    else:
        finished = [job() for job in jobs]
    return rollout, Finished(*(np.concatenate(column) for column in zip(*finished, strict=True)))
