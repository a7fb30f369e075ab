"""CUP: Constrained Update Projection (Yang et al., NeurIPS 2022, Algorithm 1).

Maximise J(pi) subject to J^{c_i}(pi) <= b_i. Each iteration, on samples of pi_k,

1. dual step        nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max)
2. improvement      theta_{k+1/2} = argmax  mean_t min(rho_t A_t, g(eps, A_t))
3. projection       theta_{k+1}   = argmin  mean_t [ KL(pi_theta, pi_{k+1/2})[s_t]
                                    + sum_i nu_i (1 - gamma lam)/(1 - gamma) rho_t A^{c_i}_t ]

with rho_t = pi_theta(a_t|s_t) / pi_k(a_t|s_t) in both steps, each by minibatch Adam that stops
after an epoch whose mean KL exceeds delta. Every switch is described in docs/algorithms/cup.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from cupola import nets
from cupola.algos.base import OnPolicyConfig, check
from cupola.core import critics, duals, gaussian, surrogates
from cupola.core.advantages import Scaling, horizon_factor, scale
from cupola.core.minibatch import Descent, epoch, shuffles
from cupola.core.optimisers import adam
from cupola.core.samples import Samples, draw
from cupola.types import Algorithm, Batch, Learner, Metrics, Params, Problem


@dataclass(frozen=True, kw_only=True)
class Config(OnPolicyConfig):
    """CUP's switches; the defaults are the preset `paper`."""

    epochs: int = 10
    """Epochs of the improvement, and again of the projection, at most."""
    delta: float = 0.02
    """KL divergence that ends either step early; inf never does."""
    max_grad_norm: float = 40.0
    """Bound on the norm of the policy's gradient."""
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
    stop_reference: Literal["start", "half"] = "start"
    """The policy whose distance ends the projection: pi_k or pi_{k+1/2}."""
    beta: float = 0.0
    """Weight of the square root of the KL to pi_k in the predicted cost."""
    cost_advantage: Scaling = "standardise"
    """Scaling of the cost advantages (dual=slow)."""
    dual: Literal["slow", "solved"] = "slow"
    """Prices that integrate past violations, or the projection's own, solved on the batch."""
    dual_optimiser: Literal["sgd", "adam"] = "sgd"
    dual_lr: float = 0.01
    """Step size of the prices (dual=slow)."""
    nu_init: float = 0.0
    nu_max: float = 2.0
    cost_window: int = 0
    """Episodes in the estimate of the cost return: the last so many, or 0: those of the batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}.")
        for name in ("delta", "max_grad_norm", "clip", "temperature", "dual_lr"):
            check(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}.")
        for name in ("alpha", "beta", "nu_max", "cost_window"):
            value = getattr(self, name)
            check(value >= 0, f"{name} must not be negative, not {value}.")
        check(
            0 <= self.nu_init <= self.nu_max,
            f"nu_init must lie between 0 and nu_max ({self.nu_max}), not {self.nu_init}.",
        )


PRESETS = {
    "paper": Config(),
    "release": Config(batch_size=2048, num_envs=16, time_limit="terminal"),
    "omnisafe": Config(
        batch_size=20000,
        epochs=40,
        delta=0.01,
        stop_reference="half",
        cost_advantage="centre",
        dual_optimiser="adam",
        dual_lr=0.035,
        cost_window=100,
        lr_decay="policy",
        log_std=0.0,
        last_layer_scale=1.0,
    ),
}


class Improvement(NamedTuple):
    """Where a policy step ended."""

    policy: nets.Policy
    opt_state: optax.OptState
    kl: jax.Array  # [], mean KL that the stopping rule saw last
    epochs: jax.Array  # [], epochs used
    nu: jax.Array  # [K]


class CriticState(NamedTuple):
    descent: Descent
    losses: jax.Array  # [1 + K], mean squared errors over the last epoch


class CriticSample(NamedTuple):
    obs: jax.Array  # [B, O]
    targets: jax.Array  # [B, 1 + K]


def dual_optimiser(config: Config) -> optax.GradientTransformation:
    if config.dual_optimiser == "adam":
        return optax.adam(config.dual_lr)
    return optax.sgd(config.dual_lr)


def improvement_loss(
    policy: nets.Policy, sample: Samples, log_std: jax.Array, config: Config
) -> jax.Array:
    """What step 2 minimises on a minibatch; ``log_std`` is pi_k's."""
    mean, new_log_std = nets.apply_policy(policy, sample.obs)
    ratio = jnp.exp(gaussian.log_prob(mean, new_log_std, sample.actions) - sample.log_prob)
    if config.improvement == "clip":
        return -jnp.mean(surrogates.clipped(ratio, sample.adv_r, config.clip))
    if config.improvement == "kl":
        divergence = jnp.mean(gaussian.kl(sample.mean, log_std, mean, new_log_std))
        penalty = config.alpha * surrogates.safe_sqrt(divergence)
        return penalty - jnp.mean(ratio * sample.adv_r)
    divergence = gaussian.kl(mean, new_log_std, sample.mean, log_std)
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
    log_std: jax.Array,
    half_log_std: jax.Array,
    nu: jax.Array,
    config: Config,
) -> jax.Array:
    """What step 3 minimises on a minibatch; ``log_std`` is pi_k's."""
    mean, new_log_std = nets.apply_policy(policy, sample.obs)
    ratio = jnp.exp(gaussian.log_prob(mean, new_log_std, sample.actions) - sample.log_prob)
    if config.projection_kl == "new_half":
        distance = gaussian.kl(mean, new_log_std, sample.half_mean, half_log_std)
    else:
        distance = gaussian.kl(sample.half_mean, half_log_std, mean, new_log_std)
    loss = jnp.mean(distance + ratio * (sample.adv_c @ nu))
    if config.beta > 0:
        moved = jnp.mean(gaussian.kl(sample.mean, log_std, mean, new_log_std))
        loss += config.beta * jnp.sum(nu) * surrogates.safe_sqrt(moved)
    return loss


