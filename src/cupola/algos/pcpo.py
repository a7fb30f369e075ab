"""PCPO: Projection-Based Constrained Policy Optimisation (Yang et al., 2020).

Each iteration, in the notation of cpo.py (g the gradient of the loss, G x + c <= 0),

    x0 = -sqrt(2 delta / g'H^-1 g) H^-1 g,       x = x0 - L^-1 G'mu,   mu >= 0,

the second being the projection of x0 onto the half-spaces in the metric L: the Fisher matrix H
(`kl`) or the identity (`l2`). See docs/algorithms/pcpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax

from cupola.algos.config import TrustRegionConfig
from cupola.algos.cpo import Model, make_model, search
from cupola.algos.trust_region import trust_region_algorithm
from cupola.core.advantages import scale
from cupola.core.half_spaces import active_sets, projection
from cupola.core.trust_region import conjugate_gradients, natural_gradient
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(TrustRegionConfig):
    """PCPO's switches; the defaults are the preset `paper`."""

    projection: Literal["kl", "l2"] = "kl"
    """The metric in which a step is projected onto the constraints."""


PRESETS = {"paper": Config()}


def projected_step(model: Model, config: Config) -> jax.Array:
    """The step x [P]."""
    reward_step = natural_gradient(
        model.product, model.gradient, config.cg_iterations, config.delta
    )
    if config.projection == "kl":
        columns = jax.vmap(
            lambda row: conjugate_gradients(model.product, row, config.cg_iterations)
        )(model.rows)
    else:
        columns = model.rows
    gram = model.rows @ columns.T
    mu = projection((gram + gram.T) / 2, model.rows @ reward_step + model.violation)
    return reward_step - mu @ columns


def step(
    learner: Learner, samples: Samples, batch: Batch, *, config: Config, problem: Problem
) -> tuple[Learner, Metrics]:
    samples = samples._replace(adv_c=scale(samples.adv_c, "centre"))
    model = make_model(learner.policy, samples, batch, problem, config)
    found = search(
        model, projected_step(model, config), learner.policy, samples, config, improves=False
    )
    moved = learner._replace(policy=model.flat.policy(found.theta))
    return moved, {"kl": found.kl, "backtracks": found.tries}


def make(config: Config, problem: Problem) -> Algorithm:
    """PCPO as a value."""
    active_sets(len(problem.costs))  # refuses more costs than it can handle
    return trust_region_algorithm(config, problem, partial(step, config=config, problem=problem))
