"""Distributions of actions: Gaussian, or categorical where there is no ``log_std``.

A policy's network gives ``mean`` [..., A], the mean of a Gaussian or the logits of A choices. Which
of the two it is is known when a function is compiled, so that the choice costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from cupola.core import categorical, gaussian
from cupola.nets import LogStd


def log_prob(
    mean: jax.Array, log_std: LogStd, value: jax.Array, side: jax.Array | None = None
) -> jax.Array:
    """Log density, or log probability, of ``value`` [..., A]: [...]; ``side`` as in `gaussian`."""
    if log_std is None:
        return categorical.log_prob(mean, value)
    return gaussian.log_prob(mean, log_std, value, side)


def kl(mean_p: jax.Array, log_std_p: LogStd, mean_q: jax.Array, log_std_q: LogStd) -> jax.Array:
    """KL(p || q): [...]."""
    if log_std_p is None or log_std_q is None:
        return categorical.kl(mean_p, mean_q)
    return gaussian.kl(mean_p, log_std_p, mean_q, log_std_q)


def fisher_root(mean: jax.Array, log_std: LogStd) -> Callable[[jax.Array, Any], Any]:
    """R(mean [B, A], log_std), linear, with R'R the mean Fisher information at the given ones."""
    if log_std is None:
        root = categorical.fisher_root(mean)
        return lambda logits, _: root(logits)
    return gaussian.fisher_root(log_std)


def unit_noise(key: jax.Array, shape: tuple[int, ...], discrete: bool) -> jax.Array:
    """What makes a sample: a mean plus deviations times normal noise, or the largest of logits
    plus Gumbel noise."""
    return jax.random.gumbel(key, shape) if discrete else jax.random.normal(key, shape)
