"""CUP: Constrained Update Projection (Yang et al., NeurIPS 2022, Algorithm 1).

Maximise J(pi) subject to J^{c_i}(pi) <= b_i. Each iteration, on samples of pi_k,

1. improvement      theta_{k+1/2} = argmax  mean_t min(rho_t A_t, g(eps, A_t))
2. dual step        nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max)
3. projection       theta_{k+1}   = argmin  mean_t [ KL(pi_theta, pi_{k+1/2})[s_t]
                                    + sum_i nu_i (1 - gamma lam)/(1 - gamma) rho_t A^{c_i}_t ]

with rho_t = pi_theta(a_t|s_t) / pi_k(a_t|s_t) in both steps, each by minibatch Adam that stops
after an epoch whose mean KL exceeds delta. Every switch is described in docs/algorithms/cup.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.algos.config import MinibatchConfig, PricedConfig
from cupola.algos.update import Learn, assembled, decayed, init_learner, minibatch_learn, raised
from cupola.checks import check, check_not_negative, check_positive
from cupola.core import distributions, surrogates
from cupola.core.advantages import horizon_factor, scale
from cupola.core.minibatch import PolicyDescent, descend, mean_kl, start
from cupola.core.optimisers import adam
from cupola.core.samples import Samples, ratio, time_weights
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem

HELD_OUT = 0.2
"""Share of the batch that solved prices predict costs on; the policy is fitted to the rest."""


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, PricedConfig):
    """CUP's switches; the defaults are the preset `paper`."""

    cost_termination: Literal["terminal", "time_limit"] = "time_limit"
    """What a termination is for costs with a discounted limit: their end too, or a time limit."""
    delta: float = 0.02
    """KL divergence that ends either step early; inf never does."""
    improvement: Literal["clip", "kl", "focops"] = "clip"
    """Objective of the improvement."""
    clip: float = 0.2
    """Epsilon of the clipped objective (improvement=clip)."""
    alpha: float = 0.3
    """Weight of the square root of the KL (improvement=kl)."""
    temperature: float = 1.5
    """Divisor of the surrogate (improvement=focops)."""
    projection_kl: Literal["new_half", "half_new"] = "new_half"
    """KL(pi_theta || pi_{k+1/2}) as in the released code, or the reverse as in the text."""
    projection_start: Literal["half", "start"] = "half"
    """Where the projection's descent begins: pi_{k+1/2}, or pi_k as Section 4.2 writes it."""
    stop_reference: Literal["start", "half"] = "start"
    """The policy whose distance ends the projection: pi_k or pi_{k+1/2}."""
    beta: float = 0.0
    """Weight of the square root of the KL to pi_k in the predicted cost."""
    dual: Literal["slow", "solved"] = "solved"
    """Prices that integrate past violations, or the projection's own, solved on the batch."""

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
        """Samples that the policy is not fitted to."""
        return 0 if self.dual == "slow" else max(1, round(HELD_OUT * self.batch_size))


PRESETS = {
    "paper": Config(),
    "release": Config(
        batch_size=2048,
        num_envs=16,
        time_limit="terminal",
        cost_termination="terminal",
        dual="slow",
    ),
    "omnisafe": Config(
        batch_size=20000,
        epochs=40,
        cost_termination="terminal",
        delta=0.01,
        stop_reference="half",
        cost_advantage="centre",
        dual="slow",
        dual_optimiser="adam",
        dual_lr=0.035,
        cost_window=100,
        lr_decay="policy",
        log_std=0.0,
        last_layer_scale=1.0,
    ),
}


def improvement_loss(
    policy: nets.Policy, sample: Samples, log_std: nets.LogStd, config: Config
) -> jax.Array:
    """What step 2 minimises on a minibatch; ``log_std`` is pi_k's."""
    mean, new_log_std = nets.apply_policy(policy, sample.obs)
    ratio = jnp.exp(distributions.log_prob(mean, new_log_std, sample.actions) - sample.log_prob)
    if config.improvement == "clip":
        return -jnp.mean(surrogates.clipped(ratio, sample.adv_r, config.clip))
    if config.improvement == "kl":
        divergence = jnp.mean(distributions.kl(sample.mean, log_std, mean, new_log_std))
        penalty = config.alpha * surrogates.safe_sqrt(divergence)
        return penalty - jnp.mean(ratio * sample.adv_r)
    divergence = distributions.kl(mean, new_log_std, sample.mean, log_std)
    inside = jax.lax.stop_gradient(divergence <= config.delta)
    return jnp.mean(inside * (divergence - ratio * sample.adv_r / config.temperature))


