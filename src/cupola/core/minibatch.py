"""Minibatch descent: epochs over shuffled samples, ended early by a divergence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cupola.types import Params


class Descent(NamedTuple):
    """Where a minibatch descent stands."""

    params: Params
    opt_state: optax.OptState


def shuffles(key: jax.Array, epochs: int, size: int, minibatch: int) -> np.ndarray:
    """Indices [epochs, size // minibatch, minibatch]: each epoch visits the samples in a new order.

    The remainder of the division is left out of an epoch, a different one each time. Drawn on
    the host: a sort on the device costs more than the descent step that it serves.
    """
    rng = np.random.Generator(np.random.Philox(np.asarray(jax.random.key_data(key)).tolist()))
    count = size // minibatch
    orders = np.stack([rng.permutation(size)[: count * minibatch] for _ in range(epochs)])
    return orders.reshape(epochs, count, minibatch).astype(np.int32)


def epoch(
    state: Descent,
    loss: Callable[[Params, Params], tuple[jax.Array, jax.Array]],
    optimiser: optax.GradientTransformation,
    data: Params,
    order: jax.Array,
    learning_rate: jax.Array,
) -> tuple[Descent, jax.Array]:
    """One pass over ``data`` (leaves [B, ...]) in ``order`` [count, minibatch].

    ``loss`` gives what is minimised and something to report, whose mean over the pass is
    returned. ``optimiser`` gives the direction of descent, ``learning_rate`` its length.
    """

    def step(state: Descent, index: jax.Array) -> tuple[Descent, jax.Array]:
        sample = jax.tree.map(lambda leaf: leaf[index], data)
        grads, report = jax.grad(loss, has_aux=True)(state.params, sample)
        direction, opt_state = optimiser.update(grads, state.opt_state, state.params)
        params = jax.tree.map(lambda p, d: p - learning_rate * d, state.params, direction)
        return Descent(params, opt_state), report

    state, reports = jax.lax.scan(step, state, order)
    return state, jnp.mean(reports, axis=0)
