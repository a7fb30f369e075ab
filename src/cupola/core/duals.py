"""Prices of the constraints: nu_i >= 0, one for each cost, all [K]."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax


def ascend(
    nu: jax.Array,
    opt_state: optax.OptState,
    optimiser: optax.GradientTransformation,
    cost_returns: jax.Array,
    limits: jax.Array,
    nu_max: float,
) -> tuple[jax.Array, optax.OptState]:
    """nu <- clip(nu + eta (J^c - b), 0, nu_max); left alone where J^c is not known yet (NaN)."""
    known = ~jnp.isnan(cost_returns)
    violation = jnp.where(known, cost_returns - limits, 0.0)
    # optax descends, so the ascent direction enters with its sign changed.
    update, opt_state = optimiser.update(-violation, opt_state, nu)
    moved = jnp.clip(nu + update, 0.0, nu_max)
    return jnp.where(known, moved, nu), opt_state
