"""The training loop: the only place where all rooms meet."""

from __future__ import annotations

import dataclasses
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cupola.algos import load_algorithm
from cupola.config import Limits, RunConfig, no_cost, problem_of, resolve
from cupola.core import distributions
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.cores import available_cores
from cupola.errors import CupolaError
from cupola.gym.costs import CostFunction, name_of
from cupola.gym.failures import EnvironmentFailedError
from cupola.gym.options import GymOptions, is_foreign
from cupola.gym.task import factory as gym_factory
from cupola.gym.task import task_name
from cupola.prediction_check import PredictionCheck
from cupola.rollout import (
    Collector,
    Estimates,
    Finished,
    collect,
    collector_sizes,
    make_actor,
    mean_or_nan,
    strip,
)
from cupola.runs import checkpoints
from cupola.runs.directory import Record, RunDirectory
from cupola.seeds import environment_seed
from cupola.signals import stop_requests
from cupola.tasks import make_task, spec_of
from cupola.tasks.base import TaskFactory, TaskSpec, action_arrays
from cupola.types import Batch, Learner, Rollout

Listener = Callable[[Record, Record], None]
"""Called after every iteration with its metrics and timings."""


class NotFiniteError(CupolaError):
    """An array holds NaN or infinity."""


@dataclass(frozen=True)
class Run:
    """A finished or stopped training."""

    path: Path
    config: RunConfig
    metrics: list[Record]
    finished: bool


