"""Small exact problems over half-spaces: what CPO and PCPO solve once their vectors are known.

All constraints are G x + c <= 0 with K <= 8 rows, known through small matrices only: with a metric
M the Gram matrix S = G M^-1 G' [K, K]. The solution is found among the 2^K sets of active
constraints; each set gives a closed form, and all sets are tried at once.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cupola.errors import CupolaError

MAX_CONSTRAINTS = 8


class Mix(NamedTuple):
    """x = M^-1 (gradient g + G' mu): how much of each vector a step is made of."""

    gradient: jax.Array  # []
    constraints: jax.Array  # [K]
    feasible: jax.Array  # [] bool: the constraints can be met


def active_sets(count: int) -> np.ndarray:
    """All subsets of ``count`` constraints, [2^count, count] bool."""
    if count > MAX_CONSTRAINTS:
        raise CupolaError(f"at most {MAX_CONSTRAINTS} costs can be limited here, not {count}.")
    return np.array(list(product([False, True], repeat=count)), bool).reshape(2**count, count)


def trust_region_step(
    q: jax.Array, r: jax.Array, gram: jax.Array, c: jax.Array, delta: float
) -> Mix:
    """min g'x subject to G x + c <= 0 and x'Hx / 2 <= delta, for M = H.

    ``q`` = g'H^-1 g [], ``r`` = G H^-1 g [K], ``gram`` = G H^-1 G' [K, K], ``c`` [K]. Where the
    constraints cannot be met together, the step is instead the one that brings down the largest
    of them furthest, each measured by how far a step within the trust region can move it. A
    constraint that no step can move is left out.
    """
    radius, tolerance = jnp.sqrt(2 * delta), tolerance_of(gram)
    # In units where g and the rows of G have length one and the trust region has radius one.
    reach = jnp.sqrt(jnp.maximum(jnp.diagonal(gram), 0.0))
    movable = (reach > tolerance * jnp.max(reach, initial=0.0)) & (reach > 0)
    unit = jnp.where(movable, reach, 1.0)
    steep = jnp.sqrt(jnp.maximum(q, 0.0))
    slope = jnp.where(steep > 0, steep, 1.0)
    corr = jnp.where(
        movable[:, None] & movable, gram / (unit[:, None] * unit), jnp.eye(len(c), dtype=gram.dtype)
    )
    align = jnp.where(movable, r / (unit * slope), 0.0)
    level = jnp.where(movable, jnp.maximum(c / (unit * radius), -1e6), -1e6)
    sets = jnp.asarray(active_sets(len(c)))
    worst, recovery = jax.vmap(lambda chosen: lowest_peak(corr, level, chosen, tolerance))(sets)
    best = jnp.argmin(worst)
    feasible = jnp.all(level <= 0) | (worst[best] <= tolerance)
    values, alphas, mus = jax.vmap(
        lambda chosen: on_face(
            jnp.where(steep > 0, 1.0, 0.0), align, corr, level, chosen, tolerance
        )
    )(sets)
    found = jnp.argmin(values)
    alpha = jnp.where(feasible, alphas[found], 0.0)
    mu = jnp.where(feasible, mus[found], recovery[best])
    return Mix(alpha * radius / slope, jnp.where(movable, mu * radius / unit, 0.0), feasible)


def on_face(
    q: jax.Array,
    r: jax.Array,
    gram: jax.Array,
    c: jax.Array,
    chosen: jax.Array,
    tolerance: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The best point of the unit ball with the ``chosen`` constraints met exactly.

    Its value g'x (as `judged`) and its mix.
    """
    inverse = masked_inverse(gram, chosen)
    at = jnp.where(chosen, c, 0.0)
    along = jnp.where(chosen, r, 0.0)
    nearest = -inverse @ at  # the face's point closest to the origin
    room = 1.0 - at @ inverse @ at  # what is left of the squared radius
    rest = jnp.maximum(q - along @ inverse @ along, 0.0)  # squared length of g along the face
    moving = rest > tolerance**2
    length = jnp.where(moving, jnp.sqrt(jnp.maximum(room, 0.0) / jnp.where(moving, rest, 1.0)), 0.0)
    alpha, mu = -length, nearest + length * (inverse @ along)
    violation = alpha * r + gram @ mu + c
    excess = jnp.maximum(jnp.max(violation, initial=0.0), -room)
    return judged(alpha * q + r @ mu, excess, mu, tolerance), alpha, mu


def lowest_peak(
    gram: jax.Array, c: jax.Array, chosen: jax.Array, tolerance: float
) -> tuple[jax.Array, jax.Array]:
    """min over the unit ball of the largest G x + c, if the ``chosen`` ones share the maximum.

    With x = -M^-1 G'y: G_i x + c_i = t for the chosen, y'Sy = 1, y >= 0. The largest value
    reached (inf where the set does not fit), and the mix -y.
    """
    inverse = masked_inverse(gram, chosen)
    at, ones = jnp.where(chosen, c, 0.0), chosen.astype(c.dtype)
    # (c - t)' S^-1 (c - t) = 1 for the smaller t.
    a, b = ones @ inverse @ ones, at @ inverse @ ones
    root = b * b - a * (at @ inverse @ at - 1.0)
    t = (b - jnp.sqrt(jnp.maximum(root, 0.0))) / jnp.where(a > 0, a, 1.0)
    y = inverse @ jnp.where(chosen, at - t, 0.0)
    peak = jnp.max(c - gram @ y, initial=-jnp.inf)
    good = (a > 0) & (root >= -tolerance) & jnp.all(y >= -tolerance * (1 + jnp.max(jnp.abs(y))))
    return jnp.where(good, peak, jnp.inf), -y


def projection(gram: jax.Array, d: jax.Array) -> jax.Array:
    """mu >= 0 [K] such that x0 - M^-1 G'mu is the point of {G x + c <= 0} nearest to x0 in M.

    ``gram`` = G M^-1 G' [K, K], ``d`` = G x0 + c [K]. A constraint that cannot be moved is left
    out; where the half-spaces have no common point, the largest violation is made smallest.
    """
    tolerance = tolerance_of(gram)
    reach = jnp.sqrt(jnp.maximum(jnp.diagonal(gram), 0.0))
    movable = (reach > tolerance * jnp.max(reach, initial=0.0)) & (reach > 0)
    unit = jnp.where(movable, reach, 1.0)
    corr = jnp.where(
        movable[:, None] & movable, gram / (unit[:, None] * unit), jnp.eye(len(d), dtype=gram.dtype)
    )
    level = jnp.where(movable, d / unit, -jnp.inf)
    scale = jnp.maximum(jnp.max(level, initial=0.0), 1e-30)
    level = jnp.maximum(level / scale, -1e6)

    def candidate(chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
        mu = masked_inverse(corr, chosen) @ jnp.where(chosen, level, 0.0)
        excess = jnp.maximum(jnp.max(level - corr @ mu, initial=0.0), -jnp.min(mu, initial=0.0))
        return judged(mu @ corr @ mu, excess, mu, tolerance), mu

    values, mus = jax.vmap(candidate)(jnp.asarray(active_sets(len(d))))
    mu = jnp.maximum(mus[jnp.argmin(values)], 0.0)
    return jnp.where(movable, mu * scale / unit, 0.0)


def judged(value: jax.Array, excess: jax.Array, mu: jax.Array, tolerance: float) -> jax.Array:
    """What candidates compete by: their value, or, if they break a rule, first by how much."""
    size = jnp.max(jnp.abs(mu), initial=0.0)
    return jnp.where(excess <= tolerance, value, 1e9 * (1 + excess + 1e-6 * size))


def masked_inverse(gram: jax.Array, chosen: jax.Array) -> jax.Array:
    """The inverse of the chosen rows and columns (unit diagonal), zero elsewhere.

    A ridge bears rows that depend on each other; two refinements take it out where they do not.
    """
    both = chosen[:, None] & chosen
    eye = jnp.eye(len(chosen), dtype=gram.dtype)
    ridge = 10 * float(np.finfo(gram.dtype).eps)
    matrix = jnp.where(both, gram, eye)
    inverse = jnp.linalg.inv(matrix + ridge * eye)
    for _ in range(2):
        inverse = inverse @ (2 * eye - matrix @ inverse)
    return jnp.where(both, inverse, 0.0)


def tolerance_of(array: jax.Array) -> float:
    """What counts as zero, in units of one: 1e-4 in single and 1e-8 in double precision."""
    return 1e-4 if array.dtype == jnp.float32 else 1e-8
