"""Training: the loop, and what begins and continues it."""

from __future__ import annotations

import dataclasses
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from cupola.best import Standing
from cupola.checks import check
from cupola.config import (
    Ending,
    Limits,
    RunConfig,
    RunOptions,
    require_limits,
    run_config,
    settings_from,
    warn_of_limits,
)
from cupola.errors import CupolaError, CupolaWarning
from cupola.gym.consent import effects_of_sinks, require_consent
from cupola.gym.costs import CostFunction, name_of
from cupola.gym.failures import EnvironmentFailedError
from cupola.naming import counted
from cupola.runs import checkpoints, schema
from cupola.runs.checkpoints import Checkpoint
from cupola.runs.directory import RunDirectory
from cupola.runs.schema import Record
from cupola.runs.sinks import Sink, make_sinks
from cupola.signals import stop_requests
from cupola.task_source import EnvMaker, find_task, task_of
from cupola.tasks.base import TaskFactory
from cupola.trainer import NotFiniteError, Trainer, closed_on_error


class Stop:
    """What a listener returns to end the run."""

    def __repr__(self) -> str:
        return "cupola.STOP"


STOP: Final = Stop()
Listener = Callable[[Record, Record], object]
"""Called after every iteration with its metrics and timings; `STOP` as an answer ends the run."""
DecayChoice = Literal["stretch", "restart"]


class Watcher(Protocol):
    """Shows a training to somebody."""

    def begin(self, config: RunConfig, done: int) -> None:
        """Iterations begin, after so many that are done already."""

    def __call__(self, metrics: Record, timings: Record) -> None:
        """An iteration is done."""

    def stopping(self) -> None:
        """A request to stop has come; called from any thread, perhaps twice."""


@dataclass(frozen=True, repr=False)
class Run:
    """A finished or stopped training."""

    path: Path
    config: RunConfig
    metrics: list[Record]
    finished: bool
    """Whether all iterations are done, or the run was ended before (``config.ended``)."""
    best: Standing | None = None
    """How the best policy did, which is kept in the checkpoints."""
    began: int = 0
    """Iterations that were done before."""
    stopped_by: signal.Signals | None = None
    """The signal that stopped the training."""

    def __repr__(self) -> str:
        config, done = self.config, counted(len(self.metrics), "iteration")
        state = "finished" if self.finished else f"stopped before {config.options.iterations}"
        return f"<cupola.Run {config.algo} on {config.task}, {done} ({state}): {str(self.path)!r}>"


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
    watcher: Watcher | None = None,
    **fields: Any,
) -> Run:
    """As `cupola.train` (interface.py), shown to a ``watcher``; a signal stops it and returns."""
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
    config = run_config(algo, factory.spec, limits, settings)
    if limits is not None:
        warn_of_limits(config)
    return start(config, factory, out, listener, watcher)


