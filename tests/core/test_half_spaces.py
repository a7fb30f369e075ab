"""Steps and projections over half-spaces against an interior-point method, scipy and closed forms.

Problems are drawn with a random metric H. In the references they are written in y = R x / radius
with R'R = H and radius = sqrt(2 delta): the trust region is then the unit ball, and a row divided
by its length tells by how much of its reach a step violates it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, nnls

from cupola.core import half_spaces
from cupola.errors import CupolaError

DELTA = 0.01
RADIUS = (2 * DELTA) ** 0.5
COUNT = 1300  # problems at once, the same everywhere: a function compiles once for each K
DEGENERATE = (
    "zero row",
    "faint row",
    "zero level",
    "repeated rows",
    "opposite rows",
    "no gradient",
    "gradient in the span",
    "gradient near the span",
)
CASES = ("roomy", "tight", "degenerate")
QUICKLY = {"xla_backend_optimization_level": 0}  # compiled in half the time


class Problems(NamedTuple):
    """P problems min g'x subject to G x + c <= 0 in the metric H, n unknowns, K rows."""

    metric: np.ndarray  # [P, n, n]
    g: np.ndarray  # [P, n]
    rows: np.ndarray  # [P, K, n]
    c: np.ndarray  # [P, K]


def draw(case: str, rows: int, size: int, count: int = COUNT) -> Problems:
    """Random problems; the rows' lengths spread over two orders of magnitude."""
    rng = np.random.default_rng([rows, size, CASES.index(case)])
    root = rng.normal(size=(count, size, size))
    metric = root @ root.transpose(0, 2, 1) / size + 0.1 * np.eye(size)
    g = rng.normal(size=(count, size))
    matrix = rng.normal(size=(count, rows, size)) * 10 ** rng.uniform(-1, 1, (count, rows, 1))
    low, high = {"roomy": (-1.5, 0.7), "tight": (0.5, 3.0), "degenerate": (-1.5, 1.2)}[case]
    level = rng.uniform(low, high, (count, rows))
    if case == "degenerate":
        for index, kind in enumerate(DEGENERATE):
            bend(kind, slice(index, None, len(DEGENERATE)), rng, g, matrix, level)
    reach = RADIUS * lengths(metric, matrix)
    return Problems(metric, g, matrix, level * np.where(reach > 0, reach, 1.0))


def bend(kind: str, which: slice, rng, g: np.ndarray, matrix: np.ndarray, level: np.ndarray):
    """Make the problems ``which`` degenerate, in place."""
    mixed = np.einsum("pk,pkn->pn", rng.normal(size=level[which].shape), matrix[which])
    noise = 10 ** rng.uniform(-4, 0, (len(mixed), 1)) * rng.normal(size=mixed.shape)
    if kind == "zero row":
        matrix[which, 0] = 0
    elif kind == "faint row":
        matrix[which, 0] *= 1e-6
    elif kind == "zero level":
        level[which, 0] = 0
    elif kind == "repeated rows":
        matrix[which, -1] = matrix[which, 0]
        level[which, -1] = np.where(rng.random(len(mixed)) < 0.5, level[which, 0], level[which, -1])
    elif kind == "opposite rows" and matrix.shape[1] > 1:
        matrix[which, -1] = -3 * matrix[which, 0]
    elif kind == "no gradient":
        g[which] = 0
    elif kind == "gradient in the span":
        g[which] = mixed
    elif kind == "gradient near the span":
        g[which] = mixed + noise


