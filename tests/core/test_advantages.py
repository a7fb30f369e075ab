from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupola.core.advantages import gae, horizon_factor, scale, scale_level


def by_definition(signals, values, next_values, terminated, truncated, gamma, lam, time_limit):
    """The double sum of the definition, written independently: python loops, float64."""
    length = len(signals)
    advantages = np.zeros(length)
    for t in range(length):
        weight = 1.0
        for u in range(t, length):
            cut = terminated[u] or (truncated[u] and time_limit == "terminal")
            future = 0.0 if cut else next_values[u]
            advantages[t] += weight * (signals[u] + gamma * future - values[u])
            if terminated[u] or truncated[u]:
                break
            weight *= gamma * lam
    return advantages


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    length=st.sampled_from([1, 4, 12]),
    gamma=st.floats(0, 0.999),
    lam=st.floats(0, 1),
    time_limit=st.sampled_from(["bootstrap", "terminal"]),
)
def test_gae_is_the_sum_of_the_definition(seed, length, gamma, lam, time_limit):
    rng = np.random.default_rng(seed)
    signals, values, next_values = rng.normal(size=(3, length, 2, 3))
    terminated = rng.random((length, 2)) < 0.2
    truncated = (rng.random((length, 2)) < 0.2) & ~terminated
    ours = gae(
        jnp.asarray(signals),
        jnp.asarray(values),
        jnp.asarray(next_values),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        gamma=gamma,
        lam=lam,
        time_limit=time_limit,
    )
    for n in range(2):
        for k in range(3):
            expected = by_definition(
                signals[:, n, k],
                values[:, n, k],
                next_values[:, n, k],
                terminated[:, n],
                truncated[:, n],
                gamma,
                lam,
                time_limit,
            )
            np.testing.assert_allclose(ours[:, n, k], expected, rtol=1e-4, atol=1e-4)


def test_gae_by_hand():
    """gamma 0.5, lam 0.5; two steps, the second one terminates."""
    advantages = gae(
        jnp.array([[1.0], [2.0]]),
        jnp.array([[0.5], [1.0]]),
        jnp.array([[1.0], [7.0]]),
        jnp.array([[False], [True]]),
        jnp.array([[False], [False]]),
        gamma=0.5,
        lam=0.5,
    )
    # delta_1 = 2 - 1 = 1; delta_0 = 1 + 0.5 * 1 - 0.5 = 1; A_0 = 1 + 0.25 * 1
    np.testing.assert_allclose(advantages[:, 0], [1.25, 1.0])


@pytest.mark.parametrize(("time_limit", "expected"), [("bootstrap", 4.5), ("terminal", 1.0)])
def test_a_time_limit_cuts_the_bootstrap_only_on_request(time_limit, expected):
    advantage = gae(
        jnp.array([[2.0]]),
        jnp.array([[1.0]]),
        jnp.array([[7.0]]),
        jnp.array([[False]]),
        jnp.array([[True]]),
        gamma=0.5,
        lam=0.9,
        time_limit=time_limit,
    )
    assert float(advantage[0, 0]) == expected


def test_horizon_factor_of_the_paper():
    gamma, lam = 0.99, 0.95
    gamma_tilde = gamma * (1 - lam) / (1 - gamma * lam)
    assert horizon_factor(gamma, lam) == pytest.approx(1 / (1 - gamma_tilde), rel=1e-12)
    assert horizon_factor(gamma, lam) == pytest.approx(5.95, abs=1e-12)


def test_scaling():
    advantages = jnp.array([[1.0, 10.0], [3.0, 30.0]])
    np.testing.assert_allclose(scale(advantages, "none"), advantages)
    np.testing.assert_allclose(scale(advantages, "centre"), [[-1, -10], [1, 10]])
    np.testing.assert_allclose(scale(advantages, "standardise"), [[-1, -1], [1, 1]])
    assert np.all(scale(jnp.zeros((4, 2)), "standardise") == 0)


@pytest.mark.parametrize("scaling", ["standardise", "centre", "none"])
def test_a_level_is_reached_by_scaled_advantages_where_raw_ones_reach_it(scaling):
    """mean rho A + level <= 0 says the same in both units, for weights rho of mean one."""
    rng = np.random.default_rng(0)
    raw, rho = rng.normal(2.0, 3.0, size=(50, 2)), rng.uniform(0.5, 1.5, size=50)
    rho /= rho.mean()
    level = -(rho @ raw) / 50  # exactly reached
    scaled = np.asarray(scale(jnp.asarray(raw), scaling))
    found = scale_level(jnp.asarray(level), jnp.asarray(raw), scaling)
    np.testing.assert_allclose(rho @ scaled / 50 + found, 0.0, atol=1e-5)
    assert np.all(np.isneginf(scale_level(jnp.full(2, -jnp.inf), jnp.asarray(raw), scaling)))
