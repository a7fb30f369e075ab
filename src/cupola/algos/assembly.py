"""The frame of every update: samples of the batch, policy and critics learn, a prediction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax

from cupola import nets
from cupola.algos.config import OnPolicyConfig, learning_rate
from cupola.algos.learner import init_learner
from cupola.core import critics
from cupola.core.critics import Fit
from cupola.core.minibatch import epoch
from cupola.core.optimisers import adam, each
from cupola.core.prediction import predict_change
from cupola.core.samples import build_samples
from cupola.types import Algorithm, Batch, Learner, Metrics, Prediction, Problem, Samples, Update


def make_algorithm(
    config: OnPolicyConfig,
    problem: Problem,
    learn: Callable[[Learner, Samples, Batch, jax.Array, int], tuple[Learner, Metrics]],
) -> Algorithm:
    """The algorithm that takes samples of a batch, learns from them and says what to expect."""
    samples_of = jax.jit(partial(make_samples, config=config, problem=problem))
    predicted = jax.jit(partial(make_prediction, config=config, problem=problem))

    def update(learner: Learner, batch: Batch, key: jax.Array, cores: int = 1) -> Update:
        samples = samples_of(learner, batch)
        moved, metrics = learn(learner, samples, batch, key, cores)
        return Update(moved, metrics, predicted(moved.policy, samples, batch))

    return Algorithm(lambda key: init_learner(key, config, problem), learn, update)


def make_samples(
    learner: Learner, batch: Batch, *, config: OnPolicyConfig, problem: Problem
) -> Samples:
    return build_samples(
        learner.policy,
        learner.critics,
        batch.rollout,
        gamma=config.gamma,
        lam=config.lam,
        time_limit=config.time_limit,
        endless=endless_costs(config, problem),
    )


def endless_costs(config: OnPolicyConfig, problem: Problem) -> tuple[bool, ...]:
    """For which costs [K] a termination counts as a time limit."""
    return tuple(
        config.cost_termination == "time_limit" and discounted for discounted in problem.discounted
    )


def fit_critics(
    state: Fit, samples: Samples, batch: Batch, order: jax.Array, *, config: OnPolicyConfig
) -> Fit:
    """The critics after one epoch in ``order`` [count, minibatch]."""
    return Fit(
        *epoch(
            (state.critics, state.opt_state),
            lambda values, sample: critics.loss(values, sample[0], sample[1], config.value_l2),
            each(adam()),
            (samples.obs, samples.targets),
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
        lam=config.lam,
        discounted=problem.discounted,
    )
