"""TRPO: Trust Region Policy Optimisation (Schulman et al., 2015).

Maximise mean_t rho_t A_t subject to mean_t KL(pi_k || pi_theta)[s_t] <= delta: one step along
H^-1 g, shortened until the sampled constraint holds and the objective is no worse. Costs are
measured and ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import TrustRegionConfig
from cupola.algos.trust_region import trust_region_algorithm
from cupola.core.divergences import kl_from
from cupola.core.samples import ratio
from cupola.core.trust_region import (
    Flat,
    Search,
    fisher_product,
    line_search,
    natural_gradient,
)
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(TrustRegionConfig):
    """TRPO's switches; the defaults are the preset `paper`."""


PRESETS = {"paper": Config()}
CONSTRAINED = False


def ascend(
    policy: nets.Policy,
    samples: Samples,
    loss: Callable[[nets.Policy], jax.Array],
    config: TrustRegionConfig,
) -> tuple[nets.Policy, Search]:
    """The policy after one trust-region step that lowers ``loss``."""
    flat = Flat.of(policy)
    divergence = kl_from(samples.obs, samples.mean, policy.log_std)
    before, gradient = jax.value_and_grad(lambda theta: loss(flat.policy(theta)))(flat.theta)
    product = fisher_product(policy, samples.obs, config.damping)
    step = natural_gradient(product, gradient, config.cg_iterations, config.delta)

    def acceptable(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = flat.policy(theta)
        kl = divergence(new)
        return (kl <= config.delta) & (loss(new) <= before), kl

    search = line_search(flat.theta, step, acceptable, config.backtrack, config.backtracks)
    return flat.policy(search.theta), search


def loss(policy: nets.Policy, samples: Samples) -> jax.Array:
    """What a step lowers: -mean rho A."""
    return -jnp.mean(ratio(policy, samples) * samples.adv_r)


def step(
    learner: Learner, samples: Samples, batch: Batch, *, config: Config
) -> tuple[Learner, Metrics]:
    policy, search = ascend(learner.policy, samples, lambda policy: loss(policy, samples), config)
    return learner._replace(policy=policy), {"kl": search.kl, "backtracks": search.tries}


def make(config: Config, problem: Problem) -> Algorithm:
    """TRPO as a value."""
    return trust_region_algorithm(config, problem, partial(step, config=config))