def improve(
    policy: nets.Policy,
    opt_state: optax.OptState,
    samples: Samples,
    orders: jax.Array,
    learning_rate: jax.Array,
    nu: jax.Array,
    config: Config,
) -> Improvement:
    """Step 2: from pi_k to pi_{k+1/2}; ``orders`` [E, count, minibatch]."""
    optimiser = adam(config.max_grad_norm)
    log_std = policy.log_std

    def one_epoch(state: Improvement) -> Improvement:
        descent, _ = epoch(
            Descent(state.policy, state.opt_state),
            lambda p, sample: reported(improvement_loss(p, sample, log_std, config)),
            optimiser,
            samples,
            orders[state.epochs],
            learning_rate,
        )
        mean, new_log_std = nets.apply_policy(descent.params, samples.obs)
        divergence = jnp.mean(gaussian.kl(mean, new_log_std, samples.mean, log_std))
        return Improvement(
            descent.params, descent.opt_state, divergence, state.epochs + 1, state.nu
        )

    start = Improvement(policy, opt_state, jnp.zeros_like(learning_rate), jnp.int32(0), nu)
    return jax.lax.while_loop(lambda s: goes_on(s, len(orders), config.delta), one_epoch, start)


def reported(loss: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A loss that is its own report."""
    return loss, loss


def goes_on(state: Improvement, epochs: int, delta: float) -> jax.Array:
    return (state.epochs < epochs) & (state.kl <= delta)


def project(
    half: Improvement,
    log_std: jax.Array,
    samples: Samples,
    batch: Batch,
    orders: jax.Array,
    learning_rate: jax.Array,
    config: Config,
    problem: Problem,
) -> Improvement:
    """Step 3: from pi_{k+1/2} to pi_{k+1}; ``log_std`` is pi_k's, ``half.nu`` the new prices.

    With all prices zero it is the identity: Adam's momentum must not move the policy.
    """
    optimiser = adam(config.max_grad_norm)
    half_mean, half_log_std = nets.apply_policy(half.policy, samples.obs)
    slow = config.dual == "slow"
    adv_c, violation = (
        slow_cost(samples, config) if slow else solved_cost(samples, batch, config, problem)
    )

    def predicted_violation(policy: nets.Policy) -> jax.Array:
        mean, new_log_std = nets.apply_policy(policy, samples.obs)
        ratio = jnp.exp(gaussian.log_prob(mean, new_log_std, samples.actions) - samples.log_prob)
        return violation + jnp.mean((ratio - 1)[:, None] * adv_c, axis=0)

    # The same strength as the cap of slow prices, whose advantages carry that factor.
    cap = config.nu_max * horizon_factor(config.gamma, config.lam)

    def reprice(nu: jax.Array, policy: nets.Policy) -> jax.Array:
        if slow:
            return nu
        return jnp.clip(nu + predicted_violation(policy), 0.0, cap)

    target = Target(samples.obs, samples.actions, samples.log_prob, samples.mean, half_mean, adv_c)
    reference, reference_log_std = (
        (samples.mean, log_std) if config.stop_reference == "start" else (half_mean, half_log_std)
    )

    def one_epoch(state: Improvement) -> Improvement:
        descent, _ = epoch(
            Descent(state.policy, state.opt_state),
            lambda p, sample: reported(
                projection_loss(p, sample, log_std, half_log_std, state.nu, config)
            ),
            optimiser,
            target,
            orders[state.epochs],
            learning_rate,
        )
        mean, new_log_std = nets.apply_policy(descent.params, samples.obs)
        divergence = jnp.mean(gaussian.kl(mean, new_log_std, reference, reference_log_std))
        nu = reprice(state.nu, descent.params)
        return Improvement(descent.params, descent.opt_state, divergence, state.epochs + 1, nu)

    start = half._replace(
        kl=jnp.zeros_like(half.kl),
        epochs=jnp.zeros_like(half.epochs),
        nu=reprice(half.nu, half.policy),
    )
    active = jnp.any(start.nu > 0 if slow else predicted_violation(half.policy) > 0)
    return jax.lax.while_loop(
        lambda s: active & goes_on(s, len(orders), config.delta), one_epoch, start
    )


def slow_cost(samples: Samples, config: Config) -> tuple[jax.Array, jax.Array]:
    """Cost advantages times 1/(1 - gamma~); no prediction is made."""
    factor = horizon_factor(config.gamma, config.lam)
    adv_c = factor * scale(samples.adv_c, config.cost_advantage)
    return adv_c, jnp.zeros(adv_c.shape[-1], adv_c.dtype)


def solved_cost(
    samples: Samples, batch: Batch, config: Config, problem: Problem
) -> tuple[jax.Array, jax.Array]:
    """Cost advantages [B, K] and violations [K] of pi_k, in units of the advantages' spread.

    The cost predicted for pi_theta is J^_i + h_i mean_t w_t (rho_t - 1) A^{c_i}_t / mean_t w_t,
    with w_t = gamma^t and h_i the mean of sum_t gamma^t over the episodes (w = 1 and h_i the mean
    length for an undiscounted limit). Dividing by h_i times the standard deviation of the
    weighted advantages makes the curvature of the dual one, so that prices need no step size.
    """
    discounted = jnp.asarray(problem.discounted)
    weights = jnp.where(discounted, config.gamma ** samples.times[:, None], 1.0)
    weighted = weights / jnp.mean(weights, axis=0) * samples.adv_c
    spread = jnp.maximum(jnp.std(weighted, axis=0), 1e-8)
    unknown = jnp.isnan(jnp.asarray(batch.cost_returns))
    gap = (batch.cost_returns - jnp.asarray(problem.limits)) / (batch.horizons * spread)
    return weighted / spread, jnp.where(unknown, -jnp.inf, gap)


def make(config: Config, problem: Problem, threads: int = 1) -> Algorithm:
    """CUP as a value; ``threads`` > 1 fits the critics beside the policy on a second core."""
    learn = make_learn(config, problem, threads)

    @jax.jit
    def samples_of(learner: Learner, batch: Batch) -> Samples:
        samples = draw(
            learner.policy,
            learner.critics,
            batch.rollout,
            gamma=config.gamma,
            lam=config.lam,
            time_limit=config.time_limit,
        )
        return samples._replace(adv_r=scale(samples.adv_r, "standardise"))

    def init(key: jax.Array) -> Learner:
        return init_learner(key, config, problem)

    def update(learner: Learner, batch: Batch, key: jax.Array) -> tuple[Learner, Metrics]:
        return learn(learner, samples_of(learner, batch), batch, key)

    return Algorithm(init, update)


def make_learn(
    config: Config, problem: Problem, threads: int = 1
) -> Callable[[Learner, Samples, Batch, jax.Array], tuple[Learner, Metrics]]:
    """The update from samples on, as three compiled functions: improve, project, critic epoch."""
    limits = jnp.asarray(problem.limits)

    @jax.jit
    def improve_step(
        learner: Learner, samples: Samples, batch: Batch, orders: jax.Array
    ) -> tuple[Improvement, Params]:
        nu, nu_opt = learner.nu, learner.nu_opt
        if config.dual == "slow":
            nu, nu_opt = duals.ascend(
                nu,
                nu_opt,
                dual_optimiser(config),
                jnp.asarray(batch.cost_returns),
                limits,
                config.nu_max,
            )
        learning_rate = decayed(config, batch.progress, "policy")
        half = improve(
            learner.policy, learner.policy_opt, samples, orders, learning_rate, nu, config
        )
        return half, nu_opt

    @jax.jit
    def project_step(
        half: Improvement, log_std: jax.Array, samples: Samples, batch: Batch, orders: jax.Array
    ) -> Improvement:
        learning_rate = decayed(config, batch.progress, "policy")
        return project(half, log_std, samples, batch, orders, learning_rate, config, problem)

    @jax.jit
    def critic_epoch(
        state: CriticState, samples: Samples, batch: Batch, order: jax.Array
    ) -> CriticState:
        descent, losses = epoch(
            state.descent,
            lambda c, s: critics.loss(c, s.obs, s.targets, config.value_l2),
            adam(),
            CriticSample(samples.obs, samples.targets),
            order,
            decayed(config, batch.progress, "critics"),
        )
        return CriticState(descent, losses)

    def learn(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        orders = shuffles(key, 3 * config.epochs, len(samples.obs), config.minibatch_size).reshape(
            3, config.epochs, -1, config.minibatch_size
        )

        def policy_work(tell: Callable[[int], None]) -> tuple[Improvement, Improvement, Params]:
            half, nu_opt = improve_step(learner, samples, batch, orders[0])
            tell(int(half.epochs))
            end = project_step(half, learner.policy.log_std, samples, batch, orders[1])
            return half, jax.block_until_ready(end), nu_opt

        start = CriticState(
            Descent(learner.critics, learner.critic_opt), jnp.zeros(1 + len(limits))
        )
        (half, end, nu_opt), fitted = critics.alongside(
            policy_work,
            lambda state, order: critic_epoch(state, samples, batch, order),
            start,
            orders[2],
            threads,
        )
        updated = Learner(
            policy=end.policy,
            critics=fitted.descent.params,
            policy_opt=end.opt_state,
            critic_opt=fitted.descent.opt_state,
            nu=end.nu,
            nu_opt=nu_opt,
        )
        metrics: Metrics = {
            "kl_improve": half.kl,
            "kl_project": end.kl,
            "epochs_improve": half.epochs,
            "epochs_project": end.epochs,
            "value_loss": fitted.losses[0],
            "cost_value_loss": fitted.losses[1:],
            "nu": end.nu,
        }
        return updated, metrics

    return learn


def decayed(config: Config, progress: jax.Array, net: Literal["policy", "critics"]) -> jax.Array:
    """The learning rate after ``progress`` in [0, 1) of the training."""
    if config.lr_decay in ("all", net):
        return config.learning_rate * (1 - jnp.asarray(progress))
    return config.learning_rate * jnp.ones_like(progress)


def init_learner(key: jax.Array, config: Config, problem: Problem) -> Learner:
    policy_key, critic_key = jax.random.split(key)
    policy = nets.init_policy(
        policy_key,
        problem.obs_size,
        problem.act_size,
        config.hidden,
        config.log_std,
        config.last_layer_scale,
    )
    count = 1 + len(problem.costs)
    values = nets.init_critics(
        critic_key, problem.obs_size, count, config.hidden, config.last_layer_scale
    )
    nu = jnp.full(len(problem.costs), config.nu_init, dtype=float)
    return Learner(
        policy=policy,
        critics=values,
        policy_opt=adam(config.max_grad_norm).init(policy),
        critic_opt=adam().init(values),
        nu=nu,
        nu_opt=dual_optimiser(config).init(nu),
    )
