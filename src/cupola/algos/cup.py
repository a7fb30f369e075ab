"""CUP: Constrained Update Projection (Yang et al., NeurIPS 2022).

Maximise J(pi) subject to J^{c_i}(pi) <= b_i. Each iteration, on samples of pi_k, takes two steps:

1. improvement   theta_{k+1/2} = argmax  mean_t min(rho_t A_t, g(eps, A_t))
2. projection    theta_{k+1}   = argmin  mean_t [ KL(pi_theta, pi_{k+1/2})[s_t]
                                         + sum_i nu_i rho_t C^i_t ]

with rho_t = pi_theta(a_t|s_t) / pi_k(a_t|s_t) in both, g(eps, A) = (1 + eps sign A) A, and C^i_t
the advantage of cost i, scaled. Both are minibatch Adam, each with a trust region: a step ends when
a look at its mean KL over the whole batch finds more than delta.

What the default, the preset `steady`, has and Algorithm 1 has not:

- C = alpha A^c (`projection_scale`). The improvement moves the policy by about alpha F^-1 g, F the
  Fisher matrix and g the gradient of mean_t rho_t A_t, so that alpha = 2 KL(pi_{k+1/2}, pi_k) over
  the gain mean_t (rho_t - 1) A_t. The projection moves it by -alpha nu F^-1 g_c. Together that is a
  step up J - nu J^c: nu is in units of return per cost, whatever the learning rate, and both steps
  shrink together. A is divided by its standard deviation, A^c by a running one.
- The KL is looked at every few minibatches. A step may go beyond delta on its way, to see all of
  the batch, and is then shortened (`overshoot`). The projection has an optimiser of its own.
- No sample makes a projection look better than twice its advantage (`projection_clip`).
- The initial noise is a share of the range of the actions (`std_unit`), it never falls below a
  fifth of that range (`min_std`), and means stay where some actions differ in effect
  (`bounds_loss`): a batch must say what other actions would have done.
- The advantages of the costs look only a step or two ahead (`lam_c`) and leave the rest to the
  critics, which learn from longer sums (`lam_critic`) and, for the costs, from the last batches.
- nu by a PID controller of the relative violation.

The Lagrange multipliers nu_i >= 0 follow a rule (`multiplier`). J^_i is the cost return that was
measured: the mean over the episodes that ended, discounted where the limit is.

- `integral`, Algorithm 1 of the paper: nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max), once
  before the projection. Skipped where all nu are zero.
- `pid`: the same with a PID controller.
- `predicted`, as the paper defines the projection: nu_i rises while the cost that the batch
  predicts for pi_theta is above b_i, less a margin, and falls while it is below. It moves before
  the first epoch of the projection and after each. Skipped where no cost of pi_{k+1/2} is predicted
  above that.

Read this file, then algos/update.py (the order of an update, minibatch descent) and
core/multipliers.py (the rules). Values of gamma, epochs and the rest: algos/config.py. Why each
switch is as it is, and what differs from the paper: docs/algorithms/cup.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    of_policy,
    scale_costs,
    update_multipliers,
)
from cupola.checks import check, check_not_negative, check_positive
from cupola.core import distributions, multipliers, surrogates
from cupola.core.advantages import Scaling, horizon_factor
from cupola.core.divergences import kl_to
from cupola.core.multipliers import MultiplierRule
from cupola.core.optimisers import adam
from cupola.core.samples import ratio, ratio_of, time_weights, weighted_by_time
from cupola.types import Algorithm, Batch, Learner, Problem, Samples

HELD_OUT = 0.2
"""Share of the batch on which costs are predicted (multiplier=predicted); no step is fitted to it.

