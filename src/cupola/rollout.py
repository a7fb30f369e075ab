"""Policy + task -> rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import jax
import numpy as np

from cupola import nets
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.episodes import Episodes, Finished
from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import State, Task, TaskFactory
from cupola.types import Rollout, Step

_POOL = ThreadPoolExecutor(1, thread_name_prefix="cupola-collector")
MAX_ENVS = 64

StepWatcher = Callable[[Task, np.ndarray, Step], None]
"""Sees every step of the first `MAX_ENVS` episodes: the environments, which run [N], the step."""
"""Whole episodes that are played side by side."""


def make_actor(
    policy: nets.Policy, moments: Moments, obs_clip: float, normalise: bool
) -> NetworkActor:
    """The policy as tasks play it."""
    shift, scale = (np.asarray(x) for x in obs_moments.shift_and_scale(moments))
    return NetworkActor(
        layers=tuple((np.asarray(weight), np.asarray(bias)) for weight, bias in policy.mean),
        shift=shift if normalise else None,
        scale=scale if normalise else None,
        clip=obs_clip,
        std=None if policy.log_std is None else np.exp(np.asarray(policy.log_std)),
    )


def make_prepare(
    obs_clip: float, normalise: bool
) -> Callable[[Moments, Rollout], tuple[Rollout, Moments]]:
    """Compiled: a rollout as the acting policy saw it, and the moments after it."""

    @jax.jit
    def prepare(moments: Moments, rollout: Rollout) -> tuple[Rollout, Moments]:
        if not normalise:
            return rollout, moments
        seen = rollout._replace(
            obs=obs_moments.normalise(moments, rollout.obs, obs_clip),
            next_obs=obs_moments.normalise(moments, rollout.next_obs, obs_clip),
        )
        return seen, obs_moments.absorb(moments, rollout.obs)

    return prepare


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

    def collect(self, act: NetworkActor, noise: np.ndarray, into: Rollout) -> Finished:
        """Fill ``into`` [T, n, ...] with T steps, given unit noise [T, n, A]."""
        obs = self.task.play(act, noise, into)
        if obs is None:
            self._step_through(act, noise, into)
        else:
            self.obs = obs
        return self.episodes.absorb(into)

    def _step_through(self, act: NetworkActor, noise: np.ndarray, into: Rollout) -> None:
        """The same for a task that cannot play: all environments together, step by step."""
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
    collectors: list[Collector], act: NetworkActor, noise: np.ndarray, side_by_side: bool
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
        try:
            finished = [jobs[0](), *(other.result() for other in others)]
        finally:
            wait(others)  # nothing steps on behind an error
    else:
        finished = [job() for job in jobs]
    return rollout, Finished(*(np.concatenate(column) for column in zip(*finished, strict=True)))


# --- Whole episodes, to measure a policy ---


def whole_episodes(
    factory: TaskFactory,
    costs: tuple[str, ...],
    count: int,
    choose: Callable[[np.ndarray], np.ndarray],
    seed: int,
    gamma: float,
    tell: Callable[[int], None] = lambda ended: None,
    watch: StepWatcher | None = None,
) -> Finished:
    """So many episodes in new environments, seeded one by one from ``seed`` on.

    ``choose`` gives actions [N, A] for raw observations [N, O]; ``tell`` hears how many episodes
    have ended, ``watch`` sees the first ones.
    """
    parts: list[Finished] = []
    for begun in range(0, count, MAX_ENVS):

        def tell_all(ended: int, before: int = begun) -> None:
            tell(before + ended)

        envs = factory.make(min(MAX_ENVS, count - begun), costs)
        seen = None if begun else watch
        try:
            parts.append(first_episodes(envs, choose, seed + begun, gamma, tell_all, seen))
        finally:
            envs.close()
    return Finished(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def first_episodes(
    envs: Task,
    choose: Callable[[np.ndarray], np.ndarray],
    seed: int,
    gamma: float,
    tell: Callable[[int], None],
    watch: StepWatcher | None,
) -> Finished:
    """The first episode of each environment."""
    count = envs.num_envs
    returns, lengths, discount = np.zeros(count), np.zeros(count, np.int64), 1.0
    costs, discounted = np.zeros((count, len(envs.costs))), np.zeros((count, len(envs.costs)))
    for running, step in play(envs, choose, seed):
        returns[running] += step.reward[running]
        lengths[running] += 1
        costs[running] += step.costs[running]
        discounted[running] += discount * step.costs[running]
        discount *= gamma
        tell(int(np.sum(~running | step.terminated | step.truncated)))
        if watch:
            watch(envs, running, step)
    return Finished(returns, lengths, costs, discounted)


def play(
    envs: Task, choose: Callable[[np.ndarray], np.ndarray], seed: int
) -> Iterator[tuple[np.ndarray, Step]]:
    """The first episode of each environment: which of them [N] still run, and the next step.

    Later episodes would favour short ones.
    """
    obs = envs.reset(seed)
    running = np.ones(envs.num_envs, bool)
    while running.any():
        step = envs.step(choose(obs))
        yield running, step
        obs = step.obs
        running = running & ~(step.terminated | step.truncated)


def unit_noise(
    rng: np.random.Generator | None, shape: tuple[int, ...], discrete: bool
) -> np.ndarray:
    """What an `Actor` samples with, float32; without a generator it takes the likeliest action."""
    if rng is None:
        return np.zeros(shape, np.float32)
    noise = rng.gumbel(size=shape) if discrete else rng.standard_normal(shape)
    return noise.astype(np.float32)
