"""TRPO-L: TRPO with Lagrange multipliers (Ray et al., 2019, "Benchmarking Safe Exploration").

Each iteration the Lagrange multipliers nu_i move first (core/multipliers.py). Then one trust-region
step lowers

    -(mean_t rho_t A_t - sum_i nu_i mean_t rho_t A^{c_i}_t) / (1 + sum_i nu_i).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import LagrangianConfig, TrustRegionConfig
from cupola.algos.trpo import ascend
from cupola.algos.trust_region import trust_region_algorithm
from cupola.algos.update import scale_costs, update_multipliers
from cupola.core.samples import ratio
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(TrustRegionConfig, LagrangianConfig):
    """TRPO-L's switches; the defaults are the preset `paper`."""

    log_std: float = -1.0
    """Initial log standard deviation of the actions, where they are continuous."""


PRESETS = {"paper": Config()}


def loss(policy: nets.Policy, samples: Samples, nu: jax.Array) -> jax.Array:
    """What a step lowers, with multipliers ``nu`` [K]."""
    advantage = samples.adv_r - samples.adv_c @ nu
    return -jnp.mean(ratio(policy, samples) * advantage) / (1 + jnp.sum(nu))


def step(
    learner: Learner, samples: Samples, batch: Batch, *, config: Config, problem: Problem
) -> tuple[Learner, Metrics]:
    learner = update_multipliers(learner, batch, config, problem)
    learner, adv_c = scale_costs(learner, samples.adv_c, config)
    samples = samples._replace(adv_c=adv_c)
    policy, search = ascend(
        learner.policy, samples, lambda policy: loss(policy, samples, learner.nu), config
    )
    return learner._replace(policy=policy), {"kl": search.kl, "backtracks": search.tries}


def make(config: Config, problem: Problem) -> Algorithm:
    """TRPO-L as a value."""
    return trust_region_algorithm(config, problem, partial(step, config=config, problem=problem))
