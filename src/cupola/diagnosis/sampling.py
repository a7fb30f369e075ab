"""A run's policy standing still: fresh batches and fresh episodes of it."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from cupola.algos import load_algorithm
from cupola.algos.assembly import make_samples
from cupola.algos.config import OnPolicyConfig
from cupola.config import RunConfig, build
from cupola.core import distributions
from cupola.episodes import Finished
from cupola.evaluation import play
from cupola.gym.costs import CostFunction
from cupola.nets import Policy as Network
from cupola.policy import Policy
from cupola.rollout import MAX_ENVS, collect, make_actor, make_prepare
from cupola.runs import checkpoints
from cupola.runs.directory import open_checkpoint
from cupola.seeds import environment_seed
from cupola.task_source import EnvMaker, task_of
from cupola.tasks.base import Task, TaskFactory
from cupola.trainer import Trainer, closed_on_error
from cupola.types import Algorithm, Batch, Learner, Problem, Rollout, Samples

Listener: TypeAlias = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

AHEAD = 400
"""Steps that a discounted return is summed over at least: 0.99^400 is 0.02."""
SPAN = 2000
"""Steps after which two batches are taken to have no episode in common, where the time limit is
longer or there is none to speak of."""
FAR = 1e9
"""A bound on the KL that nothing reaches: with it the KL is looked at where delta is inf."""


class Subject:
    """A run as a checkpoint left it, in memory: nothing is written to its directory.

    ``settings`` replace fields of the algorithm's config.
    """

    def __init__(
        self,
        path: Path,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        *,
        task: TaskFactory | None = None,
        env: EnvMaker | None = None,
        cost: CostFunction | None = None,
        trust: bool = False,
    ) -> None:
        run, (iteration, arrays, _) = open_checkpoint(path)
        config = RunConfig.of(run)
        # The checkpoint replaces all that another run would give, which may be gone by now.
        options = dataclasses.replace(config.options, start_from="")
        algorithm = build(type(config.algorithm), vars(config.algorithm) | dict(settings or {}))
        config = dataclasses.replace(config, options=options, algorithm=algorithm)
        threads = options.engine_threads
        self.factory = task_of(config, task=task, env=env, cost=cost, threads=threads, trust=trust)
        self.trainer = trainer = Trainer(config, self.factory)
        self.seed, self.run_config = seed, config
        # A finished run has no next iteration: then as in the last one, in which rates are not 0.
        self.progress = config.progress(min(iteration, options.iterations - 1))
        with closed_on_error(trainer):
            fresh = trainer.learner.critic_memory
            if fresh and settings and {"batch_size", "critic_memory"} & set(settings):
                # A memory of batches of another size, or of none, is of no use: it begins empty.
                arrays = arrays | checkpoints.flatten("learner.critic_memory", fresh)
            trainer.restore_learner(iteration, arrays)
            first = self.first_seed
            for collector in trainer.collectors:
                collector.start(first)
                first += collector.task.num_envs

    @property
    def first_seed(self) -> int:
        """Of the environments: none of them was met in training."""
        return environment_seed(self.seed, "diagnose")

    @property
    def config(self) -> OnPolicyConfig:
        return self.run_config.algorithm

    @property
    def problem(self) -> Problem:
        return self.trainer.problem

    @property
    def learner(self) -> Learner:
        return self.trainer.learner

    @cached_property
    def algorithm(self) -> Algorithm:
        config = self.config
        if getattr(config, "delta", 0.0) == math.inf:
            config = dataclasses.replace(config, delta=FAR)  # type: ignore[call-arg]
        return load_algorithm(self.run_config.algo).make(config, self.problem)

    @cached_property
    def samples_of(self) -> Callable[[Learner, Batch], Samples]:
        """The samples that an update takes of a batch, compiled."""
        return jax.jit(partial(make_samples, config=self.config, problem=self.problem))

    def key(self, purpose: int, index: int) -> jax.Array:
        """A random key of its own for each purpose and index."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), purpose), index)

    def close(self) -> None:
        self.trainer.close()


@dataclasses.dataclass(frozen=True)
class Drawn:
    """M fresh batches in order of time."""

    batches: list[Batch]
    stream: Rollout  # the batches one after another, and some steps behind the last one
    finished: Finished
    apart: int

    def others(self, index: int) -> list[int]:
        """Batches that have no episode in common with this one."""
        return [j for j in range(len(self.batches)) if abs(j - index) >= self.apart]

    def to_update(self, count: int) -> list[int]:
        """The first ``count`` batches that have others to be compared with."""
        return [i for i in range(len(self.batches)) if self.others(i)][:count]


