"""What all algorithms share: configuration, advantages, critics, and the order of an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cupola import nets
from cupola.algos.config import MinibatchConfig, OnPolicyConfig, PricedConfig, TrustRegionConfig
from cupola.core import critics, duals
from cupola.core.advantages import scale
from cupola.core.critics import Fit
from cupola.core.minibatch import (
    Descent,
    PolicyDescent,
    descend,
    epoch,
    mean_kl,
    shuffles,
    start,
)
from cupola.core.optimisers import adam, each
from cupola.core.prediction import Prediction, forecast
from cupola.core.samples import Samples, build_samples
from cupola.types import Algorithm, Batch, Learner, Metrics, Params, Problem


def init_learner(key: jax.Array, config: OnPolicyConfig, problem: Problem) -> Learner:
    """Fresh networks, optimisers and prices; what a kind of config does not use stays empty."""
    policy_key, critic_key = jax.random.split(key)
    policy = nets.init_policy(
        policy_key,
        problem.obs_size,
        problem.act_size,
        config.hidden,
        None if problem.discrete else config.log_std,
        config.last_layer_scale,
    )
    values = nets.init_critics(
        critic_key, problem.obs_size, 1 + len(problem.costs), config.hidden, config.last_layer_scale
    )
    nu_init = config.nu_init if isinstance(config, PricedConfig) else 0.0
    nu = jnp.full(len(problem.costs), nu_init, dtype=float)
    return Learner(
        policy=policy,
        critics=values,
        policy_opt=(
            adam(config.max_grad_norm).init(policy) if isinstance(config, MinibatchConfig) else ()
        ),
        critic_opt=each(adam()).init(values),
        nu=nu,
        nu_opt=config.prices().init(nu) if isinstance(config, PricedConfig) else (),
    )


def decayed(
    config: OnPolicyConfig, progress: jax.Array, net: Literal["policy", "critics"]
) -> jax.Array:
    """The learning rate after ``progress`` in [0, 1) of the training."""
    if config.lr_decay in ("all", net):
        return config.learning_rate * (1 - jnp.asarray(progress))
    return config.learning_rate * jnp.ones_like(progress)


def raised(
    config: PricedConfig, problem: Problem, learner: Learner, batch: Batch
) -> tuple[jax.Array, optax.OptState]:
    """The prices [K] after this batch's violations."""
    measured, limits = jnp.asarray(batch.cost_returns), jnp.asarray(problem.limits)
    return duals.ascend(
        learner.nu, learner.nu_opt, config.prices(), measured, limits, config.nu_max
    )


def endless_costs(config: OnPolicyConfig, problem: Problem) -> tuple[bool, ...]:
    """For which costs [K] a termination counts as a time limit."""
    return tuple(
        config.cost_termination == "time_limit" and discounted for discounted in problem.discounted
    )


def make_samples(
    config: OnPolicyConfig, problem: Problem
) -> Callable[[Learner, Batch], tuple[Samples, jax.Array]]:
    """Compiled: the samples of a batch, reward advantages standardised.

    Beside them the advantages [B, 1 + K] as they were, the reward's first.
    """

    @jax.jit
    def samples_of(learner: Learner, batch: Batch) -> tuple[Samples, jax.Array]:
        samples = build_samples(
            learner.policy,
            learner.critics,
            batch.rollout,
            gamma=config.gamma,
            lam=config.lam,
            time_limit=config.time_limit,
            endless=endless_costs(config, problem),
        )
        advantages = jnp.concatenate([samples.adv_r[:, None], samples.adv_c], axis=1)
        return samples._replace(adv_r=scale(samples.adv_r, "standardise")), advantages

    return samples_of


def make_forecast(
    config: OnPolicyConfig, problem: Problem
) -> Callable[[nets.Policy, Samples, jax.Array, Batch], Prediction]:
    """Compiled: what the samples of the old policy predict for an updated one."""

    @jax.jit
    def forecast_of(
        policy: nets.Policy, samples: Samples, advantages: jax.Array, batch: Batch
    ) -> Prediction:
        return forecast(
            policy,
            samples,
            advantages,
            batch.rollout,
            gamma=config.gamma,
            lam=config.lam,
            discounted=problem.discounted,
        )

    return forecast_of


def make_fit(config: OnPolicyConfig) -> Callable[[Fit, Samples, Batch, np.ndarray], Fit]:
    """Compiled: the critics after one epoch in the ``order`` [count, minibatch]."""

    @jax.jit
    def fit(state: Fit, samples: Samples, batch: Batch, order: jax.Array) -> Fit:
        descent, losses = epoch(
            Descent(state.critics, state.opt_state),
            lambda values, sample: critics.loss(values, sample[0], sample[1], config.value_l2),
            each(adam()),
            (samples.obs, samples.targets),
            order,
            decayed(config, batch.progress, "critics"),
        )
        return Fit(descent.params, descent.opt_state, losses)

    return fit


Learn: TypeAlias = Callable[[Learner, Samples, Batch, jax.Array], tuple[Learner, Metrics]]
"""An update from samples on."""

PolicyWork: TypeAlias = Callable[
    [Learner, Samples, Batch, np.ndarray, Callable[[int], None]], tuple[Learner, Metrics]
]
"""The policy's and the prices' part of it; it tells, once, how many critic epochs are wanted."""


