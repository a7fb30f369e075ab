"""How good and how safe a trained policy is, on fresh episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from cupola import rollout
from cupola.config import problem_of
from cupola.errors import CupolaError
from cupola.gym.costs import CostFunction
from cupola.policy import Policy
from cupola.rollout import StepWatcher
from cupola.runs.schema import Record
from cupola.seeds import environment_seed
from cupola.task_source import EnvMaker, task_of
from cupola.tasks.base import Task, TaskFactory
from cupola.types import Step


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval (Student's t; open for a single episode)."""

    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        return {k: v if math.isfinite(v) else None for k, v in self._asdict().items()}


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

    def to_json(self) -> Record:
        """As JSON can hold it; unknown ends of an interval are null."""
        kind = "deterministic" if self.deterministic else "sampled"
        return {"episodes": self.episodes, "actions": kind, **self.summary()}

    def summary(self) -> Record:
        """Return, length and costs alone."""
        return {
            "return": self.returns.to_json(),
            "length": self.lengths.to_json(),
            "costs": {
                name: {
                    **cost.value.to_json(),
                    "undiscounted": cost.undiscounted.to_json(),
                    "limit": cost.limit,
                    "safe_share": cost.safe_share,
                }
                for name, cost in self.costs.items()
            },
        }


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
    tell: Callable[[str, int, int], None] = lambda title, done, total: None,
    watch: StepWatcher | None = None,
) -> Evaluation:
    """Run whole episodes of the policy's own task, none of which was seen in training.

    ``task``, ``env``, ``cost`` and ``trust`` as in `cupola.resume`; ``tell`` hears how many
    episodes have ended, ``watch`` sees the first ones.
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
    rng = np.random.default_rng(seed)
    total = rollout.whole_episodes(
        factory,
        problem.costs,
        episodes,
        lambda obs: policy.raw_actions(obs, deterministic=deterministic, rng=rng),
        environment_seed(seed, "evaluate"),
        config.algorithm.gamma,
        lambda ended: tell("episodes", ended, episodes),
        watch,
    )
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
    """The first episode of each environment: which of them [N] still run, and the next step."""
    return rollout.play(
        envs, lambda obs: policy.raw_actions(obs, deterministic=deterministic, rng=rng), seed
    )


def interval(values: np.ndarray) -> Interval:
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, -np.inf, np.inf)
    from scipy.special import stdtrit  # slow to import, and not needed where a run is refused

    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = float(stdtrit(len(values) - 1, 0.975)) * error  # Student's t
    return Interval(mean, mean - reach, mean + reach)
