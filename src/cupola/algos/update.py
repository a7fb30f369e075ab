"""One update by minibatch descent, from a batch of pi_k to a new learner. The order is always:

1. samples      advantages of reward and costs (GAE) and value targets, with the critics as they are
2. first step   theta_k -> theta_{k+1/2}: minibatch Adam, at most ``epochs`` epochs
3. second step  theta_{k+1/2} -> theta_{k+1}: optional; CUP's projection
4. critics      as many epochs as the first step took, on the same samples, as in the authors' code;
                or `critic_epochs` passes, on these samples and a memory of earlier ones. Beside 2
                and 3 on a second core if there is one, else after them
5. prediction   by how much return and costs should change with the new policy; only for the metrics

1 and 5 are those of every algorithm (`make_algorithm` in algos/assembly.py). An algorithm supplies
2 and 3 as plain functions of values, or only a loss. Trust-region algorithms supply one step on
the whole batch: algos/trust_region.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.algos.assembly import (
    PARTS,
    critic_schedule,
    fit_critics,
    make_algorithm,
    remembered,
    with_critics,
)
from cupola.algos.config import CostConfig, LagrangianConfig, MinibatchConfig, learning_rate
from cupola.core import critics, surrogates
from cupola.core.advantages import scale, scale_level
from cupola.core.critics import Fit
from cupola.core.divergences import Divergence, kl_to
from cupola.core.minibatch import epoch, shuffles
from cupola.core.optimisers import adam
from cupola.core.prediction import cost_levels
from cupola.types import Algorithm, Batch, Learner, Metrics, Params, Problem, Samples

BEYOND = 1.2
"""Share of delta that a descent may end at where the KL is looked at within an epoch."""
SHORTEN = 0.8
"""Factor by which a descent beyond that is shortened until it is within."""
SHORTEST = 1e-3
"""Share of a descent that always stays."""
REACH = 2.0
"""Standard deviations that a mean may lie beyond an actuator's end before `bounds_loss` counts."""
VARIANCE_RATE = 0.1
"""Share of a batch in the running variance of the cost advantages."""


class Context(NamedTuple):
    """What a loss knows beside the policy and the samples of a minibatch."""

    nu: jax.Array  # [K], Lagrange multipliers
    violation: jax.Array  # [K], J^ - b in the unit of mean_t rho_t A^c_t; -inf: not known yet
    log_std: nets.LogStd  # of pi_k


class Stepped(NamedTuple):
    """A learner after a policy step, which may change all of it but the critics."""

    learner: Learner
    metrics: Metrics
    epochs: jax.Array  # [], that the step took or began
    trace: jax.Array  # [looks], the KL at each look at it; NaN where none was taken


Loss: TypeAlias = Callable[[jax.Array, nets.LogStd, Samples, Context], jax.Array]
"""Of a policy's mean and log standard deviation in the states of a minibatch, the minibatch and the
context: a scalar to be minimised."""
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
        with critic_fit(learner, samples, batch, critic_key, cores) as fitting:
            moved, metrics, taken, _ = first_step(learner, samples, batch, orders[0])
            if isinstance(fitting, critics.Epochs):
                fitting.keep(int(taken))  # the critics run ahead; later epochs are thrown away
            if second_step:
                end = second_step(moved, learner, samples, batch, orders[1])
                moved, more, _, _ = jax.block_until_ready(end)
                metrics = metrics | more
            moved = remembered(moved, samples, jax.random.fold_in(critic_key, 1))
            return with_critics(moved, metrics, fitting.result())

    def critic_fit(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array, cores: int
    ) -> critics.Background[Fit]:
        """The fit of all critics, which goes on beside the policy's steps on a second core."""
        start = Fit.start(learner.critics, learner.critic_opt)
        if config.critic_epochs:
            return scheduled_fit(start, learner, samples, batch, key, cores)
        orders = shuffles(key, config.epochs, len(samples.obs), config.minibatch_size)
        data = (samples.obs, samples.targets)
        return critics.Epochs(
            lambda fit, order: critic_epoch(fit, data, batch, order), start, orders, cores
        )

    def scheduled_fit(
        start: Fit, learner: Learner, samples: Samples, batch: Batch, key: jax.Array, cores: int
    ) -> critics.Background[Fit]:
        """With `critic_epochs`: the second core makes some passes of the reward's critic and those
        of the costs', and the first one the reward's last ones, behind the policy's steps."""
        schedule = cache(lambda: critic_schedule(learner, samples, key, config))
        ahead = config.critic_epochs // 3  # so that both cores are busy for about as long

        def passes(fit: Fit, part: int, which: slice) -> Fit:
            (obs, targets), orders = schedule()
            data = (obs, targets[:, PARTS[part]])
            for order in orders[which, part]:
                fit = jax.block_until_ready(critic_epoch(fit, data, batch, order))
            return fit

        return critics.Relay(
            lambda: passes(start.part(PARTS[0]), 0, slice(ahead)),
            lambda reward: passes(reward, 0, slice(ahead, None)),
            lambda: passes(start.part(PARTS[1]), 1, slice(None)),
            cores,
        )

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