class Target(NamedTuple):
    """What step 3 sees of a sample."""

    obs: jax.Array  # [B, O]
    actions: jax.Array  # [B, A]
    log_prob: jax.Array  # [B], under pi_k
    mean: jax.Array  # [B, A], of pi_k
    half_mean: jax.Array  # [B, A], of pi_{k+1/2}
    adv_c: jax.Array  # [B, K], cost advantages as they enter the loss


def projection_loss(
    policy: nets.Policy,
    sample: Target,
    log_std: nets.LogStd,
    half_log_std: nets.LogStd,
    nu: jax.Array,
    config: Config,
) -> jax.Array:
    """What step 3 minimises on a minibatch; ``log_std`` is pi_k's."""
    mean, new_log_std = nets.apply_policy(policy, sample.obs)
    ratio = jnp.exp(distributions.log_prob(mean, new_log_std, sample.actions) - sample.log_prob)
    if config.projection_kl == "new_half":
        distance = distributions.kl(mean, new_log_std, sample.half_mean, half_log_std)
    else:
        distance = distributions.kl(sample.half_mean, half_log_std, mean, new_log_std)
    loss = jnp.mean(distance + ratio * (sample.adv_c @ nu))
    if config.beta > 0:
        moved = jnp.mean(distributions.kl(sample.mean, log_std, mean, new_log_std))
        loss += config.beta * jnp.sum(nu) * surrogates.safe_sqrt(moved)
    return loss


def improve(
    begin: PolicyDescent,
    samples: Samples,
    orders: jax.Array,
    learning_rate: jax.Array,
    config: Config,
) -> PolicyDescent:
    """Step 1: from pi_k to pi_{k+1/2}; ``orders`` [E, count, minibatch]."""
    log_std = begin.policy.log_std
    return descend(
        begin,
        lambda policy, sample, nu: improvement_loss(policy, sample, log_std, config),
        adam(config.max_grad_norm),
        samples,
        orders,
        learning_rate,
        delta=config.delta,
        divergence=mean_kl(samples.obs, samples.mean, log_std),
    )


def project(
    half: PolicyDescent,
    begin: nets.Policy,
    samples: Samples,
    batch: Batch,
    orders: jax.Array,
    learning_rate: jax.Array,
    config: Config,
    limits: jax.Array,
    problem: Problem,
) -> PolicyDescent:
    """Step 3: from pi_{k+1/2} to pi_{k+1}; ``begin`` is pi_k, ``half.nu`` the prices [K].

    With all prices zero it is the identity: Adam's momentum must not move the policy.
    """
    log_std = begin.log_std
    half_mean, half_log_std = nets.apply_policy(half.policy, samples.obs)
    adv_c, reprice, active = (
        slow_prices(half, samples, config)
        if config.dual == "slow"
        else solved_prices(half, samples, batch, limits, config, problem)
    )
    target = Target(samples.obs, samples.actions, samples.log_prob, samples.mean, half_mean, adv_c)
    from_start, from_half = (samples.mean, log_std), (half_mean, half_log_std)
    reference = from_start if config.stop_reference == "start" else from_half
    origin = half.policy
    if config.projection_start == "start":
        origin = jax.tree.map(lambda old, new: jnp.where(active, old, new), begin, half.policy)
    return descend(
        start(origin, half.opt_state, reprice(half.nu, half.policy)),
        lambda policy, sample, nu: projection_loss(
            policy, sample, log_std, half_log_std, nu, config
        ),
        adam(config.max_grad_norm),
        target,
        orders,
        learning_rate,
        delta=config.delta,
        divergence=mean_kl(samples.obs, *reference),
        reprice=reprice,
        active=active,
    )


Prices: TypeAlias = tuple[jax.Array, Callable[[jax.Array, nets.Policy], jax.Array], jax.Array]
"""Cost advantages [B, K] as the loss takes them; the next prices [K]; is there work to do?"""


def slow_prices(half: PolicyDescent, samples: Samples, config: Config) -> Prices:
    """Cost advantages times 1/(1 - gamma~), at prices that do not change."""
    adv_c = horizon_factor(config.gamma, config.lam) * scale(samples.adv_c, config.cost_advantage)
    return adv_c, lambda nu, policy: nu, jnp.any(half.nu > 0)


