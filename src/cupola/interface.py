"""`cupola.train` and `cupola.resume`: trainings that show their progress and can be stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cupola import training
from cupola.config import Limits
from cupola.display import ProgressDisplay, Terminal, summary_of
from cupola.errors import CupolaError
from cupola.gym.costs import CostFunction
from cupola.output import forgiving_output
from cupola.task_source import EnvMaker
from cupola.tasks.base import TaskFactory
from cupola.training import DecayChoice, Listener, Run, Watcher


def train(
    algo: str,
    task: str | TaskFactory | None = None,
    *,
    env: EnvMaker | None = None,
    cost: str | CostFunction | None = None,
    preset: str | None = None,
    limits: float | Limits | None = None,
    limit: float | Limits | None = None,
    out: str | Path | None = None,
    listener: Listener | None = None,
    progress: bool = True,
    **fields: Any,
) -> Run:
    """Train, write a run directory, and return the run.

    ``limits`` (or ``limit``) is a number for a task with one cost or a dict of limits by cost;
    ``fields`` are any of `RunOptions` and of the algorithm's `Config`, in place of what the
    ``preset`` says; ``out`` defaults to a directory in runs/ that is named after what is asked for.

    A Gymnasium environment is the task ``"gym:ID"``, or instead of a task ``env``, a function
    without arguments that makes one. ``cost`` is then a cost function or its name,
    package.module:function, and ``fields`` may also be of `GymOptions`.

    ``listener`` is called after every iteration with its metrics and timings, and may return
    `cupola.STOP` to end the run. ``progress=False`` prints nothing. After a Ctrl-C there is a
    checkpoint, and then the usual KeyboardInterrupt.
    """
    if limit is not None and limits is not None:
        raise CupolaError("limit and limits are the same: give one of them.")
    return _shown(
        progress,
        lambda watcher: training.train(
            algo,
            task,
            env=env,
            cost=cost,
            preset=preset,
            limits=limit if limits is None else limits,
            out=out,
            listener=listener,
            watcher=watcher,
            **fields,
        ),
    )


def resume(
    path: str | Path,
    *,
    restart: bool = False,
    iterations: int | None = None,
    decay: DecayChoice = "stretch",
    listener: Listener | None = None,
    progress: bool = True,
    task: TaskFactory | None = None,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    trust: bool = False,
) -> Run:
    """Continue a run from its newest readable checkpoint, as if it had never stopped.

    Where work would be lost, it says so and does nothing, unless ``restart`` asks for that: the run
    begins again at iteration 1.

    ``iterations`` is a new number of iterations, more or fewer than the run was asked for. A run
    that was finished or ended then goes on. The ``decay`` of the learning rates is stretched: from
    now on they are what they would be in a run of so many iterations. With ``decay="restart"`` they
    begin again at their full values. A run that its ``patience`` ended goes on without it.

    What was given to `train` as a Python object (``task``, ``env``, ``cost``) is given again,
    except functions that can be imported by their names. With ``trust`` these are imported, and
    services among the sinks are used (docs/security.md). ``listener`` and ``progress`` as in
    `train`.
    """
    return _shown(
        progress,
        lambda watcher: training.resume(
            path,
            restart=restart,
            iterations=iterations,
            decay=decay,
            listener=listener,
            watcher=watcher,
            task=task,
            env=env,
            cost=cost,
            trust=trust,
        ),
    )


def _shown(progress: bool, work: Callable[[Watcher | None], Run]) -> Run:
    """Do the work and show it; a signal that stopped it is passed on afterwards."""
    if not progress:
        run = work(None)
    else:
        with forgiving_output():
            console = Terminal()
            with ProgressDisplay(console) as display:
                run = work(display)
            conclude(console, run)
    if run.stopped_by is not None:
        signal.raise_signal(run.stopped_by)
    return run


def conclude(console: Terminal, run: Run) -> None:
    """The closing table, where the run is, and what became of it."""
    if run.metrics:
        console.print(summary_of(run))
    ended = run.config.ended
    if not run.finished:
        state = f"stopped; continue with cupola.resume({str(run.path)!r})"
    elif ended:
        state = f"ended at iteration {ended.iteration}: {ended.reason}"
    else:
        state = "already finished" if run.began == len(run.metrics) else "finished"
    console.print(f"{run.path}: {state}", soft_wrap=True)