def draw(subject: Subject, count: int, tell: Listener) -> Drawn:
    """Batches of the run's own size, as many as have the pairs of ``count`` independent ones.

    The environments have seeds of their own. As in a training that has gone on for long, they
    stand at all times of an episode when the first batch begins. Batches follow one another: those
    that are less than an episode apart are never compared.
    """
    trainer, config = subject.trainer, subject.config
    length = config.batch_size // config.num_envs
    span = min(trainer.spec.time_limit, SPAN)
    apart = 1 + math.ceil((span - 1) / length)
    total = count + apart - 1
    warm_up, tail = math.ceil(span / length), math.ceil(ahead_of(trainer.spec.time_limit) / length)
    act = make_actor(trainer.learner.policy, trainer.moments, config.obs_clip, config.normalise_obs)
    prepare = make_prepare(config.obs_clip, config.normalise_obs)
    shape = (length, config.num_envs, trainer.spec.act_size)
    side_by_side = trainer.threads > 1 and trainer.collectors[0].task.parallel
    rollouts, ended = [], []
    steps = warm_up + total + tail
    for i in range(steps):
        tell("batches", i, steps)
        key = subject.key(0, i)
        noise = np.asarray(distributions.unit_noise(key, shape, trainer.spec.discrete))
        rollout, finished = collect(trainer.collectors, act, noise, side_by_side)
        if i >= warm_up:
            rollouts.append(jax.device_get(prepare(trainer.moments, rollout)[0]))
            ended.append(finished)
    tell("batches", steps, steps)
    stream = Rollout(*(np.concatenate(column) for column in zip(*rollouts, strict=True)))
    batches = []
    for i in range(total):
        estimates = copy.copy(trainer.estimates)
        estimates.absorb(ended[i])
        part = slice(i * length, (i + 1) * length)
        batches.append(
            Batch(
                rollout=Rollout(*(array[part] for array in stream)),
                cost_returns=estimates.cost_returns.astype(np.float32),
                horizons=estimates.horizons.astype(np.float32),
                progress=np.float32(subject.progress),
                reach=estimates.reach.astype(np.float32),
            )
        )
    joined = Finished(*(np.concatenate(column) for column in zip(*ended, strict=True)))
    return Drawn(batches, stream, joined, apart)


def ahead_of(time_limit: int) -> int:
    """Steps that must follow one whose return is known, but for what a critic says at the cut."""
    return min(AHEAD, time_limit // 2)


def episodes(
    subject: Subject, networks: list[Network], count: int, tell: Listener
) -> tuple[np.ndarray, np.ndarray]:
    """Returns [E, 1 + K] of the standing policy, and of the ``networks`` in turn.

    E is ``count`` or a little more, so that each network plays as often. Row by row both meet the
    same beginning and the same noise, which makes differences less noisy than the returns.
    """
    each = math.ceil(count / len(networks))
    pieces = math.ceil(each / MAX_ENVS)
    size, rounds = math.ceil(each / pieces), len(networks) * pieces
    first = subject.first_seed + subject.config.num_envs
    old, new = [], []
    envs = subject.factory.make(size, subject.problem.costs)
    try:
        for i in range(rounds):
            tell("episodes", i * size, rounds * size)
            seed, noise = first + i * size, (subject.seed, i)
            old.append(play_returns(subject, subject.learner.policy, envs, seed, noise))
            new.append(play_returns(subject, networks[i % len(networks)], envs, seed, noise))
    finally:
        envs.close()
    tell("episodes", rounds * size, rounds * size)
    return np.concatenate(old), np.concatenate(new)


def play_returns(
    subject: Subject, network: Network, envs: Task, seed: int, noise: tuple[int, ...]
) -> np.ndarray:
    """Discounted return and costs, as their limits count them, of one episode each, [N, 1 + K]."""
    spec, trainer = subject.trainer.spec, subject.trainer
    policy = Policy(
        subject.run_config,
        trainer.iteration,
        network,
        trainer.moments,
        spec.inputs,
        spec.obs_size,
        spec.actions,
    )
    discounts = np.where((True, *subject.problem.discounted), subject.config.gamma, 1.0)
    weights, totals = np.ones_like(discounts), np.zeros((envs.num_envs, len(discounts)))
    rng = np.random.default_rng(noise)
    for running, step in play(envs, policy, False, rng, seed):
        signals = np.concatenate([step.reward[:, None], step.costs], axis=1)
        totals[running] += weights * signals[running]
        weights = weights * discounts
    return totals
