"""Fisher products, conjugate gradients and the line search against dense algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cupola import nets
from cupola.core.divergences import kl_from
from cupola.core.trust_region import (
    Flat,
    conjugate_gradients,
    fisher_product,
    line_search,
    natural_gradient,
)


def make_policy() -> nets.Policy:
    policy = nets.init_policy(jax.random.key(0), 3, 2, (4, 3), -0.5, 1.0)
    return policy._replace(log_std=jnp.array([-0.7, 0.2]))


def divergence(p: nets.Policy, q: nets.Policy, obs: jax.Array) -> jax.Array:
    """Mean KL(p || q), written through the variances."""
    mean_p, log_p = nets.apply_policy(p, obs)
    mean_q, log_q = nets.apply_policy(q, obs)
    var_p, var_q = jnp.exp(2 * log_p), jnp.exp(2 * log_q)
    terms = jnp.log(var_q / var_p) + var_p / var_q + (mean_p - mean_q) ** 2 / var_q - 1
    return jnp.mean(jnp.sum(terms, axis=1)) / 2


@pytest.mark.parametrize("order", ["old_new", "new_old"])
def test_fisher_products_are_those_of_the_hessian_of_the_divergence(x64, order):
    policy, obs = make_policy(), jax.random.normal(jax.random.key(1), (20, 3))
    flat = Flat.of(policy)

    def kl(theta):
        new = flat.policy(theta)
        return divergence(*((policy, new) if order == "old_new" else (new, policy)), obs)

    size = len(flat.theta)
    expected = jax.jit(jax.hessian(kl))(flat.theta) + 0.01 * np.eye(size)
    columns = jax.jit(lambda eye: jax.vmap(fisher_product(policy, obs, damping=0.01))(eye))
    np.testing.assert_allclose(columns(jnp.eye(size)), expected, atol=1e-10)


def spd(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random symmetric positive definite matrix and a right-hand side."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size), rng.normal(size=size)


@pytest.mark.parametrize("seed", range(3))
def test_conjugate_gradients_are_exact_after_as_many_iterations_as_unknowns(x64, seed):
    matrix, target = spd(12, seed)
    x = conjugate_gradients(lambda v: matrix @ v, jnp.asarray(target), 12, tolerance=0.0)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, target), rtol=1e-6, atol=1e-8)


def iterates(matrix: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """The method as in a textbook: the best point of each Krylov space by least squares."""
    basis, points = [target], [np.zeros_like(target)]
    for _ in range(len(target)):
        space, _ = np.linalg.qr(np.array(basis).T)
        inner = np.linalg.solve(space.T @ matrix @ space, space.T @ target)
        points.append(space @ inner)
        basis.append(matrix @ space[:, -1])
    return points


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-10])
def test_conjugate_gradients_stop_at_the_stated_residual(x64, tolerance):
    matrix, target = spd(30, 0)
    matrix += np.eye(30)
    points = iterates(matrix, target)
    squares = [np.sum((target - matrix @ x) ** 2) / (target @ target) for x in points]
    enough = next(k for k, square in enumerate(squares) if square <= tolerance)
    assert 0 < enough < 30
    x = conjugate_gradients(lambda v: matrix @ v, jnp.asarray(target), 40, tolerance)
    np.testing.assert_allclose(x, points[enough], rtol=1e-6, atol=1e-8)


def test_conjugate_gradients_of_zero_are_zero():
    matrix, _ = spd(5, 0)
    x = conjugate_gradients(lambda v: matrix @ v, jnp.zeros(5), 10)
    np.testing.assert_array_equal(x, 0)


@pytest.mark.parametrize("iterations", [3, 30])
def test_natural_gradients_end_on_the_trust_region(x64, iterations):
    matrix, gradient = spd(20, 1)
    x = natural_gradient(lambda v: matrix @ v, jnp.asarray(gradient), iterations, delta=0.03)
    assert float(x @ matrix @ x) / 2 == pytest.approx(0.03, rel=1e-10)
    if iterations == 30:
        y = np.linalg.solve(matrix, gradient)
        expected = -np.sqrt(0.06 / (gradient @ y)) * y
        np.testing.assert_allclose(x, expected, atol=1e-4 * np.linalg.norm(expected))


def test_without_a_gradient_there_is_no_step():
    matrix, _ = spd(5, 0)
    x = natural_gradient(lambda v: matrix @ v, jnp.zeros(5), 10, delta=0.01)
    np.testing.assert_array_equal(x, 0)


@pytest.mark.parametrize(
    ("reach", "tries"),
    [(1.5, 0), (1.0, 0), (0.9, 1), (0.6, 3), (0.135, 9), (0.134, 10), (0.0, 10)],
)
def test_the_longest_acceptable_length_is_taken(x64, reach, tries):
    """0.8^3 = 0.512, 0.8^9 = 0.1342; ten lengths, then no step at all."""
    theta, step = jnp.array([1.0, -2.0]), jnp.array([3.0, 4.0])

    def acceptable(new):
        far = jnp.linalg.norm(new - theta) / 5
        return far <= reach + 1e-12, 7 * far

    found = line_search(theta, step, acceptable, shrink=0.8, tries=10)
    length = 0.8**tries if tries < 10 else 0.0
    np.testing.assert_allclose(found.theta, theta + length * step, rtol=1e-12)
    assert float(found.kl) == pytest.approx(7 * length, rel=1e-12)
    assert int(found.tries) == tries


def test_a_length_that_is_acceptable_again_after_a_refused_one_is_found():
    """Only lengths in (0.5, 0.7) or below 0.2 will do: 0.64 comes first."""

    def acceptable(new):
        far = new[0]
        return ((far > 0.5) & (far < 0.7)) | (far < 0.2), far

    found = line_search(jnp.zeros(1), jnp.ones(1), acceptable, shrink=0.8, tries=10)
    np.testing.assert_allclose(found.theta, 0.64, rtol=1e-6)


def test_a_step_that_is_not_finite_leaves_the_parameters_where_they_are():
    theta = jnp.array([0.1, -0.3])
    step = jnp.array([jnp.inf, jnp.nan])
    found = line_search(theta, step, lambda new: (jnp.sum(new) <= 1, 0.0), 0.8, 10)
    np.testing.assert_array_equal(found.theta, theta)


def test_the_divergence_is_measured_from_the_policy_that_sampled(x64):
    policy, obs = make_policy(), jax.random.normal(jax.random.key(1), (20, 3))
    flat = Flat.of(policy)
    mean, _ = nets.apply_policy(policy, obs)
    kl = kl_from(obs, mean, policy.log_std)
    new = flat.policy(flat.theta + 0.1)
    assert float(kl(policy)) == 0
    assert float(kl(new)) == pytest.approx(float(divergence(policy, new, obs)), rel=1e-10)