class Trainer:
    """Everything that changes during a training, and one iteration of it."""

    def __init__(self, config: RunConfig, factory: TaskFactory | None = None) -> None:
        algorithm, options = config.algorithm, config.options
        self.config = config
        self.spec = factory.spec if factory else spec_of(config.task)
        self.problem = problem_of(self.spec, config.limits)
        self.threads = options.threads or available_cores()
        costs = self.problem.costs
        engine_threads = max(1, self.threads // 2)
        self.collectors = [
            Collector(
                factory.make(size, costs)
                if factory
                else make_task(config.task, size, costs, engine_threads),
                algorithm.gamma,
            )
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
        self.prediction_check = PredictionCheck(len(costs), algorithm.gamma)
        seed = environment_seed(options.seed, "train")
        for collector in self.collectors:
            collector.start(seed)
            seed += collector.task.num_envs

    def _start_from(self, path: Path) -> None:
        """Take over another run's networks and statistics, but neither optimisers nor prices."""
        _, arrays, damaged = checkpoints.newest(RunDirectory.open(path).checkpoints)
        for sentence in damaged:
            warnings.warn(sentence, stacklevel=2)
        if not arrays:
            raise CupolaError(f"start_from: {path} has no readable checkpoint.")
        self.learner = self.learner._replace(
            policy=checkpoints.unflatten("learner.policy", arrays, self.learner.policy),
            critics=checkpoints.unflatten("learner.critics", arrays, self.learner.critics),
        )
        self.moments = checkpoints.unflatten("moments", arrays, self.moments)

    def iterate(self) -> tuple[Record, Record]:
        """One iteration: its metrics and its timings."""
        config = self.config.algorithm
        key = jax.random.fold_in(self._key, self.iteration + 1)
        noise_key, update_key = jax.random.split(key)
        began = time.perf_counter()
        shape = (config.batch_size // config.num_envs, config.num_envs, self.spec.act_size)
        noise = np.asarray(distributions.unit_noise(noise_key, shape, self.spec.discrete))
        act = make_actor(self.learner.policy, self.moments, config.obs_clip, config.normalise_obs)
        side_by_side = self.threads > 1 and self.collectors[0].task.parallel
        rollout, finished = collect(self.collectors, act, noise, side_by_side)
        self._check_finite("rollout", rollout._asdict())
        for collector in self.collectors:
            self._check_finite("rollout", {"obs": collector.obs})
        self.estimates.absorb(finished)
        self.prediction_check.absorb(finished)
        collected = time.perf_counter()
        normalised, moments = self._prepare(self.moments, rollout)
        progress = self.iteration / self.config.options.iterations
        batch = Batch(
            rollout=normalised,
            cost_returns=self.estimates.cost_returns.astype(np.float32),
            horizons=self.estimates.horizons.astype(np.float32),
            progress=np.float32(progress),
        )
        learner, *rest = self._algorithm.update(self.learner, batch, update_key, self.threads)
        report, prediction = jax.device_get(rest)
        self._check_finite("update", report | prediction._asdict())
        report |= self.prediction_check.compare(prediction, self.estimates.horizons)
        updated = time.perf_counter()
        self.learner, self.moments = learner, moments
        self.iteration += 1
        metrics = self._record(finished, report)
        metrics |= self.collectors[0].task.extra_metrics(act, config.gamma, self.problem.limits)
        timings = {
            "iteration": self.iteration,
            "rollout_seconds": collected - began,
            "update_seconds": updated - collected,
            "steps_per_second": config.batch_size / (updated - began),
        }
        return metrics, timings

    def _record(self, finished: Finished, report: dict[str, np.ndarray]) -> Record:
        steps = self.iteration * self.config.algorithm.batch_size
        mean_return, length = self.estimates.last
        record: Record = {
            "iteration": self.iteration,
            "steps": steps,
            "episodes": len(finished.returns),
            "length": _number(length),
            "return": _number(mean_return),
        }
        undiscounted = mean_or_nan(finished.costs)
        for i, name in enumerate(self.problem.costs):
            record[f"cost/{name}"] = _number(self.estimates.cost_returns[i])
            record[f"cost_undiscounted/{name}"] = _number(undiscounted[i])
            record[f"limit/{name}"] = self.problem.limits[i]
        for key, value in report.items():
            if np.ndim(value) == 0:
                record[key] = _number(value)
            else:
                for i, name in enumerate(self.problem.costs):
                    record[f"{key}/{name}"] = _number(value[i])
        return record

    def _check_finite(self, where: str, arrays: dict[str, Any]) -> None:
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise NotFiniteError(
                    f"iteration {self.iteration + 1}: {name!r} of the {where} is not finite"
                    f" (task {self.config.task})"
                )

    def save(self) -> checkpoints.Arrays:
        arrays = checkpoints.flatten("learner", self.learner)
        arrays |= checkpoints.flatten("moments", self.moments)
        arrays["inputs"] = self.spec.inputs
        arrays["obs_size"] = np.array(self.spec.obs_size)
        arrays |= action_arrays(self.spec.actions)
        for i, collector in enumerate(self.collectors):
            arrays |= {f"collector{i}.{k}": v for k, v in collector.save().items()}
        arrays |= {f"estimates.{k}": v for k, v in self.estimates.save().items()}
        arrays |= {f"prediction_check.{k}": v for k, v in self.prediction_check.save().items()}
        return arrays

    def restore(self, iteration: int, arrays: checkpoints.Arrays) -> None:
        self.iteration = iteration
        self.learner = checkpoints.unflatten("learner", arrays, self.learner)
        self.moments = checkpoints.unflatten("moments", arrays, self.moments)
        for i, collector in enumerate(self.collectors):
            collector.restore(strip(f"collector{i}.", arrays))
        self.estimates.restore(strip("estimates.", arrays))
        self.prediction_check.restore(strip("prediction_check.", arrays))

    def close(self) -> None:
        for collector in self.collectors:
            collector.task.close()


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


def train(
    algo: str,
    task: str | TaskFactory | None = None,
    *,
    env: Callable[[], Any] | None = None,
    cost: str | CostFunction | None = None,
    preset: str = "paper",
    limits: float | Limits | None = None,
    out: str | Path | None = None,
    listener: Listener | None = None,
    **fields: Any,
) -> Run:
    """Train, write a run directory, and return the run.

    ``limits`` is a number for a task with one cost or a dict of limits by cost; ``fields`` are
    any of `RunOptions` and of the algorithm's `Config`; ``out`` defaults to runs/ALGO-TASK-SEED.

    A Gymnasium environment is the task ``"gym:ID"``, or instead of a task ``env``, a function
    without arguments that makes one. ``cost`` is then a cost function or its name,
    package.module:function, and ``fields`` may also be of `GymOptions`.
    """
    if (task is None) == (env is None):
        raise CupolaError("name a task, for example 'HopperSpeed', or give env=a function.")
    asked = task_name(env) if env is not None else task
    gym = gym_options(asked, cost, fields)
    factory = source(asked, gym, env, None if isinstance(cost, str) else cost, limits)
    spec = factory.spec if factory else spec_of(str(asked))
    fields = {name: value for name, value in fields.items() if name not in GYM_FIELDS}
    config = resolve(algo, spec, preset, limits, fields, gym)
    require_limits(config, spec)
    path = Path(out) if out else default_path(config)
    RunDirectory.refuse_occupied(path)
    trainer = Trainer(config, factory)
    run = RunDirectory.create(path, config.to_json())
    return _loop(run, trainer, listener)


GYM_FIELDS = tuple(field.name for field in dataclasses.fields(GymOptions))


def gym_options(
    task: str | TaskFactory | None, cost: str | CostFunction | None, fields: dict[str, Any]
) -> GymOptions | None:
    """What is asked of a Gymnasium environment; None where the task is not one."""
    asked = {name: value for name, value in fields.items() if name in GYM_FIELDS}
    if cost:
        asked["cost"] = cost if isinstance(cost, str) else name_of(cost)
    if isinstance(task, str) and is_foreign(task):
        return GymOptions(**asked)
    if asked:
        raise CupolaError(
            f"{next(iter(asked))} is for Gymnasium environments (gym:ID): a task of cupola has"
            " its own."
        )
    return None


def source(
    task: str | TaskFactory | None,
    gym: GymOptions | None,
    env: Callable[[], Any] | None,
    cost: CostFunction | None,
    limits: float | Limits | None,
) -> TaskFactory | None:
    """How to make a task that is not in the registry; None where it is."""
    if gym is not None:
        return gym_factory(str(task), gym, env=env, cost=cost, limits=limits)
    return task if isinstance(task, TaskFactory) else None


def require_limits(config: RunConfig, spec: TaskSpec) -> None:
    """Refuse to hold costs to no limit at all, unless the algorithm ignores them anyway."""
    if config.limits or not getattr(load_algorithm(config.algo), "CONSTRAINED", True):
        return
    raise CupolaError(
        f"{spec.name} has no limit yet: give one with --limit or limits= on"
        f" {' or '.join(cost.name for cost in spec.costs)}."
        if spec.costs
        else no_cost(spec)
    )


def resume(
    path: str | Path,
    *,
    listener: Listener | None = None,
    task: TaskFactory | None = None,
    env: Callable[[], Any] | None = None,
    cost: CostFunction | None = None,
) -> Run:
    """Continue a run from its newest readable checkpoint, as if it had never stopped.

    What was given to `train` as a Python object (``task``, ``env``, ``cost``) is given again,
    except functions that can be imported by their names.
    """
    run = RunDirectory.open(Path(path))
    config = RunConfig.from_json(run.config())
    trainer = Trainer(config, task or source(config.task, config.gym, env, cost, config.limits))
    iteration, arrays, damaged = checkpoints.newest(run.checkpoints)
    for sentence in damaged:
        warnings.warn(f"{sentence} Going back to iteration {iteration}.", stacklevel=2)
    if arrays:
        trainer.restore(iteration, arrays)
    return _loop(run, trainer, listener)


def _loop(run: RunDirectory, trainer: Trainer, listener: Listener | None) -> Run:
    options = trainer.config.options
    run.rewind(trainer.iteration)
    try:
        saved = trainer.iteration
        with stop_requests() as stopping:
            while trainer.iteration < options.iterations and not stopping.is_set():
                try:
                    metrics, timings = trainer.iterate()
                except NotFiniteError as error:
                    raise CupolaError(f"{error}; {_last_good(run)}") from None
                except EnvironmentFailedError as error:
                    raise CupolaError(f"{str(error).rstrip('.')}; {_last_good(run)}") from error
                run.log(metrics, timings)
                if trainer.iteration % options.checkpoint_every == 0:
                    run.checkpoint(trainer.iteration, trainer.save(), options.keep_checkpoints)
                    saved = trainer.iteration
                if listener:
                    listener(metrics, timings)
            if trainer.iteration > saved:
                run.checkpoint(trainer.iteration, trainer.save(), options.keep_checkpoints)
    finally:
        run.close()
        trainer.close()
    finished = trainer.iteration == options.iterations
    return Run(run.path, trainer.config, run.metrics(), finished)


def _last_good(run: RunDirectory) -> str:
    saved = checkpoints.iterations(run.checkpoints)
    if not saved:
        return "no checkpoint had been written yet."
    return f"the last good checkpoint is {checkpoints.path_of(run.checkpoints, saved[-1])}."


def default_path(config: RunConfig) -> Path:
    task = re.sub(r"[^\w.-]+", "-", config.task)
    return Path("runs") / f"{config.algo}-{task}-{config.options.seed}"


def _number(value: Any) -> float | int | None:
    """A JSON number; null where it is not known yet."""
    number = np.asarray(value).item()
    return None if isinstance(number, float) and np.isnan(number) else number
