"""CUP: Constrained Update Projection (Yang et al., NeurIPS 2022).

Maximise J(pi) subject to J^{c_i}(pi) <= b_i. Each iteration, on samples of pi_k, takes two steps:

1. improvement   theta_{k+1/2} = argmax  mean_t min(rho_t A_t, g(eps, A_t))
2. projection    theta_{k+1}   = argmin  mean_t [ KL(pi_theta, pi_{k+1/2})[s_t]
                                         + sum_i nu_i rho_t C^i_t ]

with rho_t = pi_theta(a_t|s_t) / pi_k(a_t|s_t) in both, g(eps, A) = (1 + eps sign A) A, and C^i_t
the advantage of cost i, scaled. Both are minibatch Adam with one optimiser state, as in the
authors' code. A step ends after the first epoch whose mean KL to pi_k, over the whole batch,
exceeds delta; that epoch is kept. A projection that is not skipped takes at least one epoch.

The Lagrange multipliers nu_i >= 0 follow a rule (`multiplier`). J^_i is the cost return that was
measured: the mean over the episodes that ended, discounted where the limit is.

- `predicted`, the default, as the paper defines the projection: nu_i rises while the cost that the
  batch predicts for pi_theta is above b_i, less a margin, and falls while it is below. It moves
  before the first epoch of the projection and after each. Skipped where no cost of pi_{k+1/2} is
  predicted above that.
- `integral`, Algorithm 1 of the paper: nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max), once
  before the projection. C = (1 - gamma lam)/(1 - gamma) A^c. Skipped where all nu are zero.
- `pid`: the same with a PID controller of J^_i - b_i.

Read this file, then algos/update.py (the order of an update, minibatch descent) and
core/multipliers.py (the rules). Values of gamma, epochs and the rest: algos/config.py. Why each
switch is as it is, and what differs from the paper: docs/algorithms/cup.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import LagrangianConfig, MinibatchConfig, learning_rate
from cupola.algos.update import (
    Context,
    Stepped,
    begin,
    context_of,
    descend,
    minibatch_algorithm,
    update_multipliers,
)
from cupola.checks import check, check_not_negative, check_positive
from cupola.core import distributions, multipliers, surrogates
from cupola.core.advantages import horizon_factor, scale
from cupola.core.divergences import kl_to
from cupola.core.multipliers import MultiplierRule
from cupola.core.samples import ratio, time_weights
from cupola.types import Algorithm, Batch, Learner, Problem, Samples

HELD_OUT = 0.2
"""Share of the batch on which costs are predicted (multiplier=predicted); no step is fitted to it.

