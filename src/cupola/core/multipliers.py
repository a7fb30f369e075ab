"""Rules that choose the Lagrange multipliers nu_i >= 0, one per cost; all arrays are [K].

A rule is a value. ``init`` makes its memory, ``update`` takes the cost returns J^_i that were
measured (NaN where no episode has ended yet) and the limits b_i, once per iteration:

- `integral`   nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max), by SGD or through Adam: the dual
               step of CUP's Algorithm 1.
- `pid`        nu_i <- clip(K_P P_i + I_i + K_D D_i, 0, nu_max), a PID controller of the violation
               (Stooke et al. 2020): it reacts before the integral has grown, so it overshoots less.
- `predicted`  `update` moves margins only. CUP's projection moves nu, before its first epoch and
               after each, with `step_to_prediction`: by the cost that the batch predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

if TYPE_CHECKING:  # the command line reads configurations without waiting for it
    import optax

State: TypeAlias = Any


class MultiplierRule(NamedTuple):
    """How multipliers follow the measured costs."""

    init: Callable[[jax.Array], State]
    """The memory of a rule that begins at nu [K]."""
    update: Callable[[jax.Array, State, jax.Array, jax.Array], tuple[jax.Array, State]]
    """New nu [K] and memory, of nu, memory, cost returns [K] and limits [K]."""
    settle: Callable[[State, State, jax.Array], State] = lambda before, after, cut_short: after
    """The memory to keep, of those before and after `update`, once it is known whether the step
    that the multipliers asked for was cut short by its trust region."""


def integral(optimiser: optax.GradientTransformation, nu_max: float) -> MultiplierRule:
    """Ascent on the violation; the memory is the optimiser's state."""

    def update(
        nu: jax.Array, state: State, costs: jax.Array, limits: jax.Array
    ) -> tuple[jax.Array, State]:
        known = ~jnp.isnan(costs)
        violation = jnp.where(known, costs - limits, 0.0)
        # optax descends, so the direction of ascent enters with its sign changed.
        step, state = optimiser.update(-violation, state, nu)
        moved = jnp.clip(nu + step, 0.0, nu_max)
        return jnp.where(known, moved, nu), state

    return MultiplierRule(optimiser.init, update)


class PidState(NamedTuple):
    """What a PID controller remembers, each [K] unless said."""

    integral: jax.Array  # I
    violation: jax.Array  # P, the smoothed violation
    costs: jax.Array  # [delay, K], the last smoothed cost returns, oldest first
    known: jax.Array  # bool, whether any cost return has been measured


def pid(
    kp: float, ki: float, kd: float, smoothing: float, delay: int, nu_max: float
) -> MultiplierRule:
    """A PID controller of the violation v_k = J_k - b, with averages of weight ``smoothing`` = a.

        P_k = a P_{k-1} + (1 - a) v_k                the smoothed violation
        I_k = clip(I_{k-1} + K_I v_k, 0, nu_max)     the integral; the clip is the anti-windup
        C_k = a C_{k-1} + (1 - a) J_k                the smoothed cost return
        D_k = max(0, C_k - C_{k-delay})              its derivative; a fall does not count

    The averages begin at the first value that is measured. I begins at the initial nu. It does not
    rise where the step was cut short by its trust region: a larger nu would only turn that step.
    """

    def init(nu: jax.Array) -> PidState:
        zero = jnp.zeros_like(nu)
        return PidState(nu, zero, jnp.zeros((delay, *nu.shape), nu.dtype), jnp.zeros_like(nu, bool))

    def update(
        nu: jax.Array, state: PidState, costs: jax.Array, limits: jax.Array
    ) -> tuple[jax.Array, PidState]:
        measured = ~jnp.isnan(costs)
        cost = jnp.where(measured, costs, 0.0)
        violation = cost - limits

        def average(before: jax.Array, now: jax.Array) -> jax.Array:
            return jnp.where(state.known, smoothing * before + (1 - smoothing) * now, now)

        smooth = average(state.costs[-1], cost)
        past = jnp.where(state.known, state.costs, smooth)
        new = PidState(
            integral=jnp.clip(state.integral + ki * violation, 0.0, nu_max),
            violation=average(state.violation, violation),
            costs=jnp.concatenate([past[1:], smooth[None]]),
            known=state.known | measured,
        )
        rise = jnp.maximum(smooth - past[0], 0.0)
        moved = jnp.clip(kp * new.violation + new.integral + kd * rise, 0.0, nu_max)
        kept = jax.tree.map(lambda after, before: jnp.where(measured, after, before), new, state)
        return jnp.where(measured, moved, nu), kept

    def settle(before: PidState, after: PidState, cut_short: jax.Array) -> PidState:
        held = jnp.minimum(before.integral, after.integral)
        return after._replace(integral=jnp.where(cut_short, held, after.integral))

    return MultiplierRule(init, update, settle)


MARGIN_RATE = 0.05
"""Share of a measured deviation by which a margin moves per iteration."""
AIM = 0.97
"""A margin grows while the measured cost is above this share of its limit, else it shrinks."""
DAMPING = 0.25
"""Share of Newton's step that a predicted multiplier takes after each epoch."""


def predicted() -> MultiplierRule:
    """The memory is the margins [K] that are subtracted from the limits.

    Predictions are too optimistic about a projection. A margin grows while the measured cost is
    above 0.97 b, shrinks while it is below, and stays in [0, b/2]. (No limit is negative.)
    """

    def update(
        nu: jax.Array, margin: jax.Array, costs: jax.Array, limits: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        deviation = jnp.asarray(costs) - AIM * limits
        moved = margin + MARGIN_RATE * jnp.where(jnp.isnan(deviation), 0.0, deviation)
        return nu, jnp.clip(moved, 0.0, limits / 2)

    return MultiplierRule(jnp.zeros_like, update)


def step_to_prediction(nu: jax.Array, violation: jax.Array, nu_max: float) -> jax.Array:
    """nu [K] after a damped Newton step on the dual, whose gradient is the predicted violation [K].

    The violation is in the unit in which the dual's curvature is one (`cup.predicted_costs`).
    """
    return jnp.clip(nu + DAMPING * violation, 0.0, nu_max)
