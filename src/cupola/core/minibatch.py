"""Minibatches: the order in which samples are visited, and one pass of an optimiser over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from cupola.types import Params

if TYPE_CHECKING:  # the command line reads configurations without waiting for it
    import optax


def shuffles(key: jax.Array, epochs: int, size: int, minibatch: int) -> np.ndarray:
    """Indices [epochs, size // minibatch, minibatch]: each epoch visits the samples in a new order.

    The remainder of the division is left out of an epoch, a different one each time. Drawn on
    the host: a sort on the device costs more than the descent step that it serves.
    """
    rng = np.random.Generator(np.random.Philox(np.asarray(jax.random.key_data(key)).tolist()))
    count = size // minibatch
    orders = np.stack([rng.permutation(size)[: count * minibatch] for _ in range(epochs)])
    return orders.reshape(epochs, count, minibatch).astype(np.int32)


def draws(
    key: jax.Array, epochs: int, steps: int, minibatch: int, first: int, size: int
) -> np.ndarray:
    """Indices [epochs, steps, minibatch] in [first, size), in a random order, each as often as
    every other one, give or take once."""
    rng = np.random.Generator(np.random.Philox(np.asarray(jax.random.key_data(key)).tolist()))
    wanted = epochs * steps * minibatch
    passes = -(-wanted // (size - first))
    order = np.concatenate([rng.permutation(size - first) for _ in range(passes)])[:wanted]
    return (first + order).reshape(epochs, steps, minibatch).astype(np.int32)


def epoch(
    at: tuple[Params, Params],
    loss: Callable[[Params, Params], tuple[jax.Array, jax.Array]],
    optimiser: optax.GradientTransformation,
    data: Params,
    order: jax.Array,
    rate: jax.Array,
) -> tuple[Params, Params, jax.Array]:
    """Parameters and optimiser's state after one pass over ``data`` in ``order``, and a report.

    ``loss`` gives what is minimised and something to report, whose mean over the pass is returned.
    """

    def step(
        state: tuple[Params, Params], index: jax.Array
    ) -> tuple[tuple[Params, Params], jax.Array]:
        params, opt_state = state
        sample = jax.tree.map(lambda leaf: leaf[index], data)
        grads, report = jax.grad(loss, has_aux=True)(params, sample)
        direction, opt_state = optimiser.update(grads, opt_state, params)
        return (jax.tree.map(lambda p, d: p - rate * d, params, direction), opt_state), report

    (params, opt_state), reports = jax.lax.scan(step, at, order)
    return params, opt_state, jnp.mean(reports, axis=0)