It is the last stretch of time of all environments: samples lie in order of time.
"""


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, LagrangianConfig):
    """CUP's switches; the defaults are the preset `paper`."""

    cost_termination: Literal["terminal", "time_limit"] = "time_limit"
    """For costs with a discounted limit: a termination ends them, or counts as a time limit."""
    delta: float = 0.02
    """KL divergence that ends either step early; inf never does. Also focops' bound per state."""
    improvement: Literal["clip", "kl", "focops"] = "clip"
    """Objective of the improvement."""
    clip: float = 0.2
    """Epsilon of the clipped objective (improvement=clip)."""
    alpha: float = 0.3
    """Weight of the square root of the KL (improvement=kl)."""
    temperature: float = 1.5
    """Divisor of the surrogate (improvement=focops)."""
    projection_kl: Literal["new_half", "half_new"] = "new_half"
    """KL(pi_theta || pi_{k+1/2}) as in the authors' code, or the reverse as in the paper's text."""
    projection_start: Literal["half", "start"] = "half"
    """Where the projection's descent begins: pi_{k+1/2}, or pi_k as Section 4.2 writes it."""
    stop_reference: Literal["start", "half"] = "start"
    """The policy whose distance ends the projection: pi_k or pi_{k+1/2}."""
    beta: float = 0.0
    """Weight of sum_i nu_i sqrt(mean KL(pi_k || pi_theta)) in the projection's loss."""
    multiplier: Literal["integral", "pid", "predicted"] = "predicted"  # type: ignore[assignment]
    """Rule of the multipliers: integral of the violations, PID controller, or prediction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip", "temperature")
        check_not_negative(self, "alpha", "beta")
        fitted = self.batch_size - self.held_out
        check(
            self.minibatch_size <= fitted,
            f"minibatch_size must be at most {fitted}, the part of the batch that the policy is"
            f" fitted to, not {self.minibatch_size}.",
        )

    @property
    def held_out(self) -> int:
        """Samples at the end of the batch that the policy is not fitted to."""
        return max(1, round(HELD_OUT * self.batch_size)) if self.multiplier == "predicted" else 0

    def multiplier_rule(self) -> MultiplierRule:
        return (
            multipliers.predicted() if self.multiplier == "predicted" else super().multiplier_rule()
        )


PRESETS = {
    "paper": Config(),
    "release": Config(
        batch_size=2048,
        num_envs=16,
        time_limit="terminal",
        cost_termination="terminal",
        multiplier="integral",
    ),
    "omnisafe": Config(
        batch_size=20000,
        epochs=40,
        cost_termination="terminal",
        delta=0.01,
        stop_reference="half",
        cost_advantage="centre",
        multiplier="integral",
        multiplier_optimiser="adam",
        multiplier_lr=0.035,
        cost_window=100,
        lr_decay="policy",
        log_std=0.0,
        last_layer_scale=1.0,
    ),
}


def improve(
    learner: Learner,
    samples: Samples,
    batch: Batch,
    orders: jax.Array,
    *,
    config: Config,
    problem: Problem,
) -> Stepped:
    """Step 1: from pi_k to pi_{k+1/2}; ``orders`` [E, count, minibatch] of the samples."""
    log_std = learner.policy.log_std
    descent = descend(
        begin(learner.policy, learner.policy_opt, learner.nu),
        partial(improvement_loss, config=config),
        context_of(learner, batch, config, problem),
        samples,
        orders,
        config,
        learning_rate(config, batch.progress, "policy"),
        divergence=kl_to(samples.obs, samples.mean, log_std),  # mean KL(pi_theta || pi_k)
    )
    half = learner._replace(policy=descent.policy, policy_opt=descent.opt_state)
    report = {"kl_improve": descent.kl, "epochs_improve": descent.epochs}
    return Stepped(half, report, descent.epochs, descent.trace)


def improvement_loss(
    policy: nets.Policy, sample: Samples, context: Context, *, config: Config
) -> jax.Array:
    """What step 1 minimises on a minibatch."""
    mean, log_std = nets.apply_policy(policy, sample.obs)
    rho = jnp.exp(distributions.log_prob(mean, log_std, sample.actions) - sample.log_prob)
    if config.improvement == "clip":
        return -jnp.mean(surrogates.clipped(rho, sample.adv_r, config.clip))
    if config.improvement == "kl":
        divergence = jnp.mean(distributions.kl(sample.mean, context.log_std, mean, log_std))
        penalty = config.alpha * surrogates.safe_sqrt(divergence)
        return penalty - jnp.mean(rho * sample.adv_r)
    divergence = distributions.kl(mean, log_std, sample.mean, context.log_std)
    inside = jax.lax.stop_gradient(divergence <= config.delta)
    return jnp.mean(inside * (divergence - rho * sample.adv_r / config.temperature))


def project(
    half: Learner,
    start: Learner,
    samples: Samples,
    batch: Batch,
    orders: jax.Array,
    *,
    config: Config,
    problem: Problem,
) -> Stepped:
    """Step 2: from pi_{k+1/2} to pi_{k+1}; ``half`` and ``start`` hold pi_{k+1/2} and pi_k.

    Skipped where no cost needs it (`Costs.active`): Adam's momentum alone would move the policy.
    """
    half = update_multipliers(half, batch, config, problem)
    log_std = start.policy.log_std
    half_mean, half_log_std = nets.apply_policy(half.policy, samples.obs)
    costs = (
        predicted_costs(half, samples, batch, config, problem)
        if config.multiplier == "predicted"
        else measured_costs(half, samples, config)
    )
    target = Target(
        samples.obs, samples.actions, samples.log_prob, samples.mean, half_mean, costs.adv_c
    )
    stop_at_start = config.stop_reference == "start"
    reference = (samples.mean, log_std) if stop_at_start else (half_mean, half_log_std)
    origin = half.policy
    if config.projection_start == "start":
        origin = jax.tree.map(
            lambda old, new: jnp.where(costs.active, old, new), start.policy, half.policy
        )
    descent = descend(
        begin(origin, half.policy_opt, costs.next_nu(half.nu, half.policy)),
        partial(projection_loss, half_log_std=half_log_std, config=config),
        context_of(start, batch, config, problem),
        target,
        orders,
        config,
        learning_rate(config, batch.progress, "policy"),
        divergence=kl_to(samples.obs, *reference),
        next_nu=costs.next_nu,
        active=costs.active,
    )
    end = half._replace(policy=descent.policy, policy_opt=descent.opt_state, nu=descent.nu)
    report = {"kl_project": descent.kl, "epochs_project": descent.epochs}
    return Stepped(end, report, descent.epochs, descent.trace)


class Target(NamedTuple):
    """What step 2 sees of a sample."""

    obs: jax.Array  # [B, O]
    actions: jax.Array  # [B, A]
    log_prob: jax.Array  # [B], under pi_k
    mean: jax.Array  # [B, A], of pi_k
    half_mean: jax.Array  # [B, A], of pi_{k+1/2}
    adv_c: jax.Array  # [B, K], C of the docstring


def projection_loss(
    policy: nets.Policy,
    sample: Target,
    context: Context,
    *,
    half_log_std: nets.LogStd,
    config: Config,
) -> jax.Array:
    """What step 2 minimises on a minibatch."""
    mean, log_std = nets.apply_policy(policy, sample.obs)
    rho = jnp.exp(distributions.log_prob(mean, log_std, sample.actions) - sample.log_prob)
    if config.projection_kl == "new_half":
        distance = distributions.kl(mean, log_std, sample.half_mean, half_log_std)
    else:
        distance = distributions.kl(sample.half_mean, half_log_std, mean, log_std)
    loss = jnp.mean(distance + rho * (sample.adv_c @ context.nu))
    if config.beta > 0:
        from_start = jnp.mean(distributions.kl(sample.mean, context.log_std, mean, log_std))
        loss += config.beta * jnp.sum(context.nu) * surrogates.safe_sqrt(from_start)
    return loss


class Costs(NamedTuple):
    """What the projection knows of the costs."""

    adv_c: jax.Array  # [B, K], C of the docstring
    next_nu: Callable[[jax.Array, nets.Policy], jax.Array]  # of nu [K] and the current policy
    active: jax.Array  # [] bool: is there anything to project?


def measured_costs(half: Learner, samples: Samples, config: Config) -> Costs:
    """With the rules `integral` and `pid`: nu stays as it is during the projection."""
    adv_c = horizon_factor(config.gamma, config.lam) * scale(samples.adv_c, config.cost_advantage)
    return Costs(adv_c, lambda nu, policy: nu, jnp.any(half.nu > 0))


def predicted_costs(
    half: Learner, samples: Samples, batch: Batch, config: Config, problem: Problem
) -> Costs:
    """With the rule `predicted`: nu follows the cost predicted for pi_theta,

        J^_i + h_i mean_t w_t (rho_t - 1) A^{c_i}_t.

    w_t = gamma^t over its mean, t the time in the episode, and h_i the mean of sum_t gamma^t over
    the episodes; for an undiscounted limit w = 1 and h_i is the mean length. C = w A^c / sigma with
    sigma the standard deviation of w A^c: a violation divided by h sigma is then, to first order,
    the nu that removes it, so Newton's step on nu is the violation itself.
    """
    limits = jnp.asarray(problem.limits)
    limits -= half.multiplier_state  # the margins
    weights = time_weights(samples, config.gamma, problem.discounted)
    weighted = weights / jnp.mean(weights, axis=0) * samples.adv_c
    spread = jnp.maximum(jnp.std(weighted, axis=0), 1e-8)
    adv_c = weighted / spread
    gap = (batch.cost_returns - limits) / (batch.horizons * spread)
    # A cost return that is not known yet counts as far below its limit: its nu becomes 0.
    violation = jnp.where(jnp.isnan(gap), -jnp.inf, gap)
    # As strong as the bound of the other rules, whose C carries that factor.
    nu_max = config.nu_max * horizon_factor(config.gamma, config.lam)

    # Held-out samples: on those that it was fitted to, a policy looks better than it is.
    last = slice(-config.held_out, None)
    unseen = jax.tree.map(lambda leaf: leaf[last], samples)
    reweight = jnp.mean(weights, axis=0) / jnp.mean(weights[last], axis=0)  # w has mean 1 there too

    def predicted_violation(policy: nets.Policy) -> jax.Array:
        change = jnp.mean((ratio(policy, unseen) - 1)[:, None] * adv_c[last], axis=0)
        return violation + reweight * change

    def next_nu(nu: jax.Array, policy: nets.Policy) -> jax.Array:
        return multipliers.step_to_prediction(nu, predicted_violation(policy), nu_max)

    return Costs(adv_c, next_nu, jnp.any(predicted_violation(half.policy) > 0))


def make(config: Config, problem: Problem) -> Algorithm:
    """CUP as a value."""
    return minibatch_algorithm(
        config,
        problem,
        first=partial(improve, config=config, problem=problem),
        second=partial(project, config=config, problem=problem),
        held_out=config.held_out,
    )
