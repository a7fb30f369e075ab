"""Fitting the critics, on a second core while the policy is improved on the first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cupola import nets
from cupola.types import Params

State = TypeVar("State")
Result = TypeVar("Result")


class Fit(NamedTuple):
    """Critics and how well they fit."""

    critics: Params
    opt_state: optax.OptState
    losses: jax.Array  # [1 + K], mean squared errors over the last epoch

    @classmethod
    def start(cls, critics: Params, opt_state: optax.OptState) -> Fit:
        count = len(jax.tree.leaves(critics)[0])
        return cls(critics, opt_state, jnp.zeros(count))

    def part(self, which: slice) -> Fit:
        """Some of the critics: each has an optimiser of its own."""
        return jax.tree.map(lambda leaf: leaf[which], self)

    def joined(self, other: Fit) -> Fit:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), self, other)


_POOL = ThreadPoolExecutor(1, thread_name_prefix="cupola-critics")


def losses(critics: Params, obs: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared error of each critic, [1 + K]; ``obs`` [B, O], ``targets`` [B, 1 + K]."""
    return jnp.mean((nets.apply_critics(critics, obs) - targets) ** 2, axis=0)


def loss(
    critics: Params, obs: jax.Array, targets: jax.Array, l2: float
) -> tuple[jax.Array, jax.Array]:
    """Sum over the critics of mean squared error + l2 * sum of squared parameters; the errors."""
    penalty = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(critics))
    errors = losses(critics, obs, targets)
    return jnp.sum(errors) + l2 * penalty, errors


def side_by_side(
    first: Callable[[], Result], second: Callable[[], State], cores: int
) -> tuple[Result, State]:
    """Both results, the second computed on a core of its own where there is one."""
    if cores == 1:
        return first(), second()
    other = _POOL.submit(second)
    return first(), other.result()


def alongside(
    policy_work: Callable[[Callable[[int], None]], Result],
    advance: Callable[[State, np.ndarray], State],
    state: State,
    orders: np.ndarray,
    cores: int,
) -> tuple[Result, State]:
    """Run ``policy_work`` while the critics' epochs run on a second core.

    ``policy_work`` calls its argument with the number of critic epochs that are wanted, as soon
    as it knows it. The critics run ahead, and epochs beyond that number are thrown away, so the
    result does not depend on which side is faster.
    """
    wanted: Future[int] = Future()

    def fit() -> State:
        states = [state]
        for order in orders:
            if wanted.done() and len(states) > wanted.result():
                break
            states.append(jax.block_until_ready(advance(states[-1], order)))
        return states[wanted.result()]

    def work() -> Result:
        try:
            return policy_work(wanted.set_result)
        except BaseException:
            if not wanted.done():
                wanted.set_result(0)
            raise

    return side_by_side(work, fit, cores)
