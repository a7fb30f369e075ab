"""Running mean and variance of the observations."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Moments(NamedTuple):
    """Mean [O] and sum of squared deviations [O] of ``total`` observations."""

    mean: jax.Array
    squares: jax.Array
    total: jax.Array


def empty(size: int) -> Moments:
    return Moments(jnp.zeros(size), jnp.zeros(size), jnp.zeros(()))


def absorb(moments: Moments, obs: jax.Array) -> Moments:
    """Moments after seeing ``obs`` [..., O] as well (Chan's parallel formula)."""
    obs = obs.reshape(-1, obs.shape[-1])
    total = moments.total + obs.shape[0]
    mean = jnp.mean(obs, axis=0)
    gap = mean - moments.mean
    share = obs.shape[0] / total
    squares = jnp.sum((obs - mean) ** 2, axis=0)
    return Moments(
        mean=moments.mean + gap * share,
        squares=moments.squares + squares + gap**2 * moments.total * share,
        total=total,
    )


def shift_and_scale(moments: Moments) -> tuple[jax.Array, jax.Array]:
    """Mean [O] and inverse standard deviation [O]; 0 and 1 before any data."""
    variance = jnp.where(moments.total > 0, moments.squares / jnp.maximum(moments.total, 1.0), 1.0)
    return moments.mean, 1 / jnp.sqrt(variance + 1e-8)


def drowned(moments: Moments, obs: np.ndarray) -> np.ndarray:
    """Which columns [O] of observations [..., O] can no longer be told apart.

    Values far beyond a million came before, and beside their deviation all that is in ``obs`` now
    looks the same.
    """
    scale = np.asarray(shift_and_scale(moments)[1])
    rows = obs.reshape(-1, obs.shape[-1])
    spread = rows.max(axis=0) - rows.min(axis=0)
    return (scale < 1e-6) & (spread > 0) & (spread * scale < 1e-6)


def normalise(moments: Moments, obs: jax.Array, clip: float) -> jax.Array:
    """(obs - mean) / sd, clipped to +-clip; the identity (but for the clip) before any data."""
    mean, scale = shift_and_scale(moments)
    return jnp.clip((obs - mean) * scale, -clip, clip)
