"""Mean KL divergences over a batch between a policy pi_theta and a reference, in either direction.

Both take observations [B, O] and what the reference says of them: means [B, A] and log-std. Both
give a function of theta. Minibatch descent stops on `kl_to`, as the authors' code of CUP and FOCOPS
does; trust regions bound `kl_from`, whose Hessian at pi_k is the Fisher matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.core import distributions

Divergence: TypeAlias = Callable[[nets.Policy], jax.Array]


def kl_to(obs: jax.Array, mean: jax.Array, log_std: nets.LogStd) -> Divergence:
    """theta -> mean KL(pi_theta || reference)."""

    def divergence(policy: nets.Policy) -> jax.Array:
        new_mean, new_log_std = nets.apply_policy(policy, obs)
        return jnp.mean(distributions.kl(new_mean, new_log_std, mean, log_std))

    return divergence


def kl_from(obs: jax.Array, mean: jax.Array, log_std: nets.LogStd) -> Divergence:
    """theta -> mean KL(reference || pi_theta)."""

    def divergence(policy: nets.Policy) -> jax.Array:
        new_mean, new_log_std = nets.apply_policy(policy, obs)
        return jnp.mean(distributions.kl(mean, log_std, new_mean, new_log_std))

    return divergence
