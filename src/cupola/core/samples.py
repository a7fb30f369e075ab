"""From a rollout to the flat samples that losses are written over."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.core import distributions
from cupola.core.advantages import TimeLimit, gae, going_rates, scale
from cupola.types import Params, Rollout, Samples


def build_samples(
    policy: nets.Policy,
    critics: Params,
    rollout: Rollout,
    *,
    gamma: float,
    lam: float | jax.Array,
    lam_critic: float = 0.0,
    time_limit: TimeLimit,
    endless: tuple[bool, ...] = (),
    goes_on: bool = False,
    saturation: tuple[float, ...] = (),
) -> Samples:
    """Advantages A and value targets V + A of a rollout, flattened over time and environments.

    The reward's advantages are standardised, the costs' are left as they are. For a cost that is
    ``endless`` a termination counts as a time limit, so that what would have come after it is not
    saved; () says that no cost is. What that is, the critics say, or it ``goes_on`` as before.
    ``lam`` is one number, or one for the reward and each cost, [1 + K]; the A of the targets has
    ``lam_critic`` unless it is 0. With a ``saturation`` [A], actions beyond it are cut and marked
    in `Samples.side`.
    """
    terminated, truncated = jnp.asarray(rollout.terminated), jnp.asarray(rollout.truncated)
    if any(endless):
        truncated = (terminated | truncated)[..., None]
        terminated = terminated[..., None] & ~jnp.array((False, *endless))
    values = nets.apply_critics(critics, rollout.obs)
    next_values = later_values(critics, rollout, gamma, goes_on)
    estimate = partial(
        gae,
        signals(rollout),
        values,
        next_values,
        terminated,
        truncated,
        gamma=gamma,
        time_limit=time_limit,
    )
    advantages = estimate(lam=lam)
    surprises = estimate(lam=lam_critic) if lam_critic else advantages
    mean, log_std = nets.apply_policy(policy, jnp.asarray(rollout.obs))
    actions, side = jnp.asarray(rollout.actions), None
    if saturation:
        bound = jnp.asarray(saturation, actions.dtype)
        side = jnp.where(actions >= bound, 1, jnp.where(actions <= -bound, -1, 0))
        side = side.astype(jnp.int8)
        actions = jnp.clip(actions, -bound, bound)
    per_step = Samples(
        obs=jnp.asarray(rollout.obs),
        actions=actions,
        mean=mean,
        log_prob=distributions.log_prob(mean, log_std, actions, side),
        advantages=advantages,
        adv_r=advantages[..., 0],
        adv_c=advantages[..., 1:],
        values=values,
        targets=surprises + values,
        times=jnp.asarray(rollout.times),
        side=side,
    )
    count = per_step.log_prob.size
    flat = jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), per_step)
    return flat._replace(adv_r=scale(flat.adv_r, "standardise"))


def later_values(critics: Params, rollout: Rollout, gamma: float, goes_on: bool) -> jax.Array:
    """The values of the next states, [T, N, 1 + K]: what the critics say.

    With ``goes_on``, costs behind a termination are those that the steps before it would have had
    for ever. No critic knows them: no episode went on from there.
    """
    said = nets.apply_critics(critics, rollout.next_obs)
    if not goes_on:
        return said
    terminated, truncated = jnp.asarray(rollout.terminated), jnp.asarray(rollout.truncated)
    rates = going_rates(jnp.asarray(rollout.costs), terminated | truncated, gamma)
    behind = jnp.where(terminated[..., None], rates / (1 - gamma), said[..., 1:])
    return jnp.concatenate([said[..., :1], behind], axis=-1)


def signals(rollout: Rollout) -> jax.Array:
    """Reward, then the costs, [T, N, 1 + K]."""
    return jnp.concatenate([jnp.asarray(rollout.rewards)[..., None], rollout.costs], axis=-1)


def time_weights(samples: Samples, gamma: float, discounted: tuple[bool, ...]) -> jax.Array:
    """What a sample counts in each return, [B, R]: gamma^t where it is ``discounted``, else 1.

    Only their proportions matter. Where gamma is so small and all samples are so late that every
    gamma^t is 0, the earliest sample counts 1: t begins with it.
    """
    times = samples.times[:, None]
    powers = gamma**times
    powers = jnp.where(jnp.any(powers > 0), powers, gamma ** (times - jnp.min(times)))
    return jnp.where(jnp.asarray(discounted), powers, 1.0)


def weighted_by_time(samples: Samples, gamma: float, discounted: tuple[bool, ...]) -> jax.Array:
    """The cost advantages [B, K] times `time_weights` of mean one."""
    weights = time_weights(samples, gamma, discounted)
    return weights / jnp.mean(weights, axis=0) * samples.adv_c


def ratio(policy: nets.Policy, samples: Samples) -> jax.Array:
    """rho_t = pi_theta(a_t|s_t) / pi_k(a_t|s_t), [B]."""
    mean, log_std = nets.apply_policy(policy, samples.obs)
    return ratio_of(mean, log_std, samples)


def ratio_of(mean: jax.Array, log_std: nets.LogStd, samples: Samples) -> jax.Array:
    """rho_t [B] of a policy that says ``mean`` [B, A] and ``log_std`` of the samples' states."""
    new = distributions.log_prob(mean, log_std, samples.actions, samples.side)
    return jnp.exp(new - samples.log_prob)