def solved_prices(
    half: PolicyDescent,
    samples: Samples,
    batch: Batch,
    limits: jax.Array,
    config: Config,
    problem: Problem,
) -> Prices:
    """Prices that rise while the predicted cost is above its limit and fall while it is below.

    The cost predicted for pi_theta is J^_i + h_i mean_t w_t (rho_t - 1) A^{c_i}_t / mean_t w_t,
    with w_t = gamma^t and h_i the mean of sum_t gamma^t over the episodes (w = 1 and h_i the mean
    length for an undiscounted limit). In units of h_i times the standard deviation of the
    weighted advantages the curvature of the dual is one: Newton's step is the violation itself.
    """
    weights = time_weights(samples, config.gamma, problem.discounted)
    weighted = weights / jnp.mean(weights, axis=0) * samples.adv_c
    spread = jnp.maximum(jnp.std(weighted, axis=0), 1e-8)
    adv_c = weighted / spread
    gap = (batch.cost_returns - limits) / (batch.horizons * spread)
    # A cost return that is not known yet counts as far below its limit.
    violation = jnp.where(jnp.isnan(gap), -jnp.inf, gap)
    # The same strength as the cap of slow prices, whose advantages carry that factor.
    cap = config.nu_max * horizon_factor(config.gamma, config.lam)

    # The policy is not fitted to these samples: on its own it would seem to do better than it does.
    last = slice(-config.held_out, None)
    unseen = jax.tree.map(lambda leaf: leaf[last], samples)
    share = jnp.mean(weights, axis=0) / jnp.mean(weights[last], axis=0)

    def predicted(policy: nets.Policy) -> jax.Array:
        change = jnp.mean((ratio(policy, unseen) - 1)[:, None] * adv_c[last], axis=0)
        return violation + share * change

    def reprice(nu: jax.Array, policy: nets.Policy) -> jax.Array:
        return jnp.clip(nu + DAMPING * predicted(policy), 0.0, cap)

    return adv_c, reprice, jnp.any(predicted(half.policy) > 0)


DAMPING = 0.25
"""Share of Newton's step that solved prices take after every epoch."""
MARGIN_RATE = 0.05
"""Share of a measured deviation by which a margin moves in an iteration."""
AIM = 0.97
"""Share of a limit that the margin steers a measured cost return to."""


def steered(margin: jax.Array, batch: Batch, limits: jax.Array) -> jax.Array:
    """The margins [K] by which solved prices hold predictions below the ``limits``.

    Predictions promise too much of a projection. The margin integrates what is measured, so that
    costs settle below their limits all the same; it never lifts a limit.
    """
    deviation = jnp.asarray(batch.cost_returns) - AIM * limits
    moved = margin + MARGIN_RATE * jnp.where(jnp.isnan(deviation), 0.0, deviation)
    return jnp.clip(moved, 0.0, limits / 2)


def make(config: Config, problem: Problem, threads: int = 1) -> Algorithm:
    """CUP as a value; ``threads`` > 1 fits the critics beside the policy on a second core."""

    def init(key: jax.Array) -> Learner:
        learner = init_learner(key, config, problem)
        if config.dual == "slow":
            return learner
        return learner._replace(nu_opt=jnp.zeros_like(learner.nu))  # the margins

    return assembled(config, problem, make_learn(config, problem, threads), init)


def make_learn(config: Config, problem: Problem, threads: int = 1) -> Learn:
    """The update from samples on, as three compiled functions: improve, project, critic epoch."""

    @jax.jit
    def improve_step(
        learner: Learner, samples: Samples, batch: Batch, orders: jax.Array
    ) -> PolicyDescent:
        rate = decayed(config, batch.progress, "policy")
        begin = start(learner.policy, learner.policy_opt, learner.nu)
        return improve(begin, samples, orders, rate, config)

    @jax.jit
    def project_step(
        half: PolicyDescent, learner: Learner, samples: Samples, batch: Batch, orders: jax.Array
    ) -> tuple[Learner, Metrics]:
        limits = jnp.asarray(problem.limits)
        if config.dual == "slow":
            nu, memory = raised(config, problem, learner, batch)
            half = half._replace(nu=nu)
        else:
            memory = steered(learner.nu_opt, batch, limits)
            limits -= memory
        rate = decayed(config, batch.progress, "policy")
        end = project(half, learner.policy, samples, batch, orders, rate, config, limits, problem)
        moved = learner._replace(
            policy=end.policy, policy_opt=end.opt_state, nu=end.nu, nu_opt=memory
        )
        return moved, {"kl_project": end.kl, "epochs_project": end.epochs}

    def policy_work(
        learner: Learner,
        samples: Samples,
        batch: Batch,
        orders: np.ndarray,
        tell: Callable[[int], None],
    ) -> tuple[Learner, Metrics]:
        half = improve_step(learner, samples, batch, orders[0])
        tell(int(half.epochs))
        moved, report = jax.block_until_ready(
            project_step(half, learner, samples, batch, orders[1])
        )
        return moved, {"kl_improve": half.kl, "epochs_improve": half.epochs, **report}

    return minibatch_learn(config, problem, threads, policy_work, steps=2, held_out=config.held_out)
