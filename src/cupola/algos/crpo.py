"""CRPO: Constraint-Rectified Policy Optimisation (Xu, Liang & Lan, ICML 2021, Algorithm 1).

Each iteration takes one trust-region step on one of two losses:

    -mean_t rho_t A_t          while J^_i <= b_i + tolerance for all costs i,
    mean_t rho_t A^{c_i}_t     otherwise, i being the cost that is furthest above its limit.

It is primal: there are no Lagrange multipliers, and nothing integrates past violations. The
paper allows any violated cost and any policy step; this is the one of TRPO (algos/trpo.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import TrustRegionConfig
from cupola.algos.trpo import ascend
from cupola.algos.trust_region import trust_region_algorithm
from cupola.algos.update import violation_per_step
from cupola.checks import check_not_negative
from cupola.core.samples import ratio
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(TrustRegionConfig):
    """CRPO's switches; the defaults are the preset `paper`."""

    tolerance: float = 0.0
    """Violation of a limit that is tolerated, eta in the paper, in the unit of the cost return."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "tolerance")


PRESETS = {"paper": Config()}


def loss(policy: nets.Policy, samples: Samples, advantage: jax.Array) -> jax.Array:
    """What a step lowers: -mean rho A, of advantages [B]."""
    return -jnp.mean(ratio(policy, samples) * advantage)


def step(
    learner: Learner, samples: Samples, batch: Batch, *, config: Config, problem: Problem
) -> tuple[Learner, Metrics]:
    excess = jnp.asarray(batch.cost_returns) - jnp.asarray(problem.limits)
    violated = excess > config.tolerance  # [K]; not where a cost return is not known yet
    per_step = violation_per_step(batch, problem, config.gamma)
    cost = samples.adv_c[:, jnp.argmax(jnp.where(violated, per_step, -jnp.inf))]
    advantage = jnp.where(jnp.any(violated), jnp.mean(cost) - cost, samples.adv_r)
    policy, search = ascend(
        learner.policy, samples, lambda policy: loss(policy, samples, advantage), config
    )
    rectifies = jnp.any(violated).astype(jnp.int32)
    report = {"kl": search.kl, "backtracks": search.tries, "rectifies": rectifies}
    return learner._replace(policy=policy), report


def make(config: Config, problem: Problem) -> Algorithm:
    """CRPO as a value."""
    return trust_region_algorithm(config, problem, partial(step, config=config, problem=problem))
