"""The search: choose trials, train them as cells of a sweep, judge them, choose the next."""

from __future__ import annotations

import dataclasses

import numpy as np

from cupola.errors import CupolaError
from cupola.reports.results import load_cell
from cupola.runs.directory import RunDirectory
from cupola.signals import StopRequest
from cupola.sweeps.directory import CellStatus, SweepDirectory
from cupola.sweeps.loop import Pool, Watch, work
from cupola.sweeps.pruning import is_below, level, marks
from cupola.tuning import sampler
from cupola.tuning.directory import StudyDirectory
from cupola.tuning.trials import Outcome, Trial, bars_of

FAILURES = 3
"""Trials in a row that fail before the search gives up: something is wrong with all of them."""


def search(directory: StudyDirectory, pool: Pool, watch: Watch, stopping: StopRequest) -> None:
    """Work on the trials that have not ended, or failed, and then on new ones, to the last."""
    waiting = [
        trial
        for trial in directory.trials
        if trial.outcome is None or trial.outcome.state == "failed"
    ]
    if waiting:
        directory.write()  # a kill may have come between a trial and its cells
    while not stopping.is_set():
        waiting = waiting or choose(directory)
        if not waiting:
            return
        sweep = directory.sweep(waiting)
        statuses = work(sweep, pool, watch, stopping)
        for trial in waiting:
            ended = dataclasses.replace(trial, outcome=judge(directory, sweep, trial, statuses))
            directory.trials[trial.number] = ended
        directory.importances = sampler.importances(directory.study.space, directory.trials)
        directory.write()
        give_up_on_failures(directory.trials)
        waiting = []


def choose(directory: StudyDirectory) -> list[Trial]:
    """The next trials, up to ``at_once`` of them; none when the study has all that it wants.

    They know the outcomes of those before the group, not of each other, whenever these have ended.
    So interruptions and the number of jobs do not matter.
    """
    study, trials = directory.study, directory.trials
    first = len(trials) // study.at_once * study.at_once
    chosen: list[Trial] = []
    for number in range(len(trials), min(first + study.at_once, study.trials)):
        before = [
            trial if trial.number < first else dataclasses.replace(trial, outcome=None)
            for trial in trials
        ]
        values = study.own_values() if number == 0 else None
        bars = bars_of(before, study.base.cells[0].iterations) if study.pruning else ()
        trial = Trial(number, values or sampler.propose(study.space, before, number), bars)
        trials.append(trial)
        chosen.append(trial)
    if chosen:
        directory.write()
    return chosen


def judge(
    directory: StudyDirectory, sweep: SweepDirectory, trial: Trial, statuses: dict[str, CellStatus]
) -> Outcome | None:
    """The outcome of a trial; None where a run of it has not ended."""
    cells = directory.cells(trial)
    states = [statuses[cell.name] for cell in cells]
    failed = next((status for status in states if status.state == "failed"), None)
    if failed:
        return Outcome("failed", failed.reason)
    if any(status.state != "finished" for status in states):
        return None
    iterations = cells[0].iterations
    try:
        runs = [load_cell(sweep, cell) for cell in cells]
        metrics = [RunDirectory.open(sweep.run_path(cell.name)).metrics() for cell in cells]
    except CupolaError as error:
        return Outcome("failed", str(error))
    pruned = any(
        len(lines) < iterations and is_below(lines, bar, iterations)
        for lines in metrics
        for bar in trial.bars
    )
    means = {
        key: float(np.mean([run.final(key) for run in runs]))
        for key in ("return", *(f"cost/{name}" for name in runs[0].limits))
    }
    if not np.isfinite(list(means.values())).all():
        return Outcome("failed", "no episode ended in the last tenth of the iterations")
    found = (level(metrics, mark, iterations) for mark in marks(iterations))
    return Outcome(
        "pruned" if pruned else "finished",
        mean_return=means["return"],
        costs={name: means[f"cost/{name}"] for name in runs[0].limits},
        limits=runs[0].limits,
        levels=tuple(one for one in found if one is not None),
    )


def give_up_on_failures(trials: list[Trial]) -> None:
    """Raise where the last trials failed, one and all."""
    last = [trial.outcome for trial in trials[-FAILURES:]]
    if len(last) == FAILURES and all(one and one.state == "failed" for one in last):
        reason = last[-1].reason.rstrip(".") if last[-1] else ""
        raise CupolaError(
            f"the last {FAILURES} trials failed; trial {trials[-1].number}: {reason}. Put that"
            " right, or narrow the space; the same command tries them again."
        )
