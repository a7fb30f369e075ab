"""Evaluations during a training, on episodes of their own: the training does not notice them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cupola.config import RunOptions
from cupola.episodes import mean_or_nan
from cupola.metrics import number
from cupola.rollout import unit_noise, whole_episodes
from cupola.runs.schema import Record
from cupola.seeds import environment_seed
from cupola.tasks.base import Actor, TaskFactory
from cupola.types import Problem

KINDS = ("eval_sampled", "eval_deterministic")
"""Prefixes of the metrics."""


class Monitor:
    """Plays new episodes every so many iterations; its environments live as long as they last."""

    def __init__(
        self, factory: TaskFactory, problem: Problem, options: RunOptions, gamma: float
    ) -> None:
        self._factory, self._problem, self._options = factory, problem, options
        self._gamma = gamma

    def measure(self, iteration: int, make_act: Callable[[], Actor]) -> Record:
        """Metrics of the policy after ``iteration``; null where this one is not evaluated."""
        every = self._options.evaluate_every
        if not every:
            return {}
        due = iteration % every == 0
        record: Record = {}
        for kind in KINDS:
            means = (
                self._play(iteration, make_act(), kind) if due else np.full(2 + self._costs, np.nan)
            )
            names = ("return", "length", *(f"cost/{cost}" for cost in self._problem.costs))
            for name, value in zip(names, means, strict=True):
                record[f"{kind}/{name}"] = number(value)
        return record

    @property
    def _costs(self) -> int:
        return len(self._problem.costs)

    def _play(self, iteration: int, act: Actor, kind: str) -> np.ndarray:
        """Means of return, length and costs [2 + K], the costs as their limits count them."""
        options, spec = self._options, self._factory.spec
        # Other episodes than in any other iteration, and other noise.
        seed = environment_seed(options.seed, "monitor") + iteration * options.evaluate_episodes
        sampled = kind == "eval_sampled"
        rng = np.random.default_rng([options.seed, iteration]) if sampled else None

        def choose(obs: np.ndarray) -> np.ndarray:
            noise = unit_noise(rng, (len(obs), spec.act_size), spec.discrete)
            return act(obs[:, spec.inputs].astype(np.float32), noise)

        count, costs = options.evaluate_episodes, self._problem.costs
        played = whole_episodes(self._factory, costs, count, choose, seed, self._gamma)
        counted = np.where(self._problem.discounted, played.discounted_costs, played.costs)
        return np.array([played.returns.mean(), played.lengths.mean(), *mean_or_nan(counted)])
