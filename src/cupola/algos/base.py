"""What all algorithms share: configuration, advantages, critics, and the order of an update."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cupola import nets
from cupola.core import critics, duals
from cupola.core.advantages import Scaling, TimeLimit, scale
from cupola.core.critics import Fit
from cupola.core.forecast import Forecast, forecast
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
from cupola.core.samples import Samples, draw
from cupola.errors import CupolaError
from cupola.types import Algorithm, Batch, Learner, Metrics, Params, Problem


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig:
    """Sampling, networks and critics."""

    batch_size: int = 5000
    """Environment steps an iteration."""
    num_envs: int = 20
    """Environments that take these steps together; must divide batch_size."""
    gamma: float = 0.99
    """Discount of the reward and of the costs."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation."""
    time_limit: TimeLimit = "bootstrap"
    """Whether the value goes on beyond an episode that the time limit cut."""
    cost_termination: Literal["terminal", "time_limit"] = "terminal"
    """What a termination is for costs with a discounted limit: their end too, or a time limit."""
    hidden: tuple[int, ...] = (64, 64)
    log_std: float = -0.5
    """Initial log standard deviation of the actions, where they are continuous."""
    last_layer_scale: float = 0.1
    """Factor on the initial weights of every network's last layer."""
    normalise_obs: bool = True
    """Subtract the running mean of the observations and divide by their standard deviation."""
    obs_clip: float = 5.0
    """Bound on normalised observations."""
    learning_rate: float = 3e-4
    lr_decay: Literal["all", "policy", "none"] = "all"
    """Which networks' learning rate falls linearly to zero over the training."""
    value_l2: float = 1e-3
    """Weight of the sum of squared parameters in the critics' loss."""

    def __post_init__(self) -> None:
        check_types(self)
        check(self.batch_size >= 1, "batch_size must be at least 1.")
        check(self.num_envs >= 1, "num_envs must be at least 1.")
        check(
            self.batch_size % self.num_envs == 0,
            f"num_envs must divide batch_size: {self.num_envs} environments cannot share"
            f" {self.batch_size} steps evenly, write for example"
            f" num_envs={math.gcd(self.num_envs, self.batch_size)}.",
        )
        check(0 <= self.gamma < 1, f"gamma must lie in [0, 1), not {self.gamma}.")
        check(0 <= self.lam <= 1, f"lam must lie in [0, 1], not {self.lam}.")
        check(
            len(self.hidden) > 0 and min(self.hidden) >= 1,
            "hidden needs at least one layer of at least one unit, for example hidden=(64, 64).",
        )
        check_positive(self, "learning_rate", "obs_clip", "last_layer_scale")
        check_not_negative(self, "value_l2")


@dataclass(frozen=True, kw_only=True)
class MinibatchConfig(OnPolicyConfig):
    """Descent in epochs of minibatches, the critics' beside the policy's."""

    minibatch_size: int = 64
    epochs: int = 10
    """Epochs of a policy step, at most; the critics take as many as the first one took."""
    delta: float = math.inf
    """KL divergence that ends a policy step early; inf never does."""
    max_grad_norm: float = 40.0
    """Bound on the norm of the policy's gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            1 <= self.minibatch_size <= self.batch_size,
            f"minibatch_size must lie between 1 and batch_size ({self.batch_size}),"
            f" not {self.minibatch_size}.",
        )
        check(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}.")
        check_positive(self, "delta", "max_grad_norm")


@dataclass(frozen=True, kw_only=True)
class PricedConfig(OnPolicyConfig):
    """Prices that rise with the violation: nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max)."""

    cost_advantage: Scaling = "standardise"
    """Scaling of the cost advantages."""
    dual_optimiser: Literal["sgd", "adam"] = "sgd"
    dual_lr: float = 0.01
    """Step size of the prices."""
    nu_init: float = 0.0
    nu_max: float = 2.0
    cost_window: int = 0
    """Episodes in the estimate of the cost return: the last so many, or 0: those of the batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "dual_lr")
        check_not_negative(self, "nu_max", "cost_window")
        check(
            0 <= self.nu_init <= self.nu_max,
            f"nu_init must lie between 0 and nu_max ({self.nu_max}), not {self.nu_init}.",
        )

    def prices(self) -> optax.GradientTransformation:
        make = optax.adam if self.dual_optimiser == "adam" else optax.sgd
        return make(self.dual_lr)


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig(OnPolicyConfig):
    """One natural-gradient step on the whole batch; the critics take full-batch steps."""

    delta: float = 0.01
    """Bound on the mean KL divergence of a step."""
    cg_iterations: int = 10
    """Iterations of conjugate gradients."""
    damping: float = 0.01
    """Added to the diagonal of the Fisher matrix."""
    backtrack: float = 0.8
    """Factor by which the line search shortens a step that is refused."""
    backtracks: int = 10
    """Lengths that the line search tries."""
    value_iterations: int = 80
    """Full-batch steps of the critics."""
    value_l2: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "delta", "cg_iterations", "backtracks", "value_iterations")
        check_not_negative(self, "damping")
        check(self.delta < math.inf, "delta must be finite.")
        check(0 < self.backtrack < 1, f"backtrack must lie between 0 and 1, not {self.backtrack}.")


def check(condition: bool, message: str) -> None:
    if not condition:
        raise CupolaError(message)


def check_types(config: Any) -> None:
    """Refuse values of a wrong type, a word that is not a choice, and numbers that are not."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            check(
                value in choices,
                f"{field.name} must be one of {', '.join(map(str, choices))}, not {value!r}.",
            )
        elif hint is float:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            check(
                number and not math.isnan(value), f"{field.name} must be a number, not {value!r}."
            )
        elif hint is int:
            whole = isinstance(value, int) and not isinstance(value, bool)
            check(whole, f"{field.name} must be a whole number, not {value!r}.")
        elif hint is bool:
            check(isinstance(value, bool), f"{field.name} must be true or false, not {value!r}.")


def check_positive(config: Any, *names: str) -> None:
    for name in names:
        check(getattr(config, name) > 0, f"{name} must be positive, not {getattr(config, name)}.")


def check_not_negative(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        check(value >= 0, f"{name} must not be negative, not {value}.")


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
        samples = draw(
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
) -> Callable[[nets.Policy, Samples, jax.Array, Batch], Forecast]:
    """Compiled: what the samples of the old policy predict for an updated one."""

    @jax.jit
    def forecast_of(
        policy: nets.Policy, samples: Samples, advantages: jax.Array, batch: Batch
    ) -> Forecast:
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

    Its metrics carry a `Forecast`, which the training loop compares with the next batch.
    """
    samples_of, forecast_of = make_samples(config, problem), make_forecast(config, problem)

    def update(learner: Learner, batch: Batch, key: jax.Array) -> tuple[Learner, Metrics]:
        samples, advantages = samples_of(learner, batch)
        moved, metrics = learn(learner, samples, batch, key)
        return moved, metrics | {"forecast": forecast_of(moved.policy, samples, advantages, batch)}

    return Algorithm(init or (lambda key: init_learner(key, config, problem)), update)
