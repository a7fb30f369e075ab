"""Surrogates of the return: what a policy is worth on another policy's samples."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp


def clipped(ratio: jax.Array, advantage: jax.Array, epsilon: float) -> jax.Array:
    """min(rho A, g(eps, A)), g = (1 + eps) A for A >= 0 and (1 - eps) A for A < 0: [...].

    With eps = inf it is rho A.
    """
    if epsilon == math.inf:
        return ratio * advantage
    bound = jnp.where(advantage >= 0, (1 + epsilon) * advantage, (1 - epsilon) * advantage)
    return jnp.minimum(ratio * advantage, bound)


def clipped_cost(ratio: jax.Array, advantage: jax.Array, epsilon: float) -> jax.Array:
    """max(rho A, clip(rho) A), the bad side of a cost: [...]. It is -min(rho (-A), g(eps, -A))."""
    return -clipped(ratio, -advantage, epsilon)


def excess(mean: jax.Array, log_std: jax.Array, ends: jax.Array, reach: float) -> jax.Array:
    """Sum over the actions of the squared standard deviations by which ``mean`` [..., A] lies more
    than ``reach`` of them beyond +-``ends`` [A], [...]."""
    std = jnp.exp(log_std)
    beyond = jnp.maximum(jnp.abs(mean) - ends - reach * std, 0.0) / std
    return jnp.sum(beyond**2, axis=-1)


def safe_sqrt(x: jax.Array, tiny: float = 1e-12) -> jax.Array:
    """sqrt(x + tiny): the slope stays finite at x = 0."""
    return jnp.sqrt(jnp.maximum(x, 0.0) + tiny)