def minibatch_learn(
    config: MinibatchConfig,
    problem: Problem,
    threads: int,
    policy_work: PolicyWork,
    steps: int = 1,
    held_out: int = 0,
) -> Learn:
    """``policy_work`` with orders [steps, epochs, count, minibatch], the critics beside it.

    The policy is not fitted to the last ``held_out`` samples; the critics are fitted to all.
    """
    fit = make_fit(config)

    def learn(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        size, minibatch, epochs = len(samples.obs), config.minibatch_size, config.epochs
        policy_key, critic_key = jax.random.split(key)
        orders = shuffles(policy_key, steps * epochs, size - held_out, minibatch)
        orders = orders.reshape(steps, epochs, -1, minibatch)
        (moved, metrics), fitted = critics.alongside(
            lambda tell: policy_work(learner, samples, batch, orders, tell),
            lambda state, order: fit(state, samples, batch, order),
            Fit.start(learner.critics, learner.critic_opt),
            shuffles(critic_key, epochs, size, minibatch),
            threads,
        )
        return with_critics(moved, metrics, fitted)

    return learn


def one_descent(
    config: MinibatchConfig,
    problem: Problem,
    threads: int,
    loss: Callable[[nets.Policy, Samples, jax.Array, nets.LogStd], jax.Array],
) -> Learn:
    """The update that descends one ``loss`` of policy, minibatch, prices [K] and pi_k's log-std.

    With a `PricedConfig` the prices rise first and the cost advantages are scaled as it says.
    """

    @jax.jit
    def step(
        learner: Learner, samples: Samples, batch: Batch, orders: jax.Array
    ) -> tuple[PolicyDescent, Params]:
        nu, memory = learner.nu, learner.nu_opt
        if isinstance(config, PricedConfig):
            nu, memory = raised(config, problem, learner, batch)
            samples = samples._replace(adv_c=scale(samples.adv_c, config.cost_advantage))
        end = descend(
            start(learner.policy, learner.policy_opt, nu),
            lambda policy, sample, nu: loss(policy, sample, nu, learner.policy.log_std),
            adam(config.max_grad_norm),
            samples,
            orders,
            decayed(config, batch.progress, "policy"),
            delta=config.delta,
            divergence=mean_kl(samples.obs, samples.mean, learner.policy.log_std),
        )
        return end, memory

    def policy_work(
        learner: Learner,
        samples: Samples,
        batch: Batch,
        orders: np.ndarray,
        tell: Callable[[int], None],
    ) -> tuple[Learner, Metrics]:
        end, memory = step(learner, samples, batch, orders[0])
        tell(int(end.epochs))
        moved = learner._replace(
            policy=end.policy, policy_opt=end.opt_state, nu=end.nu, nu_opt=memory
        )
        return moved, {"kl": end.kl, "epochs": end.epochs}

    return minibatch_learn(config, problem, threads, policy_work)


def trust_region_learn(
    config: TrustRegionConfig,
    problem: Problem,
    threads: int,
    policy_step: Callable[[Learner, Samples, Batch], tuple[Learner, Metrics]],
) -> Learn:
    """A compiled ``policy_step`` on the whole batch, then the costs' critics; the reward's beside.

    The critics take longest, so they are shared between two cores.
    """
    fit, step = make_fit(config), jax.jit(policy_step)

    def learn(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array
    ) -> tuple[Learner, Metrics]:
        whole = np.arange(len(samples.obs), dtype=np.int32)
        order = np.broadcast_to(whole, (config.value_iterations, len(whole)))

        def fitted(which: slice) -> Fit:
            chosen = samples._replace(targets=samples.targets[:, which])
            begin = Fit.start(learner.critics, learner.critic_opt).part(which)
            return jax.block_until_ready(fit(begin, chosen, batch, order))

        def policy_and_costs() -> tuple[Learner, Metrics, Fit]:
            moved, metrics = step(learner, samples, batch)
            return moved, metrics, fitted(slice(1, None))

        (moved, metrics, costs), reward = critics.side_by_side(
            policy_and_costs, lambda: fitted(slice(0, 1)), threads
        )
        return with_critics(moved, metrics, reward.joined(costs))

    return learn


def with_critics(learner: Learner, metrics: Metrics, fitted: Fit) -> tuple[Learner, Metrics]:
    learner = learner._replace(critics=fitted.critics, critic_opt=fitted.opt_state)
    metrics = metrics | {
        "value_loss": fitted.losses[0],
        "cost_value_loss": fitted.losses[1:],
        "nu": learner.nu,
    }
    return learner, metrics


def assembled(
    config: OnPolicyConfig,
    problem: Problem,
    learn: Learn,
    init: Callable[[jax.Array], Learner] | None = None,
) -> Algorithm:
    """The algorithm that draws samples of a batch, learns from them and says what to expect.

    Its metrics carry a `Prediction`, which the training loop compares with the next batch.
    """
    samples_of, forecast_of = make_samples(config, problem), make_forecast(config, problem)

    def update(learner: Learner, batch: Batch, key: jax.Array) -> tuple[Learner, Metrics]:
        samples, advantages = samples_of(learner, batch)
        moved, metrics = learn(learner, samples, batch, key)
        return moved, metrics | {"forecast": forecast_of(moved.policy, samples, advantages, batch)}

    return Algorithm(init or (lambda key: init_learner(key, config, problem)), update)
