"""CPO: Constrained Policy Optimisation (Achiam et al., 2017).

Each iteration, with g the gradient of the loss -mean rho A, rows G_i of the cost surrogates
mean rho A^{c_i}, c_i the violations per step and H the Fisher matrix, take the step x of

    min g'x   subject to   G x + c <= 0,   x'Hx / 2 <= delta                      (Eq. 11),

solved exactly for K costs; where the constraints cannot be met, the step that recovers most
(Eq. 14). A line search then shortens it until the samples agree. See docs/algorithms/cpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import TrustRegionConfig
from cupola.algos.trust_region import trust_region_algorithm
from cupola.algos.update import violation_per_step
from cupola.core.advantages import scale
from cupola.core.divergences import kl_from
from cupola.core.half_spaces import active_sets, trust_region_step
from cupola.core.samples import ratio
from cupola.core.trust_region import (
    Flat,
    Product,
    Search,
    conjugate_gradients,
    fisher_product,
    line_search,
)
from cupola.types import Algorithm, Batch, Learner, Metrics, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(TrustRegionConfig):
    """CPO's switches; the defaults are the preset `paper`."""


PRESETS = {"paper": Config()}


class Model(NamedTuple):
    """Objective and constraints around pi_k, to first order, and the Fisher matrix."""

    flat: Flat
    gradient: jax.Array  # [P], g of the loss -mean rho A
    rows: jax.Array  # [K, P], G of the costs mean rho A^c
    violation: jax.Array  # [K], c, per step; -inf where not known yet
    product: Product  # v -> H v


def surrogate(policy: nets.Policy, samples: Samples) -> tuple[jax.Array, jax.Array]:
    """Loss -mean rho A [] and costs mean rho A^c [K]."""
    rho = ratio(policy, samples)
    return -jnp.mean(rho * samples.adv_r), rho @ samples.adv_c / len(rho)


def make_model(
    policy: nets.Policy,
    samples: Samples,
    batch: Batch,
    problem: Problem,
    config: TrustRegionConfig,
) -> Model:
    flat = Flat.of(policy)
    gradient, rows = jax.jacrev(lambda theta: surrogate(flat.policy(theta), samples))(flat.theta)
    product = fisher_product(policy, samples.obs, config.damping)
    return Model(flat, gradient, rows, violation_per_step(batch, problem, config.gamma), product)


def constrained_step(model: Model, config: TrustRegionConfig) -> tuple[jax.Array, jax.Array]:
    """The step x [P], and whether the linearised constraints can be met."""

    def solve(vector: jax.Array) -> jax.Array:
        return conjugate_gradients(model.product, vector, config.cg_iterations)

    v, w = solve(model.gradient), jax.vmap(solve)(model.rows)
    gram = model.rows @ w.T
    mix = trust_region_step(
        model.gradient @ v,
        model.rows @ v,
        (gram + gram.T) / 2,
        model.violation,
        config.delta,
    )
    return mix.gradient * v + mix.constraints @ w, mix.feasible


def search(
    model: Model,
    step: jax.Array,
    policy: nets.Policy,
    samples: Samples,
    config: TrustRegionConfig,
    improves: jax.Array | bool,
) -> Search:
    """Shorten the step until KL <= delta, no cost rises beyond its slack (or, if it must, beyond
    what the model says), and, where it has to, the loss ``improves``."""
    loss_before, costs_before = surrogate(policy, samples)
    divergence = kl_from(samples.obs, samples.mean, policy.log_std)
    slack = jnp.maximum(jnp.maximum(-model.violation, 0.0), model.rows @ step)

    def acceptable(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = model.flat.policy(theta)
        loss, costs = surrogate(new, samples)
        kl = divergence(new)
        better = (loss <= loss_before) | ~jnp.asarray(improves)
        return (kl <= config.delta) & better & jnp.all(costs - costs_before <= slack), kl

    return line_search(model.flat.theta, step, acceptable, config.backtrack, config.backtracks)


def step(
    learner: Learner, samples: Samples, batch: Batch, *, config: Config, problem: Problem
) -> tuple[Learner, Metrics]:
    samples = samples._replace(adv_c=scale(samples.adv_c, "centre"))
    model = make_model(learner.policy, samples, batch, problem, config)
    x, feasible = constrained_step(model, config)
    safe = jnp.all(model.violation < 0)
    found = search(model, x, learner.policy, samples, config, improves=safe)
    return learner._replace(policy=model.flat.policy(found.theta)), {
        "kl": found.kl,
        "backtracks": found.tries,
        "feasible": feasible.astype(jnp.int32),
    }


def make(config: Config, problem: Problem) -> Algorithm:
    """CPO as a value."""
    active_sets(len(problem.costs))  # refuses more costs than it can handle
    return trust_region_algorithm(config, problem, partial(step, config=config, problem=problem))
