"""How good and how safe a trained policy is, on fresh episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import stats

from cupola.config import problem_of
from cupola.episodes import Finished
from cupola.errors import CupolaError
from cupola.gym.costs import CostFunction
from cupola.policy import Policy
from cupola.seeds import environment_seed
from cupola.task_source import EnvMaker, task_of
from cupola.tasks.base import Task, TaskFactory
from cupola.types import Step

MAX_ENVS = 64

Watcher = Callable[[Task, np.ndarray, Step], None]
"""Sees every step of the first `MAX_ENVS` episodes: the environments, which run [N], the step."""


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval (Student's t; open for a single episode)."""

    mean: float
    low: float
    high: float


class CostReport(NamedTuple):
    value: Interval
    """In the convention of the limit."""
    undiscounted: Interval
    limit: float
    safe_share: float
    """Share of the episodes whose own cost is within the limit."""


class Evaluation(NamedTuple):
    episodes: int
    deterministic: bool
    returns: Interval
    lengths: Interval
    costs: dict[str, CostReport]


def evaluate(
    policy: Policy,
    *,
    episodes: int = 20,
    deterministic: bool = False,
    seed: int = 0,
    threads: int = 1,
    task: TaskFactory | None = None,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    trust: bool = False,
    watch: Watcher | None = None,
) -> Evaluation:
    """Run whole episodes of the policy's own task, none of which was seen in training.

    ``task``, ``env``, ``cost`` and ``trust`` as in `cupola.resume`. ``watch`` sees the first ones.
    """
    if episodes < 1:
        raise CupolaError(f"episodes must be at least 1, not {episodes}.")
    config = policy.config
    factory = task_of(
        config,
        task=task,
        env=env,
        cost=cost,
        threads=threads,
        trust=trust,
        pictures=watch is not None,
    )
    problem = problem_of(factory.spec, config.limits)
    if policy.act_size != factory.spec.act_size:
        raise CupolaError(
            f"this policy takes {policy.act_size} actions, {config.task} has"
            f" {factory.spec.act_size}: the checkpoint is of another task."
        )
    first_seed = environment_seed(seed, "evaluate")
    rng = np.random.default_rng(seed)
    parts = []
    for begun in range(0, episodes, MAX_ENVS):
        count = min(MAX_ENVS, episodes - begun)
        envs = factory.make(count, problem.costs)
        watcher = None if begun else watch
        seeds = first_seed + begun
        parts.append(first_episodes(envs, policy, deterministic, rng, seeds, watcher))
        envs.close()
    total = Finished(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    costs = {}
    for i, name in enumerate(problem.costs):
        counted = total.discounted_costs if problem.discounted[i] else total.costs
        costs[name] = CostReport(
            value=interval(counted[:, i]),
            undiscounted=interval(total.costs[:, i]),
            limit=problem.limits[i],
            safe_share=float(np.mean(counted[:, i] <= problem.limits[i])),
        )
    return Evaluation(
        episodes, deterministic, interval(total.returns), interval(total.lengths), costs
    )


def play(
    envs: Task, policy: Policy, deterministic: bool, rng: np.random.Generator, seed: int
) -> Iterator[tuple[np.ndarray, Step]]:
    """The first episode of each environment: which of them [N] still run, and the next step.

    Later episodes would favour short ones.
    """
    obs = envs.reset(seed)
    running = np.ones(envs.num_envs, bool)
    while running.any():
        step = envs.step(policy.raw_actions(obs, deterministic=deterministic, rng=rng))
        yield running, step
        obs = step.obs
        running = running & ~(step.terminated | step.truncated)


def first_episodes(
    envs: Task,
    policy: Policy,
    deterministic: bool,
    rng: np.random.Generator,
    seed: int,
    watch: Watcher | None = None,
) -> Finished:
    """The first episode of each environment."""
    gamma, count = policy.config.algorithm.gamma, envs.num_envs
    returns, lengths, discount = np.zeros(count), np.zeros(count, np.int64), 1.0
    costs, discounted = np.zeros((count, len(envs.costs))), np.zeros((count, len(envs.costs)))
    for running, step in play(envs, policy, deterministic, rng, seed):
        returns[running] += step.reward[running]
        lengths[running] += 1
        costs[running] += step.costs[running]
        discounted[running] += discount * step.costs[running]
        discount *= gamma
        if watch:
            watch(envs, running, step)
    return Finished(returns, lengths, costs, discounted)


def interval(values: np.ndarray) -> Interval:
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, -np.inf, np.inf)
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return Interval(mean, mean - reach, mean + reach)
