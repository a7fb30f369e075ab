"""What an update is predicted to change, and where the policy stood that it began with."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.core.advantages import td_residuals
from cupola.core.samples import later_values, ratio, signals, time_weights
from cupola.types import Batch, Params, Prediction, Rollout, Samples


def predict_change(
    policy: nets.Policy,
    samples: Samples,
    rollout: Rollout,
    *,
    gamma: float,
    lam: float | jax.Array,
    discounted: tuple[bool, ...],
) -> Prediction:
    """The prediction for the updated ``policy``, from the samples of the old one.

    Time is weighted by gamma^t where a return is discounted (the reward's always is). For any
    function V, J = E[V(s_0)] + E[sum_t gamma^t delta_t]: with the critic as V that is far less
    noisy than the returns of the few episodes that end in a batch. Of an endless cost
    (`build_samples`) it is the J that a termination does not end.
    """
    returns, advantages = (True, *discounted), samples.advantages
    weights = time_weights(samples, gamma, returns)
    weights = weights / jnp.mean(weights, axis=0)
    change = (ratio(policy, samples) - 1)[:, None] * advantages

    ended = jnp.asarray(rollout.terminated) | jnp.asarray(rollout.truncated)
    deltas = td_residuals(advantages.reshape(*ended.shape, -1), ended, gamma=gamma, lam=lam)
    by_time = jnp.asarray(returns)
    residuals = jnp.where(by_time, deltas, signals(rollout)).reshape(advantages.shape)

    first = (samples.times[:, None] == 0).astype(advantages.dtype)
    start = jnp.sum(first * samples.values, axis=0) / jnp.maximum(jnp.sum(first), 1.0)
    return Prediction(
        change=jnp.mean(weights * change, axis=0),
        residual=jnp.mean(weights * residuals, axis=0),
        start=jnp.where(by_time, start, 0.0),
        started=jnp.broadcast_to(jnp.max(first), start.shape),
    )


def cost_levels(
    critics: Params,
    batch: Batch,
    *,
    gamma: float,
    discounted: tuple[bool, ...],
    goes_on: bool = False,
) -> jax.Array:
    """J^c [K] of the policy that collected the batch, from all of its steps.

    Episodes that end in a batch began before it, under older policies, and are few. For a
    discounted limit J = E[V(s_0)] + E[sum_t gamma^t delta_t], whatever V is; here V is the critic.
    Otherwise J is the mean cost per step times the mean length. Where no episode began in the
    batch, or none has ended yet, it is what `Batch.cost_returns` says.

    With ``goes_on`` it is the J^c of episodes that no termination ends (`later_values`), times
    `Batch.reach`: of episodes as long as the longer ones are. A policy that falls meets its limit
    by that alone: a multiplier that followed would drop and rise again, and the policy would fall
    for ever.
    """
    rollout = batch.rollout
    obs = jnp.asarray(rollout.obs)
    values = nets.apply_critics(critics, obs)[..., 1:]
    later = later_values(critics, rollout, gamma, goes_on)[..., 1:]
    alive = ~jnp.asarray(rollout.terminated)[..., None] | goes_on
    costs, times = jnp.asarray(rollout.costs), jnp.asarray(rollout.times)[..., None]
    weights = gamma**times
    deltas = costs + gamma * alive * later - values
    first = (times == 0).astype(values.dtype)
    begun = jnp.sum(first)
    start = jnp.sum(first * values, axis=(0, 1)) / jnp.maximum(begun, 1.0)
    by_time = start + batch.horizons * jnp.mean(weights * deltas, axis=(0, 1)) / jnp.mean(weights)
    plain = batch.horizons * jnp.mean(costs, axis=(0, 1))
    by_time = jnp.where(begun > 0, by_time * (batch.reach if goes_on else 1.0), batch.cost_returns)
    return jnp.where(jnp.asarray(discounted), by_time, plain)
