"""The whole diagnosis of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cupola import zoo
from cupola.diagnosis.advice import advise
from cupola.diagnosis.changes import changes, update_each
from cupola.diagnosis.critics import explained
from cupola.diagnosis.estimates import over_rows
from cupola.diagnosis.gradients import gradients
from cupola.diagnosis.kl_trace import kl_traces
from cupola.diagnosis.multipliers import multipliers
from cupola.diagnosis.result import RETURN, Diagnosis, Level
from cupola.diagnosis.sampling import Drawn, Listener, Subject, draw
from cupola.errors import CupolaError
from cupola.gym.costs import CostFunction
from cupola.memory import refuse_too_large
from cupola.task_source import EnvMaker
from cupola.tasks.base import TaskFactory


def diagnose(
    path: str | Path,
    *,
    batches: int = 8,
    episodes: int = 40,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    tell: Listener = lambda title, done, total: None,
    task: TaskFactory | None = None,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    trust: bool = False,
) -> Diagnosis:
    """Measure a run at its newest checkpoint, or at the checkpoint whose file ``path`` is.

    The policy stands still. ``batches`` is the number of independent batches that are compared,
    and of updates that are tried; ``episodes`` is how many the old and the new policies play.
    ``settings`` are fields of the algorithm's config to be tried instead of the run's own. Nothing
    is written. ``task``, ``env``, ``cost`` and ``trust`` as in `cupola.resume`.
    """
    for name, value in (("batches", batches), ("episodes", episodes)):
        if value < 2:
            raise CupolaError(f"{name} must be at least 2, not {value}.")
    if seed < 0:
        raise CupolaError(f"seed must not be negative, not {seed}.")
    if zoo.is_named(path):
        raise CupolaError(f"{path} is a policy alone: a diagnosis needs a run with its critics.")
    subject = Subject(Path(path), seed, settings, task=task, env=env, cost=cost, trust=trust)
    try:
        trainer = subject.trainer
        refuse_too_large(subject.run_config, trainer.problem, trainer.spec.obs_size, batches)
        drawn = draw(subject, batches, tell)
        slopes = gradients(subject, drawn, tell)
        indices = drawn.to_update(batches)
        updates = update_each(subject, drawn, indices, tell)
        changed, played = changes(subject, drawn, updates, episodes, tell)
        found = Diagnosis(
            run=str(path),
            algo=subject.run_config.algo,
            task=subject.run_config.task,
            iteration=subject.trainer.iteration,
            settings=dict(settings or {}),
            batch_size=subject.config.batch_size,
            batches=len(drawn.batches),
            apart=drawn.apart,
            updates=len(indices),
            episodes=played,
            progress=subject.progress,
            levels=levels(subject, drawn),
            critics=explained(subject, drawn, updates.learners),
            gradients=slopes,
            changes=changed,
            kl=kl_traces(subject, indices[0], drawn.batches[indices[0]], updates.metrics),
            multipliers=multipliers(subject, drawn),
        )
        return found._replace(findings=advise(found, subject.config))
    finally:
        subject.close()


def levels(subject: Subject, drawn: Drawn) -> tuple[Level, ...]:
    """Mean return and costs of the episodes that ended in the batches."""
    finished, problem = drawn.finished, subject.problem
    costs = np.where(problem.discounted, finished.discounted_costs, finished.costs)
    rows = np.concatenate([finished.returns[:, None], costs], axis=1)
    limits = (None, *problem.limits)
    named = zip((RETURN, *problem.costs), over_rows(rows), limits, strict=True)
    return tuple(Level(*row) for row in named)
