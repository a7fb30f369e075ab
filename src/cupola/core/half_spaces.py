"""Small exact problems over half-spaces: what CPO and PCPO solve once their vectors are known.

All constraints are G x + c <= 0 with K <= 8 rows, known through small matrices only: with a metric
M the Gram matrix S = G M^-1 G' [K, K]. The solution is found among the 2^K sets of active
constraints; each set gives a closed form, and all sets are tried at once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cupola.errors import CupolaError

MAX_CONSTRAINTS = 8
BROKEN = 1e12
"""Candidates that break a rule are worth more than this."""
FAR = 1e6
"""A constraint that is met by so many radii counts as met for good."""


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
    movable, unit, corr = normalised(gram)
    steep = jnp.sqrt(jnp.maximum(q, 0.0))
    slope = jnp.where(steep > 0, steep, 1.0)
    align = jnp.where(movable, r / (unit * slope), 0.0)
    level = jnp.where(movable, jnp.maximum(c / (unit * radius), -FAR), -FAR)

    def reached(peak: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Can all constraints be brought down to ``peak`` within the trust region, and how?"""
        mu, met = nearest(corr, level - peak)
        return met & (mu @ corr @ mu <= 1.0 + tolerance), -mu

    feasible, _ = reached(jnp.zeros((), gram.dtype))
    highest = jnp.max(level, initial=-FAR)
    _, recovery = reached(lowest(lambda peak: reached(peak)[0], highest - 1.0, highest))
    values, alphas, mus = jax.vmap(
        lambda chosen: on_face(
            jnp.where(steep > 0, 1.0, 0.0), align, corr, level, chosen, tolerance
        )
    )(jnp.asarray(active_sets(len(c))))
    found = jnp.argmin(values)
    alpha = jnp.where(feasible, alphas[found], 0.0)
    mu = jnp.where(feasible, mus[found], recovery)
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
    inverse, independent = exact_inverse(gram, chosen)
    at = jnp.where(chosen, c, 0.0)
    along = jnp.where(chosen, r, 0.0)
    nearest = -inverse @ at  # the face's point closest to the origin
    room = 1.0 - at @ inverse @ at  # what is left of the squared radius
    rest = jnp.maximum(q - along @ inverse @ along, 0.0)  # squared length of g along the face
    moving = rest > 1e3 * float(np.finfo(gram.dtype).eps)  # else g is normal to the face
    length = jnp.where(moving, jnp.sqrt(jnp.maximum(room, 0.0) / jnp.where(moving, rest, 1.0)), 0.0)
    alpha, mu = -length, nearest + length * (inverse @ along)
    violation = alpha * r + gram @ mu + c
    square = alpha * alpha * q + 2 * alpha * (r @ mu) + mu @ gram @ mu
    excess = jnp.maximum(jnp.max(violation, initial=0.0), square - 1.0)
    excess = jnp.where(independent, jnp.maximum(excess, -room), jnp.inf)
    return judged(alpha * q + r @ mu, excess, mu, tolerance), alpha, mu


def projection(gram: jax.Array, d: jax.Array) -> jax.Array:
    """mu >= 0 [K] such that x0 - M^-1 G'mu is the point of {G x + c <= 0} nearest to x0 in M.

    ``gram`` = G M^-1 G' [K, K], ``d`` = G x0 + c [K]. A constraint that cannot be moved is left
    out. Where the half-spaces have no common point they are all moved back, by the same number of
    lengths of their rows and as little as possible, until they have one.
    """
    movable, unit, corr = normalised(gram)
    level = jnp.where(movable, d / unit, -jnp.inf)
    scale = jnp.maximum(jnp.max(level, initial=0.0), 1e-30)
    level = jnp.maximum(level / scale, -FAR)
    zero, one = jnp.zeros((), gram.dtype), jnp.ones((), gram.dtype)
    possible = nearest(corr, level)[1]
    back = lowest(lambda back: nearest(corr, level - back)[1], zero, one)
    mu, _ = nearest(corr, level - jnp.where(possible, 0.0, back))
    return jnp.where(movable, mu * scale / unit, 0.0)


def normalised(gram: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which constraints can be moved [K], the lengths of their rows [K], and the rows' cosines."""
    length = jnp.sqrt(jnp.maximum(jnp.diagonal(gram), 0.0))
    longest = jnp.max(length, initial=0.0)
    movable = (length > tolerance_of(gram) * longest) & (length > 0)
    unit = jnp.where(movable, length, 1.0)
    eye = jnp.eye(len(length), dtype=gram.dtype)
    return movable, unit, jnp.where(movable[:, None] & movable, gram / (unit[:, None] * unit), eye)


def nearest(gram: jax.Array, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    """mu >= 0 [K] of the point nearest to the origin with G x + level <= 0, if there is one."""

    def candidate(chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
        inverse, independent = exact_inverse(gram, chosen)
        mu = inverse @ jnp.where(chosen, level, 0.0)
        excess = jnp.maximum(jnp.max(level - gram @ mu, initial=0.0), -jnp.min(mu, initial=0.0))
        excess = jnp.where(independent, excess, jnp.inf)
        return judged(mu @ gram @ mu, excess, mu, tolerance_of(gram)), mu

    values, mus = jax.vmap(candidate)(jnp.asarray(active_sets(len(level))))
    best = jnp.argmin(values)
    return jnp.maximum(mus[best], 0.0), values[best] < BROKEN


def lowest(
    possible: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> jax.Array:
    """The smallest number between ``low`` and ``high`` that is possible; ``high`` is."""

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        good = possible(middle)
        return jnp.where(good, low, middle), jnp.where(good, middle, high)

    return jax.lax.fori_loop(0, 40, halve, (low, high))[1]


def judged(value: jax.Array, excess: jax.Array, mu: jax.Array, tolerance: float) -> jax.Array:
    """What candidates compete by: their value, or, if they break a rule, first by how much."""
    size = jnp.max(jnp.abs(mu), initial=0.0)
    return jnp.where(excess <= tolerance * (1 + size), value, BROKEN * (1 + excess + 1e-6 * size))


def exact_inverse(gram: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The inverse of the chosen rows and columns, zero elsewhere, and whether it is one.

    Sets of dependent rows can be left out: the optimum has multipliers on an independent set. A
    tiny ridge bears them; two refinements take it out where it is not needed.
    """
    both = chosen[:, None] & chosen
    eye = jnp.eye(len(chosen), dtype=gram.dtype)
    matrix = jnp.where(both, gram, eye)
    inverse = jnp.linalg.inv(matrix + 10 * float(np.finfo(gram.dtype).eps) * eye)
    for _ in range(2):
        inverse = 2 * inverse - inverse @ matrix @ inverse
    bound = 2e4 if gram.dtype == jnp.float32 else 1e9
    return jnp.where(both, inverse, 0.0), jnp.max(jnp.abs(inverse), initial=0.0) < bound


def tolerance_of(array: jax.Array) -> float:
    """What counts as zero, in units of one: 1e-4 in single and 1e-8 in double precision."""
    return 1e-4 if array.dtype == jnp.float32 else 1e-8
