"""One of A choices: logits [..., A]; a value [..., A] is 1 for the choice and 0 elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp


def log_prob(logits: jax.Array, value: jax.Array) -> jax.Array:
    """Log probability of ``value``: [...]."""
    return jnp.sum(jax.nn.log_softmax(logits) * value, axis=-1)


def kl(logits_p: jax.Array, logits_q: jax.Array) -> jax.Array:
    """KL(p || q) = sum_j p_j log(p_j/q_j) - p_j + q_j: [...].

    The last two terms sum to zero. With them every summand is at least zero, and the gradient is
    exactly zero where p = q, in floating point too.
    """
    log_p, log_q = jax.nn.log_softmax(logits_p), jax.nn.log_softmax(logits_q)
    p = jnp.exp(log_p)
    return jnp.sum(p * (log_p - log_q) - p + jnp.exp(log_q), axis=-1)


def fisher_root(logits: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """R(logits [B, A]), linear, with R'R the mean over the B states of the Fisher information
    diag(p) - p p' about the logits, in a policy of the given ``logits``."""
    p = jax.nn.softmax(logits)

    def root(logits: jax.Array) -> jax.Array:
        centred = logits - jnp.sum(p * logits, axis=-1, keepdims=True)
        return jnp.sqrt(p) * centred / len(logits) ** 0.5

    return root