def of_policy(
    loss: Callable[[jax.Array, nets.LogStd, Any, Context], jax.Array],
    config: MinibatchConfig,
    problem: Problem,
) -> Callable[[nets.Policy, Any, Context], jax.Array]:
    """The loss as one of the policy; with `bounds_loss` times the mean square of the standard
    deviations by which means lie further than `REACH` of them beyond an actuator's end.

    Where every action that may be drawn has the same effect, samples say nothing about others. Both
    parts share one pass of the network, and so one way back through it.
    """
    ends = jnp.asarray(problem.saturation)

    def whole(policy: nets.Policy, data: Any, context: Context) -> jax.Array:
        mean, log_std = nets.apply_policy(policy, data.obs)
        value = loss(mean, log_std, data, context)
        if not config.bounds_loss or log_std is None or not problem.saturation:
            return value
        excess = surrogates.excess(mean, jax.lax.stop_gradient(log_std), ends, REACH)
        return value + config.bounds_loss * jnp.mean(excess)

    return whole


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
        raw = samples.adv_c
        learner, scaled = scale_costs(learner, raw, config)
        level = scale_level(context.violation, raw, config.cost_advantage, learner.cost_variance)
        context = context._replace(violation=level)
        samples = samples._replace(adv_c=scaled)
    end = descend(
        begin(learner.policy, learner.policy_opt, learner.nu),
        of_policy(loss, config, problem),
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
    opt_state: Params
    nu: jax.Array  # [K]
    kl: jax.Array  # [], mean KL that the stopping rule saw last
    epochs: jax.Array  # [], epochs taken or begun
    trace: jax.Array  # [looks], kl at each look at it; NaN where there was none
    cut_short: jax.Array  # [] bool: did it end beyond its bound, before it was shortened?


def begin(policy: nets.Policy, opt_state: Params, nu: jax.Array) -> Descent:
    dtype = policy.mean[-1][1].dtype
    kl, trace = jnp.zeros((), dtype), jnp.zeros(0, dtype)
    return Descent(policy, opt_state, nu, kl, jnp.int32(0), trace, jnp.bool(False))


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
    delta: float | None = None,
    next_nu: Callable[[jax.Array, nets.Policy], jax.Array] = lambda nu, policy: nu,
    active: jax.Array | bool = True,
) -> Descent:
    """Adam on ``data`` (leaves [B, ...]) until a look at the divergence finds it too large.

    ``orders`` [E, count, minibatch] say which samples each step takes. The divergence is looked at
    after every epoch and ends the descent beyond delta. Or it is looked at every `check_every`
    minibatches and ends it beyond `overshoot` delta; a descent beyond `BEYOND` delta is then
    shortened to that. Its direction is better the more of the batch it has seen: Adam's first
    steps are long, and those of a few minibatches. ``next_nu`` gives the multipliers after each
    look. Where not ``active``, nothing is done. Without a bound (delta = inf) the divergence is
    only taken at the end.
    """
    delta = delta or config.delta
    bounded = delta < math.inf
    bound = delta * BEYOND if config.check_every else delta
    reach = delta * config.overshoot if config.check_every else delta
    optimiser = adam(config.max_grad_norm)
    orders, looks = between_looks(orders, config.check_every)

    def one_stretch(state: Descent) -> Descent:
        def reported(policy: nets.Policy, sample: Params) -> tuple[jax.Array, jax.Array]:
            value = loss(policy, sample, context._replace(nu=state.nu))
            return value, value

        at = (state.policy, state.opt_state)
        policy, opt_state, _ = epoch(at, reported, optimiser, data, orders[state.epochs], rate)
        kl = divergence(policy) if bounded else state.kl
        trace = state.trace.at[state.epochs].set(kl) if bounded else state.trace
        nu, count = next_nu(state.nu, policy), state.epochs + 1
        return Descent(policy, opt_state, nu, kl, count, trace, kl > bound)

    def goes_on(state: Descent) -> jax.Array:
        return active & (state.epochs < len(orders)) & (state.kl <= reach)

    start = start._replace(trace=jnp.full(len(orders), jnp.nan, start.kl.dtype))
    end = jax.lax.while_loop(goes_on, one_stretch, start)  # its epochs are stretches here
    if not bounded:
        end = end._replace(kl=jnp.where(end.epochs > 0, divergence(end.policy), 0.0))
    elif config.check_every:
        policy, kl = shortened(start.policy, end.policy, end.kl, divergence, bound)
        end = end._replace(policy=policy, kl=kl)
    return end._replace(epochs=-(-end.epochs // looks))


def between_looks(orders: jax.Array, check_every: int) -> tuple[jax.Array, int]:
    """Orders [E, count, minibatch] cut into stretches [E looks, steps, minibatch], and how many
    looks an epoch has; a remainder of an epoch that fills no stretch is left out."""
    count, minibatch = orders.shape[1:]
    steps = min(check_every, count) if check_every else count
    looks = count // steps
    return orders[:, : looks * steps].reshape(-1, steps, minibatch), looks


def shortened(
    start: nets.Policy,
    end: nets.Policy,
    kl: jax.Array,
    divergence: Divergence,
    bound: float,
) -> tuple[nets.Policy, jax.Array]:
    """The way from ``start`` to ``end``, as far as the divergence stays within the bound; ``kl`` is
    that of ``end``. Where ``start`` itself is at the bound and the way leads outwards, that is next
    to nothing."""

    def at(share: jax.Array) -> nets.Policy:
        return jax.tree.map(lambda a, b: a + share * (b - a), start, end)

    def shorter(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        share = SHORTEN * state[0]
        return share, divergence(at(share))

    def too_far(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        share, kl = state
        return (kl > bound) & (share > SHORTEST)

    share, kl = jax.lax.while_loop(too_far, shorter, (jnp.ones_like(kl), kl))
    policy = jax.tree.map(lambda a, b: jnp.where(share < 1, a, b), at(share), end)
    return policy, kl


def scale_costs(
    learner: Learner, adv_c: jax.Array, config: CostConfig
) -> tuple[Learner, jax.Array]:
    """Cost advantages [B, K] as losses take them; the learner with the running variance moved."""
    if config.cost_advantage == "running":
        now, before = jnp.var(adv_c, axis=0), learner.cost_variance
        variance = jnp.where(before > 0, before + VARIANCE_RATE * (now - before), now)
        learner = learner._replace(cost_variance=variance)
    return learner, scale(adv_c, config.cost_advantage, learner.cost_variance)


def update_multipliers(
    learner: Learner, batch: Batch, config: LagrangianConfig, problem: Problem
) -> Learner:
    """The learner after one step of the multipliers' rule on the measured cost returns.

    ``learner`` has the critics that have not seen the batch.
    """
    measured, limits = jnp.asarray(batch.cost_returns), config.aim * jnp.asarray(problem.limits)
    if config.cost_estimate == "steps":
        measured = cost_levels(
            learner.critics,
            batch,
            gamma=config.gamma,
            discounted=problem.discounted,
            goes_on=config.cost_termination == "goes_on",
        )
    if config.violation == "relative":
        measured, limits = relative_violation(measured, limits), jnp.zeros_like(limits)
    nu, state = config.multiplier_rule().update(
        learner.nu, learner.multiplier_state, measured, limits
    )
    return learner._replace(nu=nu, multiplier_state=state)


def relative_violation(costs: jax.Array, limits: jax.Array) -> jax.Array:
    """(J - b) / max(J, b), between -1 and 1, of costs and limits [K]; NaN where J is not known."""
    return (costs - limits) / jnp.maximum(jnp.maximum(costs, limits), 1e-12)


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
