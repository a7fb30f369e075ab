"""How much of the returns the critics explain, on steps whose discounted return is known."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.algos.assembly import endless_costs
from cupola.algos.config import OnPolicyConfig
from cupola.core.advantages import gae
from cupola.core.samples import later_values, signals
from cupola.diagnosis.result import RETURN, Explained
from cupola.diagnosis.sampling import Drawn, Subject, ahead_of
from cupola.types import Array, Learner, Params, Problem, Rollout


class Returns(NamedTuple):
    """Discounted returns [T, N, 1 + K] from each step on, and where enough steps follow it."""

    values: np.ndarray
    known: np.ndarray

    def part(self, index: int, length: int) -> Returns:
        rows = slice(index * length, (index + 1) * length)
        return Returns(self.values[rows], self.known[rows])


def explained(subject: Subject, drawn: Drawn, updated: dict[int, Learner]) -> tuple[Explained, ...]:
    """Of every critic; ``updated`` are the learners after an update, by the batch of the update."""
    returns = look_ahead(
        drawn.stream,
        subject.learner.critics,
        subject.config,
        subject.problem,
        ahead_of(subject.trainer.spec.time_limit),
    )
    length = len(drawn.batches[0].rollout.rewards)
    parts = [returns.part(i, length) for i in range(len(drawn.batches))]
    together = returns.part(0, length * len(parts))
    scale = variances(together)

    def share(critics: Params, indices: list[int]) -> np.ndarray:
        found = [squared_errors(critics, drawn.batches[i].rollout.obs, parts[i]) for i in indices]
        errors, counts = (np.sum(column, axis=0) for column in zip(*found, strict=True))
        with np.errstate(invalid="ignore", divide="ignore"):
            return 1 - errors / counts / scale

    before = share(subject.learner.critics, list(range(len(parts))))
    own = np.mean([share(learner.critics, [i]) for i, learner in updated.items()], axis=0)
    other = np.mean(
        [share(learner.critics, drawn.others(i)) for i, learner in updated.items()], axis=0
    )
    names = (RETURN, *subject.problem.costs)
    rows = np.stack([before, own, other], axis=1).tolist()
    return tuple(Explained(name, *row) for name, row in zip(names, rows, strict=True))


def look_ahead(
    rollout: Rollout, critics: Params, config: OnPolicyConfig, problem: Problem, ahead: int
) -> Returns:
    """Sums to the end of each episode, or to a cut, at which the critics say what comes.

    A return is known from a step on if the task itself ends the episode, or if at least ``ahead``
    steps follow before a time limit or the end of the rollout cuts it. Where a termination does not
    end a cost (`endless_costs`), what would have come is as in an update.
    """
    endless = np.array((False, *endless_costs(config, problem)))
    over = rollout.terminated[..., None] & ~endless
    if config.time_limit == "terminal":
        over = over | rollout.truncated[..., None]
    cut = (rollout.terminated | rollout.truncated)[..., None] & ~over

    def sums(signal: jax.Array, now: jax.Array, later: jax.Array, gamma: float) -> np.ndarray:
        return np.asarray(gae(signal, now, later, over, cut, gamma=gamma, lam=1.0) + now)

    now = nets.apply_critics(critics, rollout.obs)
    later = later_values(critics, rollout, config.gamma, config.cost_termination == "goes_on")
    none = jnp.zeros_like(now)
    ends = jnp.asarray(over | rollout.terminated[..., None])
    steps = sums(jnp.where(ends, 1.0 + ahead, 1.0), none, none, 1.0)
    return Returns(sums(signals(rollout), now, later, config.gamma), steps > ahead)


def variances(returns: Returns) -> np.ndarray:
    """Of the known returns, [1 + K]; NaN where there are none or all are alike."""
    columns = range(returns.values.shape[-1])
    chosen = [returns.values[..., k][returns.known[..., k]].astype(float) for k in columns]
    found = np.array([column.var() if len(column) else np.nan for column in chosen])
    return np.where(found > 0, found, np.nan)


def squared_errors(critics: Params, obs: Array, returns: Returns) -> tuple[np.ndarray, np.ndarray]:
    """Sum of squared errors of each critic on known returns, and the number of these, [1 + K]."""
    errors = np.asarray(nets.apply_critics(critics, obs)) - returns.values.astype(np.float64)
    squares = np.where(returns.known, errors**2, 0.0)
    return squares.sum(axis=(0, 1)), returns.known.sum(axis=(0, 1))
