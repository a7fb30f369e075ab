"""How the costs enter a policy's loss, and what a multiplier is worth in units of return per cost.

Losses with multipliers weigh, up to a common factor,

    A_t / sigma - sum_i nu_i f_i A^{c_i}_t

with sigma the standard deviation of the reward's advantages A. So one unit of cost i is traded for

    price_i = nu_i f_i sigma

units of return. f_i is 1 / (standard deviation of A^{c_i}) where cost advantages are standardised
(that of these batches, also where the training divides by a running one), and 1 where they are
centred or left alone. CUP has two losses. With `projection_scale=improvement` both steps have the
same length, and f_i is as above. Otherwise its projection's f_i also carries the factor
(1 - gamma lam_c)/(1 - gamma), or with the rule `predicted` is 1 / (standard deviation of
w A^{c_i}). w are the weights of time, which A^{c_i} also carries with `cost_weights=time`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cupola.algos import cup
from cupola.algos.config import CostConfig, LagrangianConfig, OnPolicyConfig
from cupola.core.advantages import horizon_factor, scale, spread
from cupola.core.samples import weighted_by_time
from cupola.diagnosis.result import Multiplier
from cupola.diagnosis.sampling import Drawn, Subject
from cupola.types import Problem, Samples


class CostTerms(NamedTuple):
    """The costs in a policy's loss, before multipliers."""

    advantages: jax.Array  # [B, K], as the loss takes them, up to a factor
    factors: jax.Array  # [K], f of the module's docstring


def multipliers(subject: Subject, drawn: Drawn) -> tuple[Multiplier, ...]:
    """Of every cost; () where the algorithm carries none."""
    config, problem = subject.config, subject.problem
    if not isinstance(config, LagrangianConfig):
        return ()
    found = [
        prices(subject.samples_of(subject.learner, batch), config, problem)
        for batch in drawn.batches
    ]
    nu = np.asarray(subject.learner.nu)
    bound = config.nu_max
    if isinstance(config, cup.Config) and config.multiplier == "predicted":
        bound *= horizon_factor(config.gamma, config.lam_c)
    rows = zip(problem.costs, nu.tolist(), (nu * np.mean(found, axis=0)).tolist(), strict=True)
    return tuple(Multiplier(name, value, bound, price) for name, value, price in rows)


def prices(samples: Samples, config: OnPolicyConfig, problem: Problem) -> jax.Array:
    """Of multipliers of one, [K]."""
    return cost_terms(samples, config, problem).factors * spread(samples.advantages[:, 0])


def cost_terms(samples: Samples, config: OnPolicyConfig, problem: Problem) -> CostTerms:
    """As the algorithm's loss has them; centred for algorithms that have no say in it."""
    raw, project = samples.adv_c, config if isinstance(config, cup.Config) else None
    predicts = project is not None and project.multiplier == "predicted"
    if project and (predicts or project.cost_weights == "time"):
        raw = weighted_by_time(samples, config.gamma, problem.discounted)
    if predicts:
        return CostTerms(raw, 1 / spread(raw))
    scaling = config.cost_advantage if isinstance(config, CostConfig) else "centre"
    divided = scaling in ("standardise", "running")
    factors = 1 / spread(raw) if divided else jnp.ones(raw.shape[1])
    if project and project.projection_scale == "horizon":
        factors *= horizon_factor(config.gamma, config.lam_c)
    return CostTerms(scale(raw, scaling), factors)
