"""What an update is predicted to change, and where the policy stood that it began with."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.core.samples import Samples, ratio, signals, time_weights
from cupola.types import Rollout


class Prediction(NamedTuple):
    """Of the reward (first) and each cost, all [1 + K]; the first two are means over time.

    A return is ``start`` + horizon times ``residual``, with the horizon in the return's convention.
    """

    change: jax.Array  # mean of (rho_t - 1) A_t: what the update is predicted to change
    residual: jax.Array  # mean of delta_t (undiscounted: of the cost itself)
    start: jax.Array  # mean V of the first states (undiscounted: 0)
    started: jax.Array  # whether the batch has a first state, 1 or 0


def forecast(
    policy: nets.Policy,
    samples: Samples,
    advantages: jax.Array,
    rollout: Rollout,
    *,
    gamma: float,
    lam: float,
    discounted: tuple[bool, ...],
) -> Prediction:
    """The forecast for the updated ``policy``, from the samples of the old one.

    ``advantages`` [B, 1 + K] are unscaled. Time is weighted by gamma^t where a return is discounted
    (the reward's always is). For any function V, J = E[V(s_0)] + E[sum_t gamma^t delta_t]: with the
    critic as V that is far less noisy than the returns of the few episodes that end in a batch.
    Of an endless cost (`build_samples`) it is the J that a termination does not end.
    """
    returns = (True, *discounted)
    weights = time_weights(samples, gamma, returns)
    weights = weights / jnp.mean(weights, axis=0)
    change = (ratio(policy, samples) - 1)[:, None] * advantages

    ended = jnp.asarray(rollout.terminated) | jnp.asarray(rollout.truncated)
    by_step = advantages.reshape(*ended.shape, -1)
    later = jnp.concatenate([by_step[1:], jnp.zeros_like(by_step[:1])])
    deltas = by_step - gamma * lam * jnp.where(ended[..., None], 0.0, later)
    by_time = jnp.asarray(returns)
    residuals = jnp.where(by_time, deltas, signals(rollout)).reshape(advantages.shape)

    first = (samples.times[:, None] == 0).astype(advantages.dtype)
    values = samples.targets - advantages
    start = jnp.sum(first * values, axis=0) / jnp.maximum(jnp.sum(first), 1.0)
    return Prediction(
        change=jnp.mean(weights * change, axis=0),
        residual=jnp.mean(weights * residuals, axis=0),
        start=jnp.where(by_time, start, 0.0),
        started=jnp.broadcast_to(jnp.max(first), start.shape),
    )
