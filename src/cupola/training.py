"""Training: one iteration, and the loop around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cupola.algos import load_algorithm
from cupola.config import Limits, RunConfig, problem_of, require_limits, run_config, settings_from
from cupola.core import distributions
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.episodes import Estimates
from cupola.errors import CupolaError
from cupola.gym.consent import effects_of_sinks, require_consent
from cupola.gym.costs import CostFunction, name_of
from cupola.gym.failures import EnvironmentFailedError
from cupola.memory import refuse_too_large
from cupola.metrics import metrics_record
from cupola.prediction_check import PredictionCheck
from cupola.rollout import Collector, collect, collector_sizes, make_actor, make_prepare, strip
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.schema import Record
from cupola.runs.sinks import Sink, make_sinks
from cupola.seeds import environment_seed
from cupola.signals import stop_requests
from cupola.task_source import EnvMaker, find_task, task_of
from cupola.tasks.base import TaskFactory, action_arrays
from cupola.types import Batch, Learner

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
        batch = Batch(
            rollout=normalised,
            cost_returns=self.estimates.cost_returns.astype(np.float32),
            horizons=self.estimates.horizons.astype(np.float32),
            progress=np.float32(self.iteration / self.config.options.iterations),
        )
        learner, *rest = self._algorithm.update(self.learner, batch, update_key, self.threads)
        report, prediction = jax.device_get(rest)
        self._check_finite("update", report)
        self._check_finite("prediction of the update", prediction._asdict())
        self._check_moments(rollout.obs, moments)
        report |= self.prediction_check.compare(prediction, self.estimates.horizons)
        updated = time.perf_counter()
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
        return metrics, timings

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
        for i, collector in enumerate(self.collectors):
            arrays |= {f"collector{i}.{k}": v for k, v in collector.save().items()}
        arrays |= {f"estimates.{k}": v for k, v in self.estimates.save().items()}
        arrays |= {f"prediction_check.{k}": v for k, v in self.prediction_check.save().items()}
        return arrays

    def restore(self, iteration: int, arrays: checkpoints.Arrays) -> None:
        self.restore_learner(iteration, arrays)
        with fitting():
            for i, collector in enumerate(self.collectors):
                shape = collector.obs.shape
                collector.restore(strip(f"collector{i}.", arrays))
                if collector.obs.shape != shape:
                    raise ValueError(f"observations of shape {collector.obs.shape}, not {shape}")
            self.prediction_check.restore(strip("prediction_check.", arrays))

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


def train(
    algo: str,
    task: str | TaskFactory | None = None,
    *,
    env: EnvMaker | None = None,
    cost: str | CostFunction | None = None,
    preset: str | None = None,
    limits: float | Limits | None = None,
    out: str | Path | None = None,
    listener: Listener | None = None,
    **fields: Any,
) -> Run:
    """Train, write a run directory, and return the run.

    ``limits`` is a number for a task with one cost or a dict of limits by cost; ``fields`` are
    any of `RunOptions` and of the algorithm's `Config`, in place of what the ``preset`` says;
    ``out`` defaults to runs/ALGO-TASK-SEED.

    A Gymnasium environment is the task ``"gym:ID"``, or instead of a task ``env``, a function
    without arguments that makes one. ``cost`` is then a cost function or its name,
    package.module:function, and ``fields`` may also be of `GymOptions`.
    """
    if task is not None and env is not None:
        raise CupolaError("name a task or give env=a function, not both.")
    if cost:
        fields["cost"] = cost if isinstance(cost, str) else name_of(cost)
    settings = settings_from(algo, preset, fields)
    factory = find_task(
        task,
        env=env,
        cost=None if isinstance(cost, str) else cost,
        gym=settings.gym,
        limits=limits,
        threads=settings.options.engine_threads,
    )
    return start(run_config(algo, factory.spec, limits, settings), factory, out, listener)


def start(
    config: RunConfig,
    factory: TaskFactory,
    out: str | Path | None = None,
    listener: Listener | None = None,
) -> Run:
    """Train what a config says, in a new run directory."""
    require_limits(config, factory.spec)
    path = Path(out) if out else config.default_path()
    RunDirectory.refuse_occupied(path)
    sinks = make_sinks(config.options.sinks)
    trainer = Trainer(config, factory)
    with closed_on_error(trainer):
        run = RunDirectory.create(path, config.to_json())
    with run:
        return _loop(run, trainer, sinks, listener)


def resume(
    path: str | Path,
    *,
    restart: bool = False,
    listener: Listener | None = None,
    task: TaskFactory | None = None,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    trust: bool = False,
) -> Run:
    """Continue a run from its newest readable checkpoint, as if it had never stopped.

    Where work would be lost, it says so and does nothing, unless ``restart`` asks for that: the run
    begins again at iteration 1.

    What was given to `train` as a Python object (``task``, ``env``, ``cost``) is given again,
    except functions that can be imported by their names. With ``trust`` these are imported, and
    services among the sinks are used (docs/security.md).
    """
    with RunDirectory.open_to_load(Path(path)) as run:
        run.lock()
        config = RunConfig.of(run)
        options = config.options
        require_consent(trust, "this run", effects_of_sinks(options.sinks))
        threads = options.engine_threads
        factory = task_of(config, task=task, env=env, cost=cost, threads=threads, trust=trust)
        saved = None if restart else run.recover(options.iterations)
        sinks = make_sinks(options.sinks)
        trainer = Trainer(config, factory)
        with closed_on_error(trainer):
            if saved:
                trainer.restore(saved.iteration, saved.arrays)
        return _loop(run, trainer, sinks, listener)


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


class Keeper:
    """Writes the checkpoints of a training."""

    def __init__(self, run: RunDirectory, trainer: Trainer) -> None:
        self._run, self._trainer, self._saved = run, trainer, trainer.iteration

    def save(self) -> None:
        """A checkpoint of the last iteration, unless there is one."""
        iteration, keep = self._trainer.iteration, self._trainer.config.options.keep_checkpoints
        if iteration > self._saved:
            self._run.checkpoint(iteration, self._trainer.save(), keep)
            self._saved = iteration

    @contextmanager
    def saving_first(self) -> Iterator[None]:
        """Sinks and listeners may fail, but no iteration is lost by it."""
        try:
            yield
        except BaseException:
            self.save()
            raise


def _loop(run: RunDirectory, trainer: Trainer, sinks: list[Sink], listener: Listener | None) -> Run:
    options = trainer.config.options
    finished = False
    try:
        run.rewind(trainer.iteration, options.keep_checkpoints)
        with run.writing():
            for sink in sinks:
                sink.start(run.path, run.config(), trainer.iteration + 1)
        keeper = Keeper(run, trainer)
        with stop_requests() as stopping:
            while trainer.iteration < options.iterations and not stopping.is_set():
                try:
                    metrics, timings = trainer.iterate()
                except NotFiniteError as error:
                    raise CupolaError(f"{error}; {run.last_good()}") from None
                except EnvironmentFailedError as error:
                    raise CupolaError(f"{str(error).rstrip('.')}; {run.last_good()}") from error
                run.log(metrics, timings)
                is_last = trainer.iteration == options.iterations or stopping.is_set()
                if is_last or trainer.iteration % options.checkpoint_every == 0:
                    keeper.save()
                with run.writing(), keeper.saving_first():
                    for sink in sinks:
                        sink.log(metrics, timings)
                with keeper.saving_first():
                    if listener:
                        listener(metrics, timings)
            keeper.save()
        finished = trainer.iteration == options.iterations
    finally:
        for sink in sinks:
            sink.close(finished)
        trainer.close()
    return Run(run.path, trainer.config, run.metrics(), finished)
