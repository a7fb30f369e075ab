"""TRPO-L: TRPO with prices on the costs (Ray et al., 2019, "Benchmarking Safe Exploration").

Each iteration, with nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max), one trust-region step on

    -(mean_t rho_t A_t - sum_i nu_i mean_t rho_t A^{c_i}_t) / (1 + sum_i nu_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import PricedConfig, TrustRegionConfig
from cupola.algos.trpo import ascend
from cupola.algos.update import Learn, assembled, raised, trust_region_learn
from cupola.core.advantages import scale
from cupola.core.samples import Samples, ratio
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem


@dataclass(frozen=True, kw_only=True)
class Config(TrustRegionConfig, PricedConfig):
    """TRPO-L's switches; the defaults are the preset `paper`."""

    log_std: float = -1.0
    """Initial log standard deviation of the actions, where they are continuous."""


PRESETS = {"paper": Config()}


def loss(policy: nets.Policy, samples: Samples, nu: jax.Array) -> jax.Array:
    """What a step lowers, at prices ``nu`` [K]."""
    advantage = samples.adv_r - samples.adv_c @ nu
    return -jnp.mean(ratio(policy, samples) * advantage) / (1 + jnp.sum(nu))


def make_learn(config: Config, problem: Problem, threads: int = 1) -> Learn:
    def step(learner: Learner, samples: Samples, batch: Batch) -> tuple[Learner, Metrics]:
        nu, memory = raised(config, problem, learner, batch)
        samples = samples._replace(adv_c=scale(samples.adv_c, config.cost_advantage))
        policy, search = ascend(
            learner.policy, samples, lambda policy: loss(policy, samples, nu), config
        )
        moved = learner._replace(policy=policy, nu=nu, nu_opt=memory)
        return moved, {"kl": search.kl, "backtracks": search.tries}

    return trust_region_learn(config, problem, threads, step)


def make(config: Config, problem: Problem, threads: int = 1) -> Algorithm:
    """TRPO-L as a value; ``threads`` > 1 fits the critics beside the policy on a second core."""
    return assembled(config, problem, make_learn(config, problem, threads))
