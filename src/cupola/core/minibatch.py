"""Minibatch descent: epochs over shuffled samples, ended early by a divergence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cupola import nets
from cupola.core import distributions
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


class PolicyDescent(NamedTuple):
    """Where a descent of the policy stands."""

    policy: nets.Policy
    opt_state: optax.OptState
    nu: jax.Array  # [K], prices
    kl: jax.Array  # [], mean KL that the stopping rule saw last
    epochs: jax.Array  # [], epochs used


def start(policy: nets.Policy, opt_state: optax.OptState, nu: jax.Array) -> PolicyDescent:
    dtype = policy.mean[-1][1].dtype
    return PolicyDescent(policy, opt_state, nu, jnp.zeros((), dtype), jnp.int32(0))


def descend(
    begin: PolicyDescent,
    loss: Callable[[nets.Policy, Params, jax.Array], jax.Array],
    optimiser: optax.GradientTransformation,
    data: Params,
    orders: jax.Array,
    learning_rate: jax.Array,
    *,
    delta: float,
    divergence: Callable[[nets.Policy], jax.Array],
    reprice: Callable[[jax.Array, nets.Policy], jax.Array] = lambda nu, policy: nu,
    active: jax.Array | bool = True,
) -> PolicyDescent:
    """Epochs in the ``orders`` [E, count, minibatch] until one ends with a divergence over delta.

    ``loss`` is that of a policy on a minibatch at given prices; ``reprice`` gives those of the
    next epoch. Where not ``active``, nothing moves. Without a bound (delta = inf) the divergence is
    only taken at the end.
    """
    bounded = delta < math.inf

    def one_epoch(state: PolicyDescent) -> PolicyDescent:
        def reported(policy: nets.Policy, sample: Params) -> tuple[jax.Array, jax.Array]:
            value = loss(policy, sample, state.nu)
            return value, value

        (policy, opt_state), _ = epoch(
            Descent(state.policy, state.opt_state),
            reported,
            optimiser,
            data,
            orders[state.epochs],
            learning_rate,
        )
        kl = divergence(policy) if bounded else state.kl
        nu = reprice(state.nu, policy)
        return PolicyDescent(policy, opt_state, nu, kl, state.epochs + 1)

    def goes_on(state: PolicyDescent) -> jax.Array:
        return active & (state.epochs < len(orders)) & (state.kl <= delta)

    end = jax.lax.while_loop(goes_on, one_epoch, begin)
    if bounded:
        return end
    return end._replace(kl=jnp.where(end.epochs > 0, divergence(end.policy), 0.0))


def mean_kl(
    obs: jax.Array, mean: jax.Array, log_std: nets.LogStd
) -> Callable[[nets.Policy], jax.Array]:
    """The mean of KL(pi_theta || reference) over ``obs`` [B, O], as a function of theta."""

    def divergence(policy: nets.Policy) -> jax.Array:
        new_mean, new_log_std = nets.apply_policy(policy, obs)
        return jnp.mean(distributions.kl(new_mean, new_log_std, mean, log_std))

    return divergence
