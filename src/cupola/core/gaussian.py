"""Diagonal Gaussians: mean [..., A], log standard deviation [A] or [..., A]."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm


def log_prob(
    mean: jax.Array, log_std: jax.Array, value: jax.Array, side: jax.Array | None = None
) -> jax.Array:
    """Log density of ``value`` [..., A], summed over the action axis: [...].

    ``side`` [..., A] is 1 or -1 where ``value`` is the bound that a sample was cut at, above or
    below, and 0 elsewhere. There the probability of all that lies beyond the bound stands for the
    density (Fujita and Maeda 2018): how far beyond it a sample lay made no difference.
    """
    z = (value - mean) * jnp.exp(-log_std)
    density = -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)
    if side is not None:
        density = jnp.where(side == 0, density, norm.logcdf(-side * z))
    return jnp.sum(density, axis=-1)


def kl(
    mean_p: jax.Array, log_std_p: jax.Array, mean_q: jax.Array, log_std_q: jax.Array
) -> jax.Array:
    """KL(p || q) = sum_j log(s_q/s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2: [...]."""
    variance_ratio = jnp.exp(2 * (log_std_p - log_std_q))
    distance = ((mean_p - mean_q) * jnp.exp(-log_std_q)) ** 2
    return jnp.sum(log_std_q - log_std_p + 0.5 * (variance_ratio + distance - 1), axis=-1)


def fisher_root(
    log_std: jax.Array,
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """R(mean [B, A], log_std [A]), linear, with R'R the mean over the B states of the Fisher
    information about mean and log standard deviation, in a policy of the given ``log_std``."""
    inverse_std = jnp.exp(-log_std)

    def root(mean: jax.Array, log_std: jax.Array) -> tuple[jax.Array, jax.Array]:
        return mean * inverse_std / len(mean) ** 0.5, log_std * 2**0.5

    return root
