"""What updates change: predicted on their own batch and on fresh ones, measured in episodes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from cupola.algos.assembly import make_prediction
from cupola.diagnosis.estimates import over_pairs, over_rows
from cupola.diagnosis.result import RETURN, Change
from cupola.diagnosis.sampling import Drawn, Listener, Subject, episodes
from cupola.types import Learner, Metrics


class Updates(NamedTuple):
    """The algorithm's own update from the checkpoint, each on another batch."""

    learners: dict[int, Learner]  # after the update, by the batch
    predicted: np.ndarray  # [U, 1 + K], mean of (rho - 1) A on the batch of the update
    metrics: Metrics  # of the first one


def update_each(subject: Subject, drawn: Drawn, indices: list[int], tell: Listener) -> Updates:
    learners, predicted, metrics = {}, [], []
    for done, i in enumerate(indices):
        tell("updates", done, len(indices))
        update = subject.algorithm.update(
            subject.learner, drawn.batches[i], subject.key(1, i), subject.trainer.threads
        )
        learners[i] = update.learner
        predicted.append(np.asarray(update.prediction.change))
        metrics.append(jax.device_get(update.metrics))
    tell("updates", len(indices), len(indices))
    return Updates(learners, np.stack(predicted), metrics[0])


def changes(
    subject: Subject, drawn: Drawn, updates: Updates, count: int, tell: Listener
) -> tuple[tuple[Change, ...], int]:
    """Of every signal, and the number of episodes that either policy played."""
    horizon = horizons(subject, drawn)
    values, used = predict_elsewhere(subject, drawn, updates)
    fresh = [over_pairs(h * values[..., k], used) for k, h in enumerate(horizon.tolist())]
    networks = [learner.policy for learner in updates.learners.values()]
    old, new = episodes(subject, networks, count, tell)
    columns = (over_rows(horizon * updates.predicted), fresh, over_rows(new - old))
    names = (RETURN, *subject.problem.costs)
    rows = zip(names, *columns, strict=True)
    return tuple(Change(*row) for row in rows), len(old)


def predict_elsewhere(
    subject: Subject, drawn: Drawn, updates: Updates
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of (rho - 1) A of the policy updated on batch i, on batch j, [M, M, 1 + K].

    Which pairs i, j these are is the second array [M, M]: i was updated on, and has no episode in
    common with j.
    """
    config, problem, count = subject.config, subject.problem, len(drawn.batches)
    predicted = jax.jit(partial(make_prediction, config=config, problem=problem))
    values = np.zeros((count, count, 1 + len(problem.costs)))
    used = np.zeros((count, count), bool)
    for j, batch in enumerate(drawn.batches):
        samples = subject.samples_of(subject.learner, batch)
        for i, learner in updates.learners.items():
            if j in drawn.others(i):
                values[i, j] = predicted(learner.policy, samples, batch).change
                used[i, j] = True
    return values, used


def horizons(subject: Subject, drawn: Drawn) -> np.ndarray:
    """Mean of sum_t gamma^t over the episodes, or of their length, as each signal counts, [1 + K].

    NaN where no episode has ended.
    """
    if not len(drawn.finished.lengths):
        return np.full(1 + len(subject.problem.costs), np.nan)
    discounted = drawn.finished.horizons(subject.config.gamma).mean()
    plain = drawn.finished.lengths.mean()
    return np.where((True, *subject.problem.discounted), discounted, plain)
