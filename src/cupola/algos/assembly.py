"""The frame of every update: samples of the batch, policy and critics learn, a prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.algos.config import OnPolicyConfig, learning_rate
from cupola.algos.learner import init_learner, least_log_std
from cupola.core import critics
from cupola.core.critics import Fit
from cupola.core.minibatch import draws, epoch, shuffles
from cupola.core.optimisers import adam, each
from cupola.core.prediction import predict_change
from cupola.core.samples import build_samples
from cupola.types import Algorithm, Batch, Learner, Metrics, Prediction, Problem, Samples, Update

PARTS = (slice(0, 1), slice(1, None))
"""The reward's critic, and the costs'."""


def make_algorithm(
    config: OnPolicyConfig,
    problem: Problem,
    learn: Callable[[Learner, Samples, Batch, jax.Array, int], tuple[Learner, Metrics]],
) -> Algorithm:
    """The algorithm that takes samples of a batch, learns from them and says what to expect."""
    least = least_log_std(config, problem.act_bound)

    def learn_and_explore(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array, cores: int = 1
    ) -> tuple[Learner, Metrics]:
        moved, metrics = learn(learner, samples, batch, key, cores)
        if least == -math.inf or problem.discrete:
            return moved, metrics
        log_std = jnp.maximum(moved.policy.log_std, least)
        return moved._replace(policy=moved.policy._replace(log_std=log_std)), metrics

    samples_of = jax.jit(partial(make_samples, config=config, problem=problem))
    predicted = jax.jit(partial(make_prediction, config=config, problem=problem))

    def update(learner: Learner, batch: Batch, key: jax.Array, cores: int = 1) -> Update:
        samples = samples_of(learner, batch)
        moved, metrics = learn_and_explore(learner, samples, batch, key, cores)
        return Update(moved, metrics, predicted(moved.policy, samples, batch))

    return Algorithm(lambda key: init_learner(key, config, problem), learn_and_explore, update)


def make_samples(
    learner: Learner, batch: Batch, *, config: OnPolicyConfig, problem: Problem
) -> Samples:
    return build_samples(
        learner.policy,
        learner.critics,
        batch.rollout,
        gamma=config.gamma,
        lam=lambdas(config, problem),
        lam_critic=config.lam_critic,
        time_limit=config.time_limit,
        endless=endless_costs(config, problem),
        goes_on=config.cost_termination == "goes_on",
        saturation=problem.saturation if config.action_density == "clipped" else (),
    )


def endless_costs(config: OnPolicyConfig, problem: Problem) -> tuple[bool, ...]:
    """For which costs [K] a termination is not the end."""
    return tuple(
        config.cost_termination != "terminal" and discounted for discounted in problem.discounted
    )


def lambdas(config: OnPolicyConfig, problem: Problem) -> float | jax.Array:
    """Lambda of the reward and of each cost, [1 + K], or the one number that all have."""
    if config.lam_c == config.lam:
        return config.lam
    return jnp.array([config.lam] + [config.lam_c] * len(problem.costs))


def remembered(learner: Learner, samples: Samples, key: jax.Array) -> Learner:
    """The learner with some of these samples in the memory of its critics, if they have one."""
    if not learner.critic_memory:
        return learner
    kept = learner.critic_memory.obs.shape[1]
    some = shuffles(key, 1, len(samples.obs), kept)[0, 0]
    memory = critics.remember(learner.critic_memory, samples.obs[some], samples.targets[some])
    return learner._replace(critic_memory=memory)


def critic_schedule(
    learner: Learner, samples: Samples, key: jax.Array, config: OnPolicyConfig
) -> tuple[tuple[jax.Array, jax.Array], np.ndarray]:
    """With `critic_epochs`: what the critics learn from, observations and targets, and in which
    orders [E, 2, steps, minibatch]. ``learner`` remembers earlier samples, not these.

    The first order is the reward's critic's, of the newest samples: returns rise during a training,
    and older ones would tell it of lower ones. The second is the costs', of all samples.
    """
    size = len(samples.obs)
    obs, targets, known = samples.obs, samples.targets, 0
    if learner.critic_memory:
        obs, targets = critics.recall(learner.critic_memory, obs, targets)
        known = critics.known(learner.critic_memory)
    old, end = len(obs) - size, len(obs)
    minibatch = min(config.critic_minibatch, size)
    passes = (config.critic_epochs, size // minibatch, minibatch)
    keys = jax.random.split(key)
    orders = (draws(keys[0], *passes, old, end), draws(keys[1], *passes, old - known, end))
    return (obs, targets), np.stack(orders, axis=1)


def fit_critics(
    state: Fit,
    data: tuple[jax.Array, jax.Array],
    batch: Batch,
    order: jax.Array,
    *,
    config: OnPolicyConfig,
) -> Fit:
    """The critics after one epoch of ``data``, observations and targets, in ``order`` [count,
    minibatch], or [2, count, minibatch]: one for the reward's critic, one for the costs'."""
    if order.ndim == 3:
        obs, targets = data
        reward, costs = (
            fit_critics(state.part(which), (obs, targets[:, which]), batch, part, config=config)
            for which, part in zip(PARTS, order, strict=True)
        )
        return reward.joined(costs)
    return Fit(
        *epoch(
            (state.critics, state.opt_state),
            lambda values, sample: critics.loss(values, sample[0], sample[1], config.value_l2),
            each(adam()),
            data,
            order,
            learning_rate(config, batch.progress, "critics"),
        )
    )


def with_critics(learner: Learner, metrics: Metrics, fitted: Fit) -> tuple[Learner, Metrics]:
    """The learner with new critics; the metrics that all algorithms have are added."""
    learner = learner._replace(critics=fitted.critics, critic_opt=fitted.opt_state)
    losses = {"value_loss": fitted.losses[0], "cost_value_loss": fitted.losses[1:]}
    return learner, metrics | losses | {"nu": learner.nu}


def make_prediction(
    policy: nets.Policy, samples: Samples, batch: Batch, *, config: OnPolicyConfig, problem: Problem
) -> Prediction:
    return predict_change(
        policy,
        samples,
        batch.rollout,
        gamma=config.gamma,
        lam=lambdas(config, problem),
        discounted=problem.discounted,
    )
