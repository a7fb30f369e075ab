"""How much of one batch's policy gradient is signal: cosines between independent batches."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from cupola.algos.assembly import make_samples
from cupola.algos.config import TrustRegionConfig
from cupola.core.samples import ratio
from cupola.core.trust_region import Flat, conjugate_gradients, fisher_product
from cupola.diagnosis.estimates import over_pairs
from cupola.diagnosis.multipliers import cost_terms
from cupola.diagnosis.result import RETURN, Cosine, Estimate, Gradient
from cupola.diagnosis.sampling import Drawn, Listener, Subject
from cupola.types import Batch, Learner

DAMPING = 0.1
"""Of natural gradients, where the algorithm has no damping of its own."""
ITERATIONS = 10
"""Of conjugate gradients, where the algorithm does not say."""


def gradients(subject: Subject, drawn: Drawn, tell: Listener) -> tuple[Gradient, ...]:
    """Of every signal, with the advantages that the algorithm's loss would take."""
    config, problem = subject.config, subject.problem
    damping, iterations = DAMPING, ITERATIONS
    if isinstance(config, TrustRegionConfig):
        damping, iterations = config.damping, config.cg_iterations

    @jax.jit
    def at(learner: Learner, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Plain and natural gradients, [1 + K, P]."""
        samples = make_samples(learner, batch, config=config, problem=problem)
        costs = cost_terms(samples, config, problem).advantages
        advantages = jnp.concatenate([samples.adv_r[:, None], costs], axis=1)
        flat = Flat.of(learner.policy)

        def surrogates(theta: jax.Array) -> jax.Array:
            return ratio(flat.policy(theta), samples) @ advantages / len(advantages)

        plain = jax.jacrev(surrogates)(flat.theta)
        product = fisher_product(learner.policy, samples.obs, damping)
        return plain, jax.vmap(lambda g: conjugate_gradients(product, g, iterations))(plain)

    found = []
    for i, batch in enumerate(drawn.batches):
        tell("gradients", i, len(drawn.batches))
        found.append(jax.device_get(at(subject.learner, batch)))
    tell("gradients", len(found), len(found))
    plain, natural = (np.stack(column).astype(float) for column in zip(*found, strict=True))
    return compare(plain, natural, (RETURN, *problem.costs), drawn.apart)


def compare(
    plain: np.ndarray, natural: np.ndarray, names: tuple[str, ...], apart: int
) -> tuple[Gradient, ...]:
    """Cosines of gradients [M, R, P] of M batches and R signals, the reward's first.

    Natural gradients x = H^-1 g are compared in the metric of the KL divergence, x'Hy: along one of
    them a step of a given KL gains `truth` times what the best step of that KL would.
    """
    flat = np.einsum("irp,jsp->rsij", plain, plain)
    curved = np.einsum("irp,jsp->rsij", plain, natural)
    curved = (curved + curved.transpose(1, 0, 3, 2)) / 2
    result: list[Gradient] = []
    for k, name in enumerate(names):
        own, natural_own = (
            implied(mean_cosine(inner[k, k], inner[k, k], inner[k, k], apart))
            for inner in (flat, curved)
        )
        crossed = None
        if result:
            between = mean_cosine(flat[0, k], flat[0, 0], flat[k, k], apart)
            clear = result[0].plain.truth * own.truth
            truth = float(np.clip(between.mean / clear, -1, 1)) if clear > 0 else math.nan
            crossed = Cosine(between, truth)
        result.append(Gradient(name, own, natural_own, crossed))
    return tuple(result)


def implied(between: Estimate) -> Cosine:
    """Two gradients share only what is true in both: the cosine with the truth is the root."""
    truth = math.nan if math.isnan(between.mean) else math.sqrt(max(between.mean, 0.0))
    return Cosine(between, truth)


def mean_cosine(inner: np.ndarray, first: np.ndarray, second: np.ndarray, apart: int) -> Estimate:
    """Mean cosine over pairs of batches that are ``apart``.

    ``inner`` [M, M] are the inner products of two signals' gradients, ``first`` and ``second``
    those of each signal with itself.
    """
    norms = np.sqrt(np.outer(np.diag(first), np.diag(second)))
    places = np.arange(len(inner))
    far = np.abs(np.subtract.outer(places, places)) >= apart
    if not norms[far].any():  # nothing but zeros
        return Estimate(math.nan, math.nan)
    return over_pairs(inner / np.where(norms > 0, norms, 1.0), far)
