"""Generalised advantage estimation, for the reward and every cost at once."""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp

TimeLimit: TypeAlias = Literal["bootstrap", "terminal"]
Scaling: TypeAlias = Literal["standardise", "running", "centre", "none"]


def gae(
    signals: jax.Array,
    values: jax.Array,
    next_values: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    *,
    gamma: float,
    lam: float | jax.Array,
    time_limit: TimeLimit = "bootstrap",
) -> jax.Array:
    """A_t = sum_l (gamma lam)^l delta_{t+l}, delta_t = x_t + gamma V(s_{t+1}) - V(s_t).

    ``signals``, ``values``, ``next_values`` [T, N, ...]; ``terminated``, ``truncated`` [T, N], or
    [T, N, ...] where signals differ in it. ``lam`` is one number, or one for each of the last axis.
    ``next_values`` are those of the final observation where an episode ended. Both kinds of
    ending cut the sum; ``terminated`` also cuts the bootstrap, ``truncated`` only with
    ``time_limit="terminal"``.
    """
    no_future = terminated | truncated if time_limit == "terminal" else terminated
    ended = terminated | truncated

    def factor(flags: jax.Array) -> jax.Array:
        trailing = (1,) * (signals.ndim - flags.ndim)
        return flags.astype(values.dtype).reshape(flags.shape + trailing)

    future, goes_on = factor(~no_future), factor(~ended)
    deltas = signals + gamma * future * next_values - values

    def backward(
        advantage: jax.Array, step: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        delta, alive = step
        advantage = delta + gamma * lam * alive * advantage
        return advantage, advantage

    _, advantages = jax.lax.scan(
        backward, jnp.zeros_like(deltas[0]), (deltas, goes_on), reverse=True
    )
    return advantages


def td_residuals(
    advantages: jax.Array, ended: jax.Array, *, gamma: float, lam: float | jax.Array
) -> jax.Array:
    """delta_t = A_t - gamma lam A_{t+1}, the inverse of `gae`; A_{t+1} is 0 where t ended.

    ``advantages`` [T, N, R], ``ended`` [T, N].
    """
    later = jnp.concatenate([advantages[1:], jnp.zeros_like(advantages[:1])])
    return advantages - gamma * lam * jnp.where(ended[..., None], 0.0, later)


def going_rates(signals: jax.Array, ended: jax.Array, gamma: float) -> jax.Array:
    """What an episode has earned a step so far, [T, N, R]: sum_k gamma^k x_{t-k} / sum_k gamma^k.

    ``signals`` [T, N, R], ``ended`` [T, N]. Of an episode that began before the first step only
    what is in the rollout counts.
    """

    def forward(
        sums: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        signal, over = step
        total, weight = signal + gamma * sums[0], 1.0 + gamma * sums[1]
        goes_on = 1.0 - over[:, None].astype(signal.dtype)
        return (goes_on * total, goes_on * weight), total / weight

    start = (jnp.zeros_like(signals[0]), jnp.zeros_like(signals[0]))
    return jax.lax.scan(forward, start, (signals, ended))[1]


def horizon_factor(gamma: float, lam: float) -> float:
    """1/(1 - gamma~) = (1 - gamma lam)/(1 - gamma), with gamma~ = gamma (1-lam)/(1-gamma lam)."""
    return (1 - gamma * lam) / (1 - gamma)


def scale(advantages: jax.Array, scaling: Scaling, running: jax.Array | None = None) -> jax.Array:
    """Advantages [B, ...] centred, and divided by their standard deviation, along the samples.

    With `running` the deviation is the root of the ``running`` variance [...].
    """
    return (advantages - shift(advantages, scaling)) / divisor(advantages, scaling, running)


def scale_level(
    level: jax.Array, advantages: jax.Array, scaling: Scaling, running: jax.Array | None = None
) -> jax.Array:
    """A level [...] of mean_t rho_t A_t, in the unit of the scaled advantages of [B, ...]."""
    return (level + shift(advantages, scaling)) / divisor(advantages, scaling, running)


def shift(advantages: jax.Array, scaling: Scaling) -> jax.Array | float:
    """What a scaling subtracts, [...]."""
    return 0.0 if scaling == "none" else jnp.mean(advantages, axis=0)


def divisor(
    advantages: jax.Array, scaling: Scaling, running: jax.Array | None = None
) -> jax.Array | float:
    """What a scaling divides by, [...]."""
    if scaling in ("none", "centre"):
        return 1.0
    if scaling == "running" and running is not None:
        return jnp.maximum(jnp.sqrt(running), 1e-8)
    return spread(advantages)


def spread(advantages: jax.Array) -> jax.Array:
    """Standard deviation along the samples, never zero."""
    return jnp.maximum(jnp.std(advantages, axis=0), 1e-8)