def solved(metric: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """H^-1 G', [P, n, K]."""
    return np.linalg.solve(metric, rows.transpose(0, 2, 1))


def lengths(metric: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """sqrt(s_ii) of the rows, [P, K]."""
    return np.sqrt(np.einsum("pkn,pnk->pk", rows, solved(metric, rows)))


class Unit(NamedTuple):
    """The same problems in the unit ball; rows that nothing can move are empty and met."""

    root: np.ndarray  # [P, n, n], R'R = H
    g: np.ndarray  # [P, n], length one or zero
    rows: np.ndarray  # [P, K, n], length one or zero
    level: np.ndarray  # [P, K]


def in_the_unit_ball(problems: Problems, negligible: float = 1e-8) -> Unit:
    root = np.linalg.cholesky(problems.metric).transpose(0, 2, 1)
    back = np.linalg.inv(root)
    g = np.einsum("pn,pnm->pm", problems.g, back)
    rows = problems.rows @ back
    steep = np.linalg.norm(g, axis=1, keepdims=True)
    length = np.linalg.norm(rows, axis=2)
    kept = length > negligible * length.max(1, keepdims=True)
    length = np.where(kept, length, 1.0)
    return Unit(
        root,
        g / np.where(steep > 0, steep, 1.0),
        np.where(kept[..., None], rows / length[..., None], 0.0),
        np.where(kept, problems.c / (length * RADIUS), -1.0),
    )


class Convex(NamedTuple):
    """P problems min cost'z subject to rows z + level <= 0 and |balled z| <= 1."""

    cost: np.ndarray  # [P, m]
    rows: np.ndarray  # [P, K, m]
    level: np.ndarray  # [P, K]
    balled: np.ndarray  # [P, m], one for the unknowns that lie in the ball, else zero

    def values(self, z: np.ndarray) -> np.ndarray:
        """Of the constraints, the ball last."""
        ball = np.sum(self.balled * z * z, axis=1, keepdims=True) - 1
        return np.concatenate([np.einsum("pkm,pm->pk", self.rows, z) + self.level, ball], axis=1)

    def slopes(self, z: np.ndarray) -> np.ndarray:
        return np.concatenate([self.rows, 2 * (self.balled * z)[:, None]], axis=1)

    def residual(self, z: np.ndarray, nu: np.ndarray, target: np.ndarray) -> np.ndarray:
        """How far the conditions of optimality, relaxed by ``target``, are from being met."""
        dual = self.cost + np.einsum("pk,pkm->pm", nu, self.slopes(z))
        return np.sqrt(np.sum(dual**2, 1) + np.sum((-nu * self.values(z) - target) ** 2, 1))


def primal_dual_step(
    convex: Convex, z: np.ndarray, nu: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One iteration of Boyd and Vandenberghe, Section 11.7; and which problems moved."""
    f, slope = convex.values(z), convex.slopes(z)
    target = -np.sum(f * nu, axis=1, keepdims=True) / (10 * f.shape[1])
    curvature = 2 * nu[:, -1:] * convex.balled
    hessian = np.einsum("pk,pkm,pkl->pml", -nu / f, slope, slope)
    hessian += (curvature + 1e-14 * np.trace(hessian, axis1=1, axis2=2)[:, None])[
        ..., None
    ] * np.eye(z.shape[1])
    right = -(convex.cost + np.einsum("pk,pkm->pm", -target / f, slope))
    dz = np.linalg.solve(hessian, right[..., None])[..., 0]
    dnu = -nu - (target + nu * np.einsum("pkm,pm->pk", slope, dz)) / f
    longest = np.where(dnu < 0, -nu / np.where(dnu < 0, dnu, 1.0), np.inf)
    s = 0.99 * np.minimum(1.0, longest.min(axis=1, keepdims=True))
    before = convex.residual(z, nu, target)
    for _ in range(30):
        inside = np.all(convex.values(z + s * dz) < 0, axis=1)
        after = convex.residual(z + s * dz, nu + s * dnu, target)
        good = inside & (after <= before * (1 - 0.01 * s[:, 0]))
        if good.all():
            break
        s = np.where(good[:, None], s, 0.5 * s)
    return z + s * dz * good[:, None], nu + s * dnu * good[:, None], good


def interior_point(convex: Convex, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solutions from interior points z, their multipliers, and how far the values can be off."""
    nu = -1 / convex.values(z)
    live = np.arange(len(z))
    for _ in range(80):
        part = Convex(*(array[live] for array in convex))
        z[live], nu[live], moved = primal_dual_step(part, z[live], nu[live])
        gap = -np.sum(part.values(z[live]) * nu[live], axis=1)
        live = live[moved & (gap > 1e-11)]
        if len(live) == 0:
            break
    return z, nu, -np.sum(convex.values(z) * nu, axis=1) + convex.residual(z, nu, 0.0)


class Optimum(NamedTuple):
    """What the reference says of P problems in the unit ball."""

    peak: np.ndarray  # [P], the lowest that the largest violation can be made
    y: np.ndarray  # [P, n], the best step, where the peak is below zero
    ball: np.ndarray  # [P], multiplier of the ball: the step is unique where it is positive
    exact: np.ndarray  # [P] bool, where the interior-point method has converged


def optimum(unit: Unit) -> Optimum:
    count, rows, size = unit.rows.shape
    nothing, one = np.zeros((count, size)), np.ones((count, 1))
    # The largest violation is one more unknown.
    highest = Convex(
        np.concatenate([nothing, one], axis=1),
        np.concatenate([unit.rows, np.tile(-one[:, None], (1, rows, 1))], axis=2),
        unit.level,
        np.concatenate([nothing + 1, 0 * one], axis=1),
    )
    top = unit.level.max(1, keepdims=True)
    z, _, gap = interior_point(highest, np.concatenate([nothing, top + 1], axis=1))
    peak, exact = z[:, -1], gap < 1e-8
    roomy = peak < -1e-6
    # From there towards the origin, off the sphere, as far as the constraints allow.
    back = 0.5 * peak / (peak - np.maximum(top[:, 0], 0.0))
    y, ball = (1 - back[:, None]) * z[:, :-1], np.zeros(count)
    best = Convex(unit.g[roomy], unit.rows[roomy], unit.level[roomy], nothing[roomy] + 1)
    y[roomy], nu, gap = interior_point(best, y[roomy])
    exact[roomy] &= gap < 1e-8
    ball[roomy] = nu[:, -1]
    assert exact.mean() > 0.99
    return Optimum(peak, y, ball, exact)


@functools.cache
def references(case: str, rows: int, size: int) -> tuple[Problems, Unit, Optimum]:
    problems = draw(case, rows, size)
    unit = in_the_unit_ball(problems)
    return problems, unit, optimum(unit)


@pytest.mark.parametrize("case", ["roomy", "tight"])
def test_the_interior_point_method_agrees_with_scipy(case):
    """The reference of the other tests against SLSQP."""
    _, unit, best = references(case, 3, 6)
    for p in range(25):
        rows, level = unit.rows[p], unit.level[p]
        inside = {"type": "ineq", "fun": lambda z: 1 - z[:6] @ z[:6]}
        if best.peak[p] > 0:
            below = {"type": "ineq", "fun": lambda z, a=rows, b=level: z[6] - a @ z[:6] - b}
            start = np.append(np.zeros(6), level.max() + 1)
            found = minimize(
                lambda z: z[6], start, method="SLSQP", constraints=[inside, below], tol=1e-12
            )
            assert found.fun == pytest.approx(best.peak[p], abs=1e-6)
        else:
            below = {"type": "ineq", "fun": lambda z, a=rows, b=level: -a @ z - b}
            found = minimize(
                lambda z, g=unit.g[p]: g @ z,
                np.zeros(6),
                method="SLSQP",
                constraints=[inside, below],
                tol=1e-12,
            )
            np.testing.assert_allclose(found.x, best.y[p], atol=1e-5)


class Answer(NamedTuple):
    """What the code says, in the unit ball."""

    y: np.ndarray  # [P, n]
    feasible: np.ndarray  # [P]
    violation: np.ndarray  # [P, K], in units of each row's reach


@functools.partial(jax.jit, compiler_options=QUICKLY)
def mixes(q, r, gram, c):
    return jax.vmap(lambda *small: half_spaces.trust_region_step(*small, DELTA))(q, r, gram, c)


@functools.partial(jax.jit, compiler_options=QUICKLY)
def projections(gram, d):
    return jax.vmap(half_spaces.projection)(gram, d)


def answer(problems: Problems, unit: Unit, dtype=np.float64) -> Answer:
    v = np.linalg.solve(problems.metric, problems.g[..., None])[..., 0]
    w = solved(problems.metric, problems.rows)
    q = np.einsum("pn,pn->p", problems.g, v)
    r = np.einsum("pkn,pn->pk", problems.rows, v)
    mix = mixes(*(jnp.asarray(a, dtype) for a in (q, r, problems.rows @ w, problems.c)))
    v, w = v.astype(dtype), w.astype(dtype)
    x = mix.gradient[:, None] * v + np.einsum("pnk,pk->pn", w, mix.constraints)
    assert x.dtype == dtype
    y = np.einsum("pnm,pm->pn", unit.root, x) / RADIUS
    violation = np.einsum("pkn,pn->pk", unit.rows, y) + unit.level
    return Answer(y, np.asarray(mix.feasible), violation)


@pytest.mark.parametrize("size", [3, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_step_is_the_optimum_within_the_trust_region(x64, case, rows, size):
    problems, unit, best = references(case, rows, size)
    ours = answer(problems, unit)
    assert np.isfinite(ours.y).all()
    assert np.linalg.norm(ours.y, axis=1).max() < 1 + 1e-5
    clear = best.exact & (np.abs(best.peak) > 1e-6)
    assert np.array_equal(ours.feasible[clear], best.peak[clear] < 0)
    met = best.exact & (best.peak < -1e-6)
    assert ours.violation[met].max(initial=0.0) < 1e-6
    gain = np.einsum("pn,pn->p", unit.g, ours.y - best.y)
    np.testing.assert_allclose(gain[met], 0, atol=1e-6)
    unique = met & (best.ball > 1e-3)
    np.testing.assert_allclose(ours.y[unique], best.y[unique], atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("case", ["tight", "degenerate"])
def test_constraints_out_of_reach_are_brought_down_as_far_as_possible(x64, case, rows):
    problems, unit, best = references(case, rows, 6)
    ours = answer(problems, unit)
    unmet = best.exact & (best.peak > 1e-6)
    assert unmet.sum() > 50
    assert not ours.feasible[unmet].any()
    np.testing.assert_allclose(ours.violation.max(1)[unmet], best.peak[unmet], atol=1e-6)
    if rows == 1:
        # The recovery step -sqrt(2 delta / s) H^-1 b is the unit step against the row.
        np.testing.assert_allclose(ours.y[unmet], -unit.rows[unmet, 0], atol=1e-8)


@pytest.mark.parametrize("size", [3, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_single_precision_keeps_the_constraints(case, rows, size):
    problems, unit, best = references(case, rows, size)
    ours = answer(problems, unit, np.float32)
    assert np.isfinite(ours.y).all()
    assert np.linalg.norm(ours.y, axis=1).max() < 1.02
    # A row 1e4 times shorter than another counts as one that nothing can move.
    length = lengths(problems.metric, problems.rows)
    counted = best.exact & (length.min(1) > 1e-4 * length.max(1))
    met, unmet = counted & (best.peak < -1e-3), counted & (best.peak > 1e-3)
    assert ours.violation[met].max(initial=0.0) < 1e-3
    gain = np.einsum("pn,pn->p", unit.g, ours.y - best.y)
    assert gain[met].max(initial=0.0) < 1e-2
    np.testing.assert_allclose(ours.violation.max(1)[unmet], best.peak[unmet], atol=1.5e-2)


def step_by_cases(g: np.ndarray, b: np.ndarray, c: float, metric: np.ndarray) -> np.ndarray:
    """CPO's step for one constraint by the cases of its paper's appendix, signs corrected."""
    v, w = np.linalg.solve(metric, g), np.linalg.solve(metric, b)
    q, r, s = g @ v, g @ w, b @ w
    if b @ b < 1e-20 or (c < 0 and 2 * DELTA - c * c / s < 0):
        return -np.sqrt(2 * DELTA / q) * v
    a_, b_ = q - r * r / s, 2 * DELTA - c * c / s
    if b_ < 0:
        return -np.sqrt(2 * DELTA / s) * w
    # nu is positive where lambda c > r.
    if c > 0:
        with_price, without = (max(r / c, 0.0), np.inf), (0.0, r / c)
    elif c < 0:
        with_price, without = (0.0, r / c), (max(r / c, 0.0), np.inf)
    else:
        with_price, without = ((0.0, np.inf), None) if r < 0 else (None, (0.0, np.inf))
    branches = []
    if with_price is not None and with_price[1] > 0:
        multiplier = np.clip(np.sqrt(a_ / b_), *with_price)
        value = -0.5 * (a_ / multiplier + b_ * multiplier) - r * c / s
        branches.append((value, multiplier))
    if without is not None and without[1] > 0:
        multiplier = np.clip(np.sqrt(q / (2 * DELTA)), *without)
        branches.append((-0.5 * (q / multiplier + 2 * DELTA * multiplier), multiplier))
    _, multiplier = max(branches)
    price = max(0.0, multiplier * c - r) / s
    return -(v + price * w) / multiplier


@pytest.mark.parametrize("case", ["roomy", "tight", "degenerate"])
def test_one_constraint_follows_the_closed_cases_of_cpo(x64, case):
    problems, unit, _ = references(case, 1, 6)
    ours = answer(problems, unit)
    kinds = np.arange(len(unit.g)) % len(DEGENERATE) if case == "degenerate" else 0 * unit.level
    closed = ("zero row", "faint row", "zero level")  # where the closed form divides by no zero
    for p in range(len(unit.g)):
        if case == "degenerate" and DEGENERATE[kinds[p]] not in closed:
            continue
        x = step_by_cases(problems.g[p], problems.rows[p, 0], problems.c[p, 0], problems.metric[p])
        np.testing.assert_allclose(ours.y[p], unit.root[p] @ x / RADIUS, atol=1e-5)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Single and, with it switched on, double precision."""
    if request.param == "float64":
        request.getfixturevalue("x64")
    return np.dtype(request.param)


def test_a_reward_that_is_the_cost_stops_at_the_limit(dtype):
    """g = -b: the step goes along b to where b'x + c = 0 and no further."""
    c, one = np.linspace(-0.99, 0.99, COUNT), jnp.ones((COUNT, 1), dtype)
    mix = mixes(one[:, 0], -one, one[..., None], jnp.asarray(c[:, None] * RADIUS, dtype))
    moved = (mix.constraints[:, 0] - mix.gradient) / RADIUS
    np.testing.assert_allclose(moved, -c, atol=1e-6 if dtype == np.float64 else 1e-3)


def test_rows_that_nothing_can_move_are_left_out(dtype):
    """Beside a row that binds, whatever their limits: the same step as with that row alone."""
    one = jnp.ones((COUNT, 1), dtype)
    alone = mixes(one[:, 0], -0.6 * one, one[..., None], 0 * one)
    gram = jnp.zeros((COUNT, 2, 2), dtype).at[:, 0, 0].set(1)
    c = np.zeros((COUNT, 2))
    c[:, 1] = np.resize([-1.0, 0.0, 1.0, -np.inf], COUNT)
    both = mixes(one[:, 0], jnp.array([-0.6, 0.0], dtype) * one, gram, jnp.asarray(c, dtype))
    np.testing.assert_allclose(both.gradient, alone.gradient, rtol=1e-6)
    np.testing.assert_allclose(both.constraints[:, 0], alone.constraints[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(both.constraints[:, 1], 0)
    assert np.all(both.feasible)
    mu = projections(gram, jnp.asarray(np.add(c, [0.3, 0.0]), dtype))
    np.testing.assert_allclose(mu[:, 0], 0.3, rtol=1e-4)
    np.testing.assert_array_equal(mu[:, 1], 0)


def test_limits_not_known_yet_do_not_bind(dtype):
    one, eye = jnp.ones((COUNT, 2), dtype), jnp.tile(jnp.eye(2, dtype=dtype), (COUNT, 1, 1))
    mix = mixes(one[:, 0], -0.6 * one, eye, -jnp.inf * one)
    np.testing.assert_allclose(mix.gradient, -RADIUS, rtol=1e-6)
    np.testing.assert_array_equal(mix.constraints, 0)
    np.testing.assert_array_equal(projections(eye, -jnp.inf * one), 0)


def test_more_than_eight_constraints_are_refused():
    with pytest.raises(CupolaError, match="at most 8 costs can be limited here, not 9"):
        half_spaces.active_sets(9)


class Projected(NamedTuple):
    """Steps before and after the projection in a metric, in units where that metric is I."""

    before: np.ndarray  # [P, n]
    after: np.ndarray  # [P, n]
    rows: np.ndarray  # [P, K, n], length one or zero
    level: np.ndarray  # [P, K], rows y + level <= 0
    mu: np.ndarray  # [P, K], in these units


def projected(problems: Problems, metric: str, dtype=np.float64) -> Projected:
    """Steps of PCPO: the natural gradient's, projected in the metric H (`kl`) or I (`l2`)."""
    v = np.linalg.solve(problems.metric, problems.g[..., None])[..., 0]
    steep = np.sqrt(np.einsum("pn,pn->p", problems.g, v))[:, None]
    start = -RADIUS * v / np.where(steep > 0, steep, 1.0)
    eye = np.broadcast_to(np.eye(v.shape[1]), problems.metric.shape)
    unit = in_the_unit_ball(problems._replace(metric=problems.metric if metric == "kl" else eye))
    columns = solved(unit.root.transpose(0, 2, 1) @ unit.root, problems.rows)
    gram = problems.rows @ columns
    d = np.einsum("pkn,pn->pk", problems.rows, start) + problems.c
    mu = np.asarray(projections(jnp.asarray(gram, dtype), jnp.asarray(d, dtype)))
    assert mu.dtype == dtype
    x = start.astype(dtype) - np.einsum("pnk,pk->pn", columns.astype(dtype), mu)
    length = np.sqrt(np.einsum("pkk->pk", gram))
    return Projected(
        np.einsum("pnm,pm->pn", unit.root, start) / RADIUS,
        np.einsum("pnm,pm->pn", unit.root, x) / RADIUS,
        unit.rows,
        unit.level,
        mu * length / RADIUS,
    )


def nearest(point: np.ndarray, rows: np.ndarray, level: np.ndarray) -> np.ndarray | None:
    """The point of {rows y + level <= 0} nearest to ``point``, if there is one.

    By Lawson and Hanson's reduction of least distance to least squares with signs.
    """
    excess = rows @ point + level
    if np.all(excess <= 0):
        return point
    scale = np.abs(excess).max()
    matrix = np.vstack([-rows.T, excess / scale])
    target = np.append(np.zeros(len(point)), 1.0)
    solution, norm = nnls(matrix, target)
    if norm < 1e-7:
        return None
    residual = matrix @ solution - target
    return point - scale * residual[:-1] / residual[-1]


@pytest.mark.parametrize("metric", ["kl", "l2"])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_projection_is_the_nearest_point_that_meets_the_constraints(x64, case, rows, metric):
    ours = projected(draw(case, rows, 6 if metric == "kl" else 4), metric)
    assert np.all(ours.mu >= 0)
    for p, expected in enumerate(map(nearest, ours.before, ours.rows, ours.level)):
        if expected is None:
            # Only opposite rows leave no point: the best lies half-way between them.
            assert DEGENERATE[p % len(DEGENERATE)] == "opposite rows"
            violation = np.max(ours.rows[p] @ ours.after[p] + ours.level[p])
            between = (ours.level[p, 0] + ours.level[p, -1]) / 2
            assert violation == pytest.approx(between, abs=1e-5)
        else:
            size = 1 + np.linalg.norm(expected)
            np.testing.assert_allclose(ours.after[p], expected, atol=1e-5 * size)


@pytest.mark.parametrize("metric", ["kl", "l2"])
def test_one_constraint_is_projected_by_the_formula_of_pcpo(x64, metric):
    """x = x0 - max(0, (a'x0 + c) / a'L^-1 a) L^-1 a, and it stays in the trust region."""
    problems = draw("roomy", 1, 6)
    ours = projected(problems, metric)
    for p, (h, g, (a,), (c,)) in enumerate(zip(*problems, strict=True)):
        start = -RADIUS * np.linalg.solve(h, g) / np.sqrt(g @ np.linalg.solve(h, g))
        direction = np.linalg.solve(h, a) if metric == "kl" else a
        x = start - max(0.0, (a @ start + c) / (a @ direction)) * direction
        root = np.linalg.cholesky(h).T if metric == "kl" else np.eye(6)
        np.testing.assert_allclose(ours.after[p], root @ x / RADIUS, atol=1e-6)
        if metric == "kl" and c <= 0:
            # Nothing lies nearer to x0 than the feasible origin allows.
            assert np.linalg.norm(ours.after[p]) < 1 + 1e-6


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_projection_in_single_precision_keeps_the_constraints(case, rows):
    problems = draw(case, rows, 6)
    ours = projected(problems, "kl", np.float32)
    assert np.isfinite(ours.after).all()
    length = lengths(problems.metric, problems.rows)
    counted = length.min(1) > 1e-4 * length.max(1)
    if rows > 1 and case == "degenerate":
        counted &= np.arange(COUNT) % len(DEGENERATE) != DEGENERATE.index("opposite rows")
    violation = np.einsum("pkn,pn->pk", ours.rows, ours.after) + ours.level
    size = 1 + np.linalg.norm(ours.after, axis=1)
    assert np.max(violation.max(1)[counted] / size[counted]) < 1e-3


@pytest.mark.parametrize("case", ["roomy", "tight"])
def test_eight_constraints_meet_the_conditions_of_optimality(x64, case):
    """Multipliers that balance the gradient are found by non-negative least squares."""
    problems = draw(case, 8, 10, count=200)
    unit = in_the_unit_ball(problems)
    ours = answer(problems, unit)
    norm = np.linalg.norm(ours.y, axis=1)
    assert norm.max() < 1 + 1e-6
    assert ours.feasible.any() if case == "roomy" else not ours.feasible.all()
    for p in range(len(norm)):
        level = 0.0 if ours.feasible[p] else ours.violation[p].max()
        assert ours.violation[p].max() < level + 1e-6
        columns = [*unit.rows[p, ours.violation[p] > level - 1e-6]]
        weights = np.ones(len(columns))
        if norm[p] > 1 - 1e-6:
            columns, weights = [*columns, ours.y[p]], np.append(weights, 0.0)
        if ours.feasible[p]:
            matrix, target = np.array(columns).T, -unit.g[p]
        else:
            # The multipliers of the rows that share the peak add up to one.
            matrix, target = np.vstack([np.array(columns).T, weights]), np.append(np.zeros(10), 1.0)
        assert nnls(matrix, target)[1] < 1e-5


@pytest.mark.parametrize("case", ["roomy", "tight"])
def test_eight_constraints_are_projected_by_the_conditions_of_optimality(x64, case):
    ours = projected(draw(case, 8, 10, count=200), "kl")
    left = np.einsum("pkn,pn->pk", ours.rows, ours.after) + ours.level
    size = 1 + np.linalg.norm(ours.after, axis=1, keepdims=True)
    assert np.all(ours.mu >= 0)
    assert np.all(left < 1e-6 * size)
    np.testing.assert_allclose(ours.mu * left / size**2, 0, atol=1e-6)


def test_nearly_opposite_rows_are_both_met_in_single_precision():
    gram = jnp.array([[1, -0.99], [-0.99, 1]], jnp.float32)
    left = 1 - gram @ half_spaces.projection(gram, jnp.ones(2, jnp.float32))
    assert np.abs(left).max() < 1e-3
