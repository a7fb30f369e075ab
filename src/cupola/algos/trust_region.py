"""One update by a trust-region step, from a batch of pi_k to a new learner.

The policy takes one step on the whole batch; the critics take full-batch steps, or `critic_epochs`
passes in minibatches. They take longest,
so the reward's critic is fitted on a second core where there is one. Samples and prediction are
those of every algorithm: algos/assembly.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import jax
import numpy as np

from cupola.algos.assembly import (
    PARTS,
    critic_schedule,
    fit_critics,
    make_algorithm,
    remembered,
    with_critics,
)
from cupola.algos.config import TrustRegionConfig
from cupola.core.critics import Background, Fit
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem, Samples

PolicyStep: TypeAlias = Callable[[Learner, Samples, Batch], tuple[Learner, Metrics]]
"""Of learner, samples and batch: the learner with a new policy, and what the step reports."""


def trust_region_algorithm(
    config: TrustRegionConfig, problem: Problem, step: PolicyStep
) -> Algorithm:
    """The algorithm with this step."""
    policy_step = jax.jit(step)
    critic_steps = jax.jit(partial(fit_critics, config=config))

    def learn(
        learner: Learner, samples: Samples, batch: Batch, key: jax.Array, cores: int = 1
    ) -> tuple[Learner, Metrics]:
        whole = np.arange(len(samples.obs), dtype=np.int32)
        orders = [np.broadcast_to(whole, (config.value_iterations, len(whole)))] * 2

        obs, targets = samples.obs, samples.targets
        if config.critic_epochs:
            (obs, targets), passes = critic_schedule(learner, samples, key, config)
            orders = [part.reshape(-1, part.shape[-1]) for part in np.moveaxis(passes, 1, 0)]

        def fitted(which: slice, order: np.ndarray) -> Fit:
            start = Fit.start(learner.critics, learner.critic_opt).part(which)
            return jax.block_until_ready(
                critic_steps(start, (obs, targets[:, which]), batch, order)
            )

        with Background(lambda: fitted(PARTS[0], orders[0]), cores) as reward:
            moved, metrics = policy_step(learner, samples, batch)
            costs = fitted(PARTS[1], orders[1])
            moved = remembered(moved, samples, jax.random.fold_in(key, 1))
            return with_critics(moved, metrics, reward.result().joined(costs))

    return make_algorithm(config, problem, learn)