def start(
    config: RunConfig,
    factory: TaskFactory,
    out: str | Path | None = None,
    listener: Listener | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Train what a config says, in a new run directory."""
    require_limits(config, factory.spec)
    path = Path(out) if out else config.default_path(factory.spec)
    RunDirectory.refuse_occupied(path)
    sinks = make_sinks(config.options.sinks)
    trainer = Trainer(config, factory)
    with closed_on_error(trainer):
        run = RunDirectory.create(path, config.to_json())
    with run:
        return _loop(run, trainer, sinks, listener, watcher)


def resume(
    path: str | Path,
    *,
    restart: bool = False,
    iterations: int | None = None,
    decay: DecayChoice = "stretch",
    listener: Listener | None = None,
    watcher: Watcher | None = None,
    task: TaskFactory | None = None,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    trust: bool = False,
) -> Run:
    """As `cupola.resume` (interface.py), shown to a ``watcher``; a signal stops it and returns."""
    choices = get_args(DecayChoice)
    check(decay in choices, f"decay must be one of {', '.join(choices)}, not {decay!r}.")
    if iterations is not None:
        RunOptions(iterations=iterations)  # refuses what is impossible
    with RunDirectory.open_to_load(Path(path)) as run:
        run.lock()
        config = RunConfig.of(run)
        options = config.options
        require_consent(trust, "this run", effects_of_sinks(options.sinks))
        threads = options.engine_threads
        factory = task_of(config, task=task, env=env, cost=cost, threads=threads, trust=trust)
        most = max(options.iterations, iterations or 0)
        saved = None if restart else run.recover(most)
        done = saved.iteration if saved else 0
        asked = config
        if iterations is not None or restart:
            config = config.trained_on(done, iterations or options.iterations, decay == "restart")
        sinks = make_sinks(options.sinks)
        trainer = Trainer(config, factory)
        with closed_on_error(trainer):
            if saved:
                trainer.restore(saved.iteration, saved.arrays)
                warn_of_engine(saved, trainer.engine_name)
            if config != asked:
                run.rewrite_config(config.to_json())
        return _loop(run, trainer, sinks, listener, watcher)


def warn_of_engine(saved: Checkpoint, now: str) -> None:
    """Both engines give the same physics, but round a policy's actions differently.

    Checkpoints of earlier versions do not say which one it was.
    """
    if "engine" not in saved.arrays:
        return
    before = checkpoints.from_json_array(saved.arrays, "engine", schema.Text())
    if now != before:
        warnings.warn(
            f"iteration {saved.iteration} was computed by the {before} engine, and the run goes on"
            f" with {now} (CUPOLA_ENGINE): from here on its numbers will not be exactly those of a"
            " run that never stopped.",
            CupolaWarning,
            stacklevel=3,
        )


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


def _loop(
    run: RunDirectory,
    trainer: Trainer,
    sinks: list[Sink],
    listener: Listener | None,
    watcher: Watcher | None,
) -> Run:
    options, config, began = trainer.config.options, trainer.config, trainer.iteration
    finished = False
    try:
        run.rewind(began, options.keep_checkpoints)
        with run.writing():
            for sink in sinks:
                sink.start(run.path, run.config(), began + 1)
        keeper = Keeper(run, trainer)
        if watcher and began < config.last:
            watcher.begin(config, began)
        with stop_requests(watcher.stopping if watcher else lambda: None) as stopping:
            while trainer.iteration < config.last and not stopping.is_set():
                try:
                    metrics, timings = trainer.iterate()
                except NotFiniteError as error:
                    raise CupolaError(f"{error}; {run.last_good()}") from None
                except EnvironmentFailedError as error:
                    raise CupolaError(f"{str(error).rstrip('.')}; {run.last_good()}") from error
                run.log(metrics, timings)
                if out_of_patience(trainer):
                    reason = f"no better policy for {options.patience} iterations"
                    config = end(run, config, trainer.iteration, reason)
                is_last = trainer.iteration == config.last or stopping.is_set()
                if is_last or trainer.iteration % options.checkpoint_every == 0:
                    keeper.save()
                with run.writing(), keeper.saving_first():
                    for sink in sinks:
                        sink.log(metrics, timings)
                with keeper.saving_first():
                    if watcher:
                        watcher(metrics, timings)
                    if listener and listener(metrics, timings) is STOP:
                        reason = "a listener returned STOP"
                        config = end(run, config, trainer.iteration, reason)
            keeper.save()
        finished = trainer.iteration == config.last
    finally:
        for sink in sinks:
            sink.close(finished)
        trainer.close()
    asked = stopping.number
    return Run(run.path, config, run.metrics(), finished, trainer.best.standing, began, asked)


def out_of_patience(trainer: Trainer) -> bool:
    """Whether too many policies in a row were no better than the best one."""
    patience, best = trainer.config.options.patience, trainer.best.standing
    return patience > 0 and best is not None and trainer.iteration - 1 - best.iteration >= patience


def end(run: RunDirectory, config: RunConfig, iteration: int, reason: str) -> RunConfig:
    """The config of a run that ends with this iteration.

    It is written before the last checkpoint: a run that is killed in between ends with the same
    iteration when it is resumed.
    """
    if iteration == config.last:
        return config
    config = dataclasses.replace(config, ended=Ending(iteration, reason))
    run.rewrite_config(config.to_json())
    return config