It is the last stretch of time of all environments: samples lie in order of time.
"""
ALPHA_MAX = 10.0
"""Bound on alpha, whose estimate fails where an improvement gains nothing."""


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, LagrangianConfig):
    """CUP's switches; the defaults are the preset `steady`."""

    batch_size: int = 10000
    """Environment steps per iteration."""
    lam_c: float = 0.5
    """Lambda of generalised advantage estimation, for the costs."""
    lam_critic: float = 0.95
    """Lambda of what the critics learn, reward and costs; 0: those of the advantages."""
    cost_termination: Literal["terminal", "time_limit", "goes_on"] = "goes_on"
    """What a termination is for costs with a discounted limit: their end too; a time limit, after
    which the critic says what comes; or they go on as they were."""
    action_density: Literal["gaussian", "clipped"] = "clipped"
    """Density of actions beyond the point where an actuator saturates: the Gaussian's, or the
    probability of all that lies beyond."""
    std_unit: Literal["action", "bound"] = "bound"
    """Unit of the initial standard deviation of the actions: their own, or the bound beyond which
    they have no further effect, where there is one."""
    min_std: float = 0.2
    """The standard deviation of the actions never falls below this. With less noise the batch says
    less about which action is better."""
    minibatch_size: int = 250
    bounds_loss: float = 0.1
    """Weight of a loss on means so far beyond an actuator's end that no action says any more what
    the others would do; 0: none."""
    epochs: int = 3
    """Epochs of either step, at most. More of them fit the noise of the batch."""
    learning_rate: float = 6e-4
    """Step size of Adam, at the start."""
    value_l2: float = 0.0
    """Weight of the sum of squared parameters in the critics' loss."""
    critic_lr: float = 1e-3
    """Learning rate of the critics; 0: learning_rate."""
    critic_epochs: int = 16
    """Passes of the critics, each over as many samples as a batch has; 0: as many epochs as the
    improvement takes."""
    critic_memory: int = 31
    """Earlier batches of which a quarter is kept for the costs' critics to go on learning from
    (critic_epochs above 0); the reward's critic learns from the newest batch."""
    delta: float = 0.02
    """KL divergence that ends either step early; inf never does. Also focops' bound per state."""
    check_every: int = 20
    """Minibatches between two looks at the KL, and a step beyond 1.2 delta is shortened; 0: it is
    looked at once per epoch and nothing is shortened."""
    overshoot: float = 4.0
    """A step ends at a look that finds the KL beyond this many times delta, and is then shortened
    (check_every above 0). With 1 it ends after a few minibatches, which are mostly noise."""
    cost_advantage: Scaling = "running"
    """Scaling of the cost advantages."""
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
    projection_delta: float = 0.0
    """KL divergence that ends the projection early; 0: delta."""
    projection_clip: float = 1.0
    """Epsilon of the costs in the projection, clipped as the gain is in the improvement: no sample
    looks better than 1 + epsilon times its advantage; inf: not clipped."""
    projection_optimiser: Literal["own", "shared"] = "own"
    """Adam of the projection: a new one each time, or the improvement's with its memory."""
    projection_scale: Literal["improvement", "horizon"] = "improvement"
    """Factor on the cost advantages: alpha, the length of the improvement's step, or
    (1 - gamma lam_c) / (1 - gamma)."""
    cost_weights: Literal["time", "uniform"] = "uniform"
    """Weights of the samples of a cost with a discounted limit: gamma^t, or all alike."""
    beta: float = 0.0
    """Weight of sum_i nu_i sqrt(mean KL(pi_k || pi_theta)) in the projection's loss."""
    multiplier: Literal["integral", "pid", "predicted"] = "pid"  # type: ignore[assignment]
    """Rule of the multipliers: integral of the violations, PID controller, or prediction."""
    violation: Literal["absolute", "relative"] = "relative"
    """What the rule sees: J^ - b, or (J^ - b) / max(J^, b), the same for costs of any size."""
    cost_estimate: Literal["episodes", "steps"] = "steps"
    """What the multipliers see of a cost: the mean over these episodes, or over all steps of the
    batch, which are of the newest policy."""
    aim: float = 0.95
    """The rule steers to this share of the limit."""
    nu_init: float = 0.0
    """Multipliers at the start."""
    nu_max: float = 100.0
    """Bound on the multipliers."""
    pid_kp: float = 2.0
    """Gain on the smoothed violation (multiplier=pid)."""
    pid_ki: float = 0.1
    """Gain on the sum of violations (multiplier=pid)."""
    pid_kd: float = 0.0
    """Gain on the rise of the smoothed cost (multiplier=pid)."""
    pid_smoothing: float = 0.7
    """Weight of the past in both averages (multiplier=pid)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip", "projection_clip", "temperature")
        check_not_negative(self, "alpha", "beta", "projection_delta")
        check(
            not (self.check_every and self.stop_reference == "start")
            or self.projection_delta == 0
            or self.projection_delta >= self.delta,
            f"projection_delta must be 0 or at least delta, {self.delta}, not"
            f" {self.projection_delta}: with stop_reference=start the projection begins where the"
            " improvement ended, up to delta away.",
        )
        fitted = self.batch_size - self.held_out
        check(
            fitted > 0,
            "multiplier=predicted needs a batch_size of at least 2: it keeps a part of the batch to"
            " test its prediction.",
        )
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


PAPER = Config(
    batch_size=5000,
    lam_c=0.95,
    lam_critic=0.0,
    cost_termination="terminal",
    action_density="gaussian",
    std_unit="action",
    min_std=0.0,
    bounds_loss=0.0,
    minibatch_size=64,
    epochs=10,
    learning_rate=3e-4,
    value_l2=1e-3,
    critic_lr=0.0,
    critic_epochs=0,
    critic_memory=0,
    delta=0.02,
    check_every=0,
    overshoot=1.0,
    cost_advantage="standardise",
    projection_clip=math.inf,
    projection_optimiser="shared",
    projection_scale="horizon",
    multiplier="integral",
    violation="absolute",
    cost_estimate="episodes",
    aim=1.0,
    nu_init=0.0,
    nu_max=2.0,
    pid_kp=LagrangianConfig.pid_kp,
    pid_ki=LagrangianConfig.pid_ki,
    pid_kd=LagrangianConfig.pid_kd,
    pid_smoothing=LagrangianConfig.pid_smoothing,
)
"""The paper's table and Algorithm 1; where they say nothing, the authors' code."""

PRESETS = {
    "steady": Config(),
    "paper": PAPER,
    "release": replace(PAPER, batch_size=2048, num_envs=16, time_limit="terminal"),
    "omnisafe": replace(
        PAPER,
        batch_size=20000,
        epochs=40,
        delta=0.01,
        stop_reference="half",
        cost_advantage="centre",
        multiplier_optimiser="adam",
        multiplier_lr=0.035,
        cost_window=100,
        lr_decay="policy",
        log_std=0.0,
        last_layer_scale=1.0,
    ),
    "predicted": replace(PAPER, cost_termination="time_limit", multiplier="predicted"),
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
        of_policy(partial(improvement_loss, config=config), config, problem),
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
    mean: jax.Array, log_std: nets.LogStd, sample: Samples, context: Context, *, config: Config
) -> jax.Array:
    """What step 1 minimises on a minibatch."""
    rho = ratio_of(mean, log_std, sample)
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
    before = half.multiplier_state
    half = update_multipliers(half, batch, config, problem)
    log_std = start.policy.log_std
    half_mean, half_log_std = nets.apply_policy(half.policy, samples.obs)
    if config.multiplier == "predicted":
        costs = predicted_costs(half, samples, batch, config, problem)
    else:
        half, costs = measured_costs(half, start, samples, config, problem)
    target = Target(samples._replace(adv_c=costs.adv_c), half_mean)
    stop_at_start = config.stop_reference == "start"
    reference = (samples.mean, log_std) if stop_at_start else (half_mean, half_log_std)
    origin = half.policy
    if config.projection_start == "start":
        origin = jax.tree.map(
            lambda old, new: jnp.where(costs.active, old, new), start.policy, half.policy
        )
    own = config.projection_optimiser == "own"
    optimiser = adam(config.max_grad_norm).init(origin) if own else half.policy_opt
    descent = descend(
        begin(origin, optimiser, costs.next_nu(half.nu, half.policy)),
        of_policy(
            partial(projection_loss, half_log_std=half_log_std, config=config), config, problem
        ),
        context_of(start, batch, config, problem),
        target,
        orders,
        config,
        projection_rate(config, batch.progress, half.nu),
        divergence=kl_to(samples.obs, *reference),
        delta=config.projection_delta,
        next_nu=costs.next_nu,
        active=costs.active,
    )
    rule = config.multiplier_rule()
    state = rule.settle(before, half.multiplier_state, descent.cut_short)
    end = half._replace(policy=descent.policy, nu=descent.nu, multiplier_state=state)
    if not own:
        end = end._replace(policy_opt=descent.opt_state)
    report = {"kl_project": descent.kl, "epochs_project": descent.epochs}
    return Stepped(end, report, descent.epochs, descent.trace)


def projection_rate(config: Config, progress: jax.Array, nu: jax.Array) -> jax.Array:
    """Learning rate of step 2. Where alpha measures the improvement, the projection goes about
    sum nu times as far: so much larger is its rate, but never larger than at the start. A rate
    that did not fall would move the policy at random once the improvement is short."""
    rate = learning_rate(config, progress, "policy")
    if config.projection_scale == "improvement":
        return jnp.minimum(rate * (1 + jnp.sum(nu)), config.learning_rate)
    return rate


class Target(NamedTuple):
    """What step 2 sees of a sample."""

    samples: Samples  # whose adv_c are C of the docstring
    half_mean: jax.Array  # [B, A], of pi_{k+1/2}

    @property
    def obs(self) -> jax.Array:
        return jnp.asarray(self.samples.obs)


def projection_loss(
    mean: jax.Array,
    log_std: nets.LogStd,
    target: Target,
    context: Context,
    *,
    half_log_std: nets.LogStd,
    config: Config,
) -> jax.Array:
    """What step 2 minimises on a minibatch."""
    sample = target.samples
    rho = ratio_of(mean, log_std, sample)
    if config.projection_kl == "new_half":
        distance = distributions.kl(mean, log_std, target.half_mean, half_log_std)
    else:
        distance = distributions.kl(target.half_mean, half_log_std, mean, log_std)
    cost = sample.adv_c @ context.nu
    clipped = surrogates.clipped_cost(rho, cost, config.projection_clip)
    loss = jnp.mean(distance + clipped)
    if config.beta > 0:
        from_start = jnp.mean(distributions.kl(sample.mean, context.log_std, mean, log_std))
        loss += config.beta * jnp.sum(context.nu) * surrogates.safe_sqrt(from_start)
    return loss


class Costs(NamedTuple):
    """What the projection knows of the costs."""

    adv_c: jax.Array  # [B, K], C of the docstring
    next_nu: Callable[[jax.Array, nets.Policy], jax.Array]  # of nu [K] and the current policy
    active: jax.Array  # [] bool: is there anything to project?


def measured_costs(
    half: Learner, start: Learner, samples: Samples, config: Config, problem: Problem
) -> tuple[Learner, Costs]:
    """With the rules `integral` and `pid`: nu stays as it is during the projection."""
    adv_c = samples.adv_c
    if config.cost_weights == "time" and any(problem.discounted):
        adv_c = weighted_by_time(samples, config.gamma, problem.discounted)
    half, adv_c = scale_costs(half, adv_c, config)
    factor = jnp.asarray(horizon_factor(config.gamma, config.lam_c))
    if config.projection_scale == "improvement":
        factor = improvement_length(half.policy, start.policy, samples)
    return half, Costs(factor * adv_c, lambda nu, policy: nu, jnp.any(half.nu > 0))


def improvement_length(half: nets.Policy, start: nets.Policy, samples: Samples) -> jax.Array:
    """alpha of the docstring: 2 KL(pi_{k+1/2}, pi_k) / mean_t (rho_t - 1) A_t.

    For a step d = alpha F^-1 g the KL is d'Fd / 2 = alpha^2 g'F^-1 g / 2 and the gain g'd = alpha
    g'F^-1 g. Both are of the samples that the step was fitted to, so that noise enters both.
    """
    kl = kl_to(samples.obs, samples.mean, start.log_std)(half)
    gain = jnp.mean((ratio(half, samples) - 1) * samples.adv_r)
    return jnp.clip(2 * kl / jnp.maximum(gain, 1e-8), 0.0, ALPHA_MAX)


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
    weighted = weighted_by_time(samples, config.gamma, problem.discounted)
    spread = jnp.maximum(jnp.std(weighted, axis=0), 1e-8)
    adv_c = weighted / spread
    gap = (batch.cost_returns - limits) / (batch.horizons * spread)
    # A cost return that is not known yet counts as far below its limit: its nu becomes 0.
    violation = jnp.where(jnp.isnan(gap), -jnp.inf, gap)
    # As strong as the bound of the other rules, whose C carries that factor.
    nu_max = config.nu_max * horizon_factor(config.gamma, config.lam_c)

    # Held-out samples: on those that it was fitted to, a policy looks better than it is.
    last = slice(-config.held_out, None)
    unseen = jax.tree.map(lambda leaf: leaf[last], samples)
    share = jnp.mean(weights[last], axis=0)  # 0 where they are all too late to count
    reweight = jnp.where(
        share > 0, jnp.mean(weights, axis=0) / share, 0.0
    )  # w has mean 1 there too

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
