from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from cupola.core import gaussian


def test_log_prob_is_scipys(x64):
    rng = np.random.default_rng(0)
    mean, value = rng.normal(size=(2, 5, 3))
    log_std = rng.normal(size=3)
    expected = stats.norm.logpdf(value, mean, np.exp(log_std)).sum(axis=1)
    np.testing.assert_allclose(gaussian.log_prob(mean, log_std, value), expected, rtol=1e-12)


def test_kl_is_the_integral(x64):
    """KL of one-dimensional Gaussians against numerical integration."""
    for m_p, s_p, m_q, s_q in [(0.0, 1.0, 0.5, 2.0), (1.0, 0.3, -0.2, 0.7), (0.0, 1.0, 0.0, 1.0)]:
        p, q = stats.norm(m_p, s_p), stats.norm(m_q, s_q)
        integral, _ = integrate.quad(
            lambda x, p=p, q=q: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)),
            m_p - 12 * s_p,
            m_p + 12 * s_p,
        )
        ours = gaussian.kl(
            jnp.array([m_p]), jnp.log(jnp.array([s_p])), jnp.array([m_q]), jnp.log(jnp.array([s_q]))
        )
        assert float(ours) == pytest.approx(integral, abs=1e-9)


def test_kl_sums_over_actions_and_is_not_symmetric(x64):
    mean_p, mean_q = jnp.array([[0.0, 1.0]]), jnp.array([[0.5, -1.0]])
    log_p, log_q = jnp.array([0.0, -1.0]), jnp.array([0.3, 0.2])
    each = [
        gaussian.kl(mean_p[:, i : i + 1], log_p[i : i + 1], mean_q[:, i : i + 1], log_q[i : i + 1])
        for i in range(2)
    ]
    whole = gaussian.kl(mean_p, log_p, mean_q, log_q)
    assert float(whole[0]) == pytest.approx(float(each[0][0] + each[1][0]), rel=1e-12)
    assert float(whole[0]) != pytest.approx(float(gaussian.kl(mean_q, log_q, mean_p, log_p)[0]))


def test_kl_has_no_slope_at_equality(x64):
    mean, log_std = jnp.array([0.3, -0.1]), jnp.array([-0.5, 0.1])
    grads = jax.grad(lambda m, s: gaussian.kl(m, s, mean, log_std), argnums=(0, 1))(mean, log_std)
    np.testing.assert_allclose(jnp.concatenate(grads), 0, atol=1e-12)


def test_the_density_of_a_cut_sample_is_the_probability_of_all_beyond_the_bound():
    mean, log_std = jnp.array([[0.3, -0.2]]), jnp.array([-0.5, 0.4])
    bound, std = 0.5, np.exp([-0.5, 0.4])
    value, side = jnp.array([[bound, -bound]]), jnp.array([[1, -1]])
    tails = [1 - stats.norm.cdf(bound, 0.3, std[0]), stats.norm.cdf(-bound, -0.2, std[1])]
    found = gaussian.log_prob(mean, log_std, value, side)
    np.testing.assert_allclose(found, np.log(tails).sum(), rtol=1e-5)
    inside = gaussian.log_prob(mean, log_std, value, jnp.zeros_like(side))
    np.testing.assert_allclose(inside, gaussian.log_prob(mean, log_std, value), rtol=1e-6)


def test_the_density_of_cut_samples_has_the_mass_of_one():
    mean, log_std, bound = jnp.array([0.3]), jnp.array([-0.5]), 0.5
    grid = jnp.linspace(-bound, bound, 20001)[:, None]
    middle = jnp.exp(gaussian.log_prob(mean, log_std, grid))
    ends = [
        float(jnp.exp(gaussian.log_prob(mean, log_std, jnp.array([s * bound]), jnp.array([s]))))
        for s in (1, -1)
    ]
    assert float(jnp.trapezoid(middle, grid[:, 0])) + sum(ends) == pytest.approx(1, abs=1e-5)
