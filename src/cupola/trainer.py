"""Everything that changes during a training, and one iteration of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cupola.algos import load_algorithm
from cupola.best import Best
from cupola.config import RunConfig, problem_of
from cupola.core import distributions
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.episodes import Estimates
from cupola.errors import CupolaError
from cupola.memory import refuse_too_large
from cupola.metrics import metrics_record
from cupola.monitor import Monitor
from cupola.prediction_check import PredictionCheck
from cupola.rollout import Collector, collect, collector_sizes, make_actor, make_prepare, strip
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.schema import Record
from cupola.seeds import environment_seed
from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import TaskFactory, action_arrays
from cupola.types import Batch, Learner


class NotFiniteError(CupolaError):
    """An array holds NaN or infinity."""


class Trainer:
    """Everything that changes during a training, and one iteration of it."""

    def __init__(self, config: RunConfig, factory: TaskFactory) -> None:
        algorithm, options = config.algorithm, config.options
        self.config, self.spec = config, factory.spec
        self.problem = problem_of(self.spec, config.limits)
        refuse_too_large(config, self.problem, self.spec.obs_size)
        self.threads = options.cores
        self.collectors = [
            Collector(factory.make(size, self.problem.costs), algorithm.gamma)
            for size in collector_sizes(algorithm.num_envs)
        ]
        self._key = jax.random.key(options.seed)
        module = load_algorithm(config.algo)
        self._algorithm = module.make(algorithm, self.problem)
        self._prepare = make_prepare(algorithm.obs_clip, algorithm.normalise_obs)
        self.iteration = 0
        self.learner: Learner = self._algorithm.init(jax.random.fold_in(self._key, 0))
        self.moments: Moments = obs_moments.empty(self.problem.obs_size)
        if options.start_from:
            self._start_from(Path(options.start_from))
        window = getattr(algorithm, "cost_window", 0)
        self.estimates = Estimates(self.problem.discounted, algorithm.gamma, window)
        self.prediction_check = PredictionCheck(len(self.problem.costs), algorithm.gamma)
        self.best = Best(self.problem.limits, self.learner.policy, self.moments)
        self.monitor = Monitor(factory, self.problem, options, algorithm.gamma)
        seed = environment_seed(options.seed, "train")
        for collector in self.collectors:
            collector.start(seed)
            seed += collector.task.num_envs

    def _start_from(self, path: Path) -> None:
        """Take over another run's networks and statistics, but no optimiser and no multiplier."""
        run = RunDirectory.open_to_load(path)
        arrays = run.newest_checkpoint(f"start_from: {path} has no readable checkpoint.").arrays
        self.learner = self.learner._replace(
            policy=checkpoints.unflatten("learner.policy", arrays, self.learner.policy),
            critics=checkpoints.unflatten("learner.critics", arrays, self.learner.critics),
        )
        self.moments = checkpoints.unflatten("moments", arrays, self.moments)

    @property
    def engine_name(self) -> str:
        """What computes the rollouts; nothing where there is no choice."""
        return self.collectors[0].task.engine_name

    def iterate(self) -> tuple[Record, Record]:
        """One iteration: its metrics and its timings."""
        config = self.config.algorithm
        key = jax.random.fold_in(self._key, self.iteration + 1)
        noise_key, update_key = jax.random.split(key)
        began = time.perf_counter()
        shape = (config.batch_size // config.num_envs, config.num_envs, self.spec.act_size)
        noise = np.asarray(distributions.unit_noise(noise_key, shape, self.spec.discrete))
        act = self._actor()
        side_by_side = self.threads > 1 and self.collectors[0].task.parallel
        rollout, finished = collect(self.collectors, act, noise, side_by_side)
        self._check_finite("rollout", rollout._asdict())
        for collector in self.collectors:
            self._check_finite("rollout", {"obs": collector.obs})
        self.estimates.absorb(finished)
        self.prediction_check.absorb(finished)
        collected = time.perf_counter()
        normalised, moments = self._prepare(self.moments, rollout)
        batch = Batch(
            rollout=normalised,
            cost_returns=self.estimates.cost_returns.astype(np.float32),
            horizons=self.estimates.horizons.astype(np.float32),
            progress=np.float32(self.config.progress(self.iteration)),
            reach=self.estimates.reach.astype(np.float32),
        )
        learner, *rest = self._algorithm.update(self.learner, batch, update_key, self.threads)
        report, prediction = jax.device_get(rest)
        self._check_finite("update", report)
        self._check_finite("prediction of the update", prediction._asdict())
        self._check_moments(rollout.obs, moments)
        report |= self.prediction_check.compare(prediction, self.estimates.horizons)
        updated = time.perf_counter()
        seen = np.array([self.estimates.last[0], *self.estimates.cost_returns])
        self.best.consider(self.iteration, self.learner.policy, self.moments, seen)
        self.learner, self.moments = learner, moments
        self.iteration += 1
        count = {"iteration": self.iteration, "steps": self.iteration * config.batch_size}
        metrics: Record = count | metrics_record(self.problem, finished, self.estimates, report)
        metrics |= self.collectors[0].task.extra_metrics(act, config.gamma, self.problem.limits)
        timings = {
            "iteration": self.iteration,
            "rollout_seconds": collected - began,
            "update_seconds": updated - collected,
            "steps_per_second": config.batch_size / max(updated - began, 1e-9),
        }
        began = time.perf_counter()
        measured = self.monitor.measure(self.iteration, self._actor)
        if measured:
            timings["evaluation_seconds"] = time.perf_counter() - began
        return metrics | measured, timings

    def _actor(self) -> NetworkActor:
        """The present policy."""
        config = self.config.algorithm
        return make_actor(self.learner.policy, self.moments, config.obs_clip, config.normalise_obs)

    def _check_finite(self, where: str, arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                called = "observations" if name in ("obs", "next_obs") else name
                raise NotFiniteError(
                    f"iteration {self.iteration + 1}: {called!r} of the {where} is not finite"
                    f" (task {self.config.task})"
                )

    def _check_moments(self, obs: np.ndarray, moments: Moments) -> None:
        """Refuse observations so large that the policy would no longer see anything."""
        hidden = ~np.isfinite(moments.squares) | obs_moments.drowned(moments, obs)
        if hidden.any():
            column = self.spec.inputs[np.flatnonzero(hidden)[0]]
            raise NotFiniteError(
                f"iteration {self.iteration + 1}: observation {column} of {self.config.task} is or"
                " was so large that the policy cannot see it any more: scale or bound it in the"
                " environment"
            )

    def save(self) -> checkpoints.Arrays:
        arrays = checkpoints.flatten("learner", self.learner)
        arrays |= checkpoints.flatten("moments", self.moments)
        arrays["inputs"] = self.spec.inputs
        arrays["obs_size"] = np.array(self.spec.obs_size)
        arrays |= action_arrays(self.spec.actions)
        if self.engine_name:
            arrays["engine"] = checkpoints.json_array(self.engine_name)
        if self.spec.parts:
            parts = [part._asdict() for part in self.spec.parts]
            arrays["observation"] = checkpoints.json_array(parts)
        for i, collector in enumerate(self.collectors):
            arrays |= {f"collector{i}.{k}": v for k, v in collector.save().items()}
        arrays |= {f"estimates.{k}": v for k, v in self.estimates.save().items()}
        arrays |= {f"prediction_check.{k}": v for k, v in self.prediction_check.save().items()}
        return arrays | self.best.save()

    def restore(self, iteration: int, arrays: checkpoints.Arrays) -> None:
        self.restore_learner(iteration, arrays)
        with fitting():
            for i, collector in enumerate(self.collectors):
                shape = collector.obs.shape
                collector.restore(strip(f"collector{i}.", arrays))
                if collector.obs.shape != shape:
                    raise ValueError(f"observations of shape {collector.obs.shape}, not {shape}")
            self.prediction_check.restore(strip("prediction_check.", arrays))
            self.best.restore(arrays)

    def restore_learner(self, iteration: int, arrays: checkpoints.Arrays) -> None:
        """What an update needs; the environments stay as they are."""
        self.iteration = iteration
        self.learner = checkpoints.unflatten("learner", arrays, self.learner)
        self.moments = checkpoints.unflatten("moments", arrays, self.moments)
        costs = len(self.problem.costs)
        for name, shape in (("costs", (None, costs)), ("horizons", (None, costs)), ("last", (2,))):
            checkpoints.array_of(arrays, f"estimates.{name}", shape, "f")
        self.estimates.restore(strip("estimates.", arrays))

    def close(self) -> None:
        for collector in self.collectors:
            collector.task.close()


@contextmanager
def fitting() -> Iterator[None]:
    """Turn arrays that are missing or of another shape into a sentence."""
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise CupolaError(f"the checkpoint does not fit its run ({error!r}).") from None


@contextmanager
def closed_on_error(trainer: Trainer) -> Iterator[None]:
    """Leave no worker process behind when a run cannot begin."""
    try:
        yield
    except BaseException:
        trainer.close()
        raise
