"""One update by minibatch descent, from a batch of pi_k to a new learner. The order is always:

1. samples      advantages of reward and costs (GAE) and value targets, with the critics as they are
2. first step   theta_k -> theta_{k+1/2}: minibatch Adam, at most ``epochs`` epochs
3. second step  theta_{k+1/2} -> theta_{k+1}: optional; CUP's projection
4. critics      as many epochs as the first step took, on the same samples, as in the authors' code;
                beside 2 and 3 on a second core if there is one, else after them
5. prediction   by how much return and costs should change with the new policy; only for the metrics

1 and 5 are those of every algorithm (`make_algorithm` in algos/assembly.py). An algorithm supplies
2 and 3 as plain functions of values, or only a loss. Trust-region algorithms supply one step on
the whole batch: algos/trust_region.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cupola import nets
from cupola.algos.assembly import fit_critics, make_algorithm, with_critics
from cupola.algos.config import CostConfig, LagrangianConfig, MinibatchConfig, learning_rate
from cupola.core import critics
from cupola.core.advantages import scale, scale_level
from cupola.core.critics import Fit
from cupola.core.divergences import Divergence, kl_to
from cupola.core.minibatch import epoch, shuffles
from cupola.core.optimisers import adam
from cupola.types import Algorithm, Batch, Learner, Metrics, Params, Problem, Samples


class Context(NamedTuple):
    """What a loss knows beside the policy and the samples of a minibatch."""

    nu: jax.Array  # [K], Lagrange multipliers
    violation: jax.Array  # [K], J^ - b in the unit of mean_t rho_t A^c_t; -inf: not known yet
    log_std: nets.LogStd  # of pi_k


class Stepped(NamedTuple):
    """A learner after a policy step, which may change all of it but the critics."""

    learner: Learner
    metrics: Metrics
    epochs: jax.Array  # [], that the step took
    trace: jax.Array  # [E], the KL after each epoch; NaN where none was taken


Loss: TypeAlias = Callable[[nets.Policy, Samples, Context], jax.Array]
"""Of a policy, a minibatch and the context: a scalar to be minimised."""
FirstStep: TypeAlias = Callable[[Learner, Samples, Batch, jax.Array], Stepped]
"""Of learner, samples, batch and orders [E, count, minibatch] of the samples."""
SecondStep: TypeAlias = Callable[[Learner, Learner, Samples, Batch, jax.Array], Stepped]
"""As `FirstStep`, but of two learners: the one after the first step, then the one before it."""


def minibatch_algorithm(
    config: MinibatchConfig,
    problem: Problem,
    first: FirstStep,
    second: SecondStep | None = None,
    held_out: int = 0,
) -> Algorithm:
    """The algorithm with these steps. Minibatches of the policy leave out the last ``held_out``
    samples; those of the critics take all."""
    first_step = jax.jit(first)
    second_step = jax.jit(second) if second else None
    critic_epoch = jax.jit(partial(fit_critics, config=config))

    def learn(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array, cores: int = 1
    ) -> tuple[Learner, Metrics]:
        policy_key, critic_key = jax.random.split(key)
        orders = policy_orders(policy_key, len(samples.obs))
        with critics.Epochs(
            lambda state, order: critic_epoch(state, samples, batch, order),
            Fit.start(learner.critics, learner.critic_opt),
            shuffles(critic_key, config.epochs, len(samples.obs), config.minibatch_size),
            cores,
        ) as fitting:
            moved, metrics, taken, _ = first_step(learner, samples, batch, orders[0])
            fitting.keep(int(taken))  # the critics run ahead; later epochs are thrown away
            if second_step:
                end = second_step(moved, learner, samples, batch, orders[1])
                moved, more, _, _ = jax.block_until_ready(end)
                metrics = metrics | more
            return with_critics(moved, metrics, fitting.result())

    def policy_orders(key: jax.Array, size: int) -> np.ndarray:
        """Of each step, [steps, E, count, minibatch]."""
        steps = 2 if second else 1
        orders = shuffles(key, steps * config.epochs, size - held_out, config.minibatch_size)
        return orders.reshape(steps, config.epochs, -1, config.minibatch_size)

    def trace(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, ...]:
        orders = policy_orders(jax.random.split(key)[0], len(samples.obs))
        half = first_step(learner, samples, batch, orders[0])
        if not second_step:
            return (half.trace,)
        return half.trace, second_step(half.learner, learner, samples, batch, orders[1]).trace

    return make_algorithm(config, problem, learn)._replace(trace=trace)


def one_loss(config: MinibatchConfig, problem: Problem, loss: Loss) -> Algorithm:
    """The algorithm whose only step descends ``loss``."""
    return minibatch_algorithm(
        config, problem, partial(descend_loss, loss=loss, config=config, problem=problem)
    )


def descend_loss(
    learner: Learner,
    samples: Samples,
    batch: Batch,
    orders: jax.Array,
    *,
    loss: Loss,
    config: MinibatchConfig,
    problem: Problem,
) -> Stepped:
    """A first step. Multipliers, where there are any, move first; cost advantages are scaled."""
    if isinstance(config, LagrangianConfig):
        learner = update_multipliers(learner, batch, config, problem)
    context = context_of(learner, batch, config, problem)
    if isinstance(config, CostConfig):
        scaling, raw = config.cost_advantage, samples.adv_c
        context = context._replace(violation=scale_level(context.violation, raw, scaling))
        samples = samples._replace(adv_c=scale(raw, scaling))
    end = descend(
        begin(learner.policy, learner.policy_opt, learner.nu),
        loss,
        context,
        samples,
        orders,
        config,
        learning_rate(config, batch.progress, "policy"),
        divergence=kl_to(samples.obs, samples.mean, learner.policy.log_std),
    )
    moved = learner._replace(policy=end.policy, policy_opt=end.opt_state, nu=end.nu)
    return Stepped(moved, {"kl": end.kl, "epochs": end.epochs}, end.epochs, end.trace)


class Descent(NamedTuple):
    """Where a descent of the policy stands."""

    policy: nets.Policy
    opt_state: optax.OptState
    nu: jax.Array  # [K]
    kl: jax.Array  # [], mean KL that the stopping rule saw last
    epochs: jax.Array  # [], epochs taken
    trace: jax.Array  # [E], kl after each epoch; NaN where none was taken or it was not looked at


def begin(policy: nets.Policy, opt_state: optax.OptState, nu: jax.Array) -> Descent:
    dtype = policy.mean[-1][1].dtype
    return Descent(policy, opt_state, nu, jnp.zeros((), dtype), jnp.int32(0), jnp.zeros(0, dtype))


def descend(
    start: Descent,
    loss: Callable[[nets.Policy, Params, Context], jax.Array],
    context: Context,
    data: Params,
    orders: jax.Array,
    config: MinibatchConfig,
    rate: jax.Array,
    *,
    divergence: Divergence,
    next_nu: Callable[[jax.Array, nets.Policy], jax.Array] = lambda nu, policy: nu,
    active: jax.Array | bool = True,
) -> Descent:
    """Adam on ``data`` (leaves [B, ...]) until an epoch ends with a divergence above delta.

    ``orders`` [E, count, minibatch] say which samples each step takes. ``next_nu`` gives the
    multipliers of the next epoch. Where not ``active``, no epoch is taken. Without a bound (delta =
    inf) the divergence is only taken at the end.
    """
    bounded = config.delta < math.inf
    optimiser = adam(config.max_grad_norm)

    def one_epoch(state: Descent) -> Descent:
        def reported(policy: nets.Policy, sample: Params) -> tuple[jax.Array, jax.Array]:
            value = loss(policy, sample, context._replace(nu=state.nu))
            return value, value

        at = (state.policy, state.opt_state)
        policy, opt_state, _ = epoch(at, reported, optimiser, data, orders[state.epochs], rate)
        kl = divergence(policy) if bounded else state.kl
        trace = state.trace.at[state.epochs].set(kl) if bounded else state.trace
        return Descent(policy, opt_state, next_nu(state.nu, policy), kl, state.epochs + 1, trace)

    def goes_on(state: Descent) -> jax.Array:
        return active & (state.epochs < len(orders)) & (state.kl <= config.delta)

    start = start._replace(trace=jnp.full(len(orders), jnp.nan, start.kl.dtype))
    end = jax.lax.while_loop(goes_on, one_epoch, start)
    if bounded:
        return end
    return end._replace(kl=jnp.where(end.epochs > 0, divergence(end.policy), 0.0))


def update_multipliers(
    learner: Learner, batch: Batch, config: LagrangianConfig, problem: Problem
) -> Learner:
    """The learner after one step of the multipliers' rule on the measured cost returns."""
    measured, limits = jnp.asarray(batch.cost_returns), jnp.asarray(problem.limits)
    nu, state = config.multiplier_rule().update(
        learner.nu, learner.multiplier_state, measured, limits
    )
    return learner._replace(nu=nu, multiplier_state=state)


def context_of(
    learner: Learner, batch: Batch, config: MinibatchConfig, problem: Problem
) -> Context:
    """The context of a loss; ``learner`` holds pi_k. `descend` puts the nu of each epoch in."""
    violation = violation_per_step(batch, problem, config.gamma)
    return Context(learner.nu, violation, learner.policy.log_std)


def violation_per_step(batch: Batch, problem: Problem, gamma: float) -> jax.Array:
    """J^ - b [K] in the unit of mean_t rho_t A^c_t; -inf where J^ is not known yet.

    That is (1 - gamma)(J^ - b) for a discounted limit, (J^ - b) / mean length for another.
    """
    horizon = jnp.where(jnp.asarray(problem.discounted), 1 / (1 - gamma), batch.horizons)
    gap = (jnp.asarray(batch.cost_returns) - jnp.asarray(problem.limits)) / horizon
    return jnp.where(jnp.isnan(gap), -jnp.inf, gap)
