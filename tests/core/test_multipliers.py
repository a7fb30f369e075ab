"""Rules of the Lagrange multipliers against their formulas, written out in Python."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupola.core import multipliers

LIMITS = jnp.array([10.0, 20.0])


def run(rule, costs, nu=(0.0, 0.0)):
    """nu [T, K] after each row of costs [T, K], and the memory at the end."""
    nu = jnp.asarray(nu)
    state, found = rule.init(nu), []
    for row in np.asarray(costs, float):
        nu, state = rule.update(nu, state, jnp.asarray(row), LIMITS)
        found.append(np.asarray(nu))
    return np.array(found), state


@settings(max_examples=50, deadline=None)
@given(
    nu=st.floats(0, 2),
    cost=st.floats(-100, 200),
    limit=st.floats(0, 100),
    rate=st.floats(1e-3, 0.1),
)
def test_integral_is_the_clipped_step(nu, cost, limit, rate):
    rule = multipliers.integral(optax.sgd(rate), nu_max=2.0)
    before = jnp.array([nu, nu])
    after, _ = rule.update(
        before, rule.init(before), jnp.array([cost, jnp.nan]), jnp.array([limit, limit])
    )
    assert float(after[0]) == pytest.approx(min(max(nu + rate * (cost - limit), 0), 2), abs=1e-4)
    assert float(after[1]) == pytest.approx(nu, abs=1e-6)  # unknown cost: left alone


def test_integral_with_adam_moves_by_its_rate_at_first():
    rule = multipliers.integral(optax.adam(0.035), nu_max=2.0)
    nu, _ = run(rule, [[40.0, 60.0]])
    np.testing.assert_allclose(nu, [[0.035, 0.035]], rtol=1e-4)


def closed_pid(costs, limit, kp, ki, kd, smoothing, delay, nu_max, start=0.0):
    """nu of one cost over time: averages and sums as closed sums over all that was measured."""
    found, total = [], start
    known = [cost for cost in costs if not math.isnan(cost)]
    seen = 0
    for cost in costs:
        if math.isnan(cost):
            found.append(found[-1] if found else start)
            continue
        seen += 1

        def smooth(values):
            """a^(n-1) x_1 + (1 - a) sum_j a^(n-j) x_j over j = 2..n."""
            n = len(values)
            later = (smoothing ** (n - j) * values[j - 1] for j in range(2, n + 1))
            return smoothing ** (n - 1) * values[0] + (1 - smoothing) * sum(later)

        now = known[:seen]
        before = now[: max(1, seen - delay)]
        total = min(max(total + ki * (cost - limit), 0.0), nu_max)
        rise = max(0.0, smooth(now) - smooth(before))
        proportional = smooth([value - limit for value in now])
        found.append(min(max(kp * proportional + total + kd * rise, 0.0), nu_max))
    return found


@settings(max_examples=25, deadline=None)
@given(
    costs=st.lists(st.one_of(st.floats(0, 60), st.just(math.nan)), min_size=1, max_size=25),
    gains=st.tuples(*[st.floats(0, 0.5)] * 3),
    smoothing=st.floats(0, 0.99),
    delay=st.integers(1, 5),
    nu_max=st.floats(0.1, 20),
)
def test_pid_is_its_closed_formula(costs, gains, smoothing, delay, nu_max):
    rule = multipliers.pid(*gains, smoothing, delay, nu_max)
    start = min(0.3, nu_max)
    both = np.stack([costs, costs], axis=1)
    nu, _ = run(rule, both, nu=(start, start))
    for i, limit in enumerate(np.asarray(LIMITS)):
        expected = closed_pid(costs, float(limit), *gains, smoothing, delay, nu_max, start)
        np.testing.assert_allclose(nu[:, i], expected, rtol=2e-4, atol=2e-4)


def test_a_falling_cost_has_no_derivative_and_the_integral_does_not_wind_up():
    only_d = multipliers.pid(0.0, 0.0, 1.0, 0.0, 1, nu_max=100.0)
    nu, _ = run(only_d, [[15.0, 0.0], [25.0, 0.0], [5.0, 0.0]])
    np.testing.assert_allclose(nu[:, 0], [0.0, 10.0, 0.0])
    only_i = multipliers.pid(0.0, 1.0, 0.0, 0.0, 1, nu_max=3.0)
    nu, _ = run(only_i, [[100.0, 0.0]] * 50 + [[9.0, 0.0]] * 2)
    np.testing.assert_allclose(nu[-3:, 0], [3.0, 2.0, 1.0])  # falls at once


def test_the_integral_does_not_rise_while_its_step_is_cut_short():
    rule = multipliers.pid(0.0, 0.1, 0.0, 0.0, 1, nu_max=100.0)
    nu = jnp.array([1.0, 1.0])
    before = rule.init(nu)
    _, after = rule.update(nu, before, jnp.array([30.0, 10.0]), LIMITS)  # limits 10 and 20
    free, cut = (rule.settle(before, after, jnp.array(flag)) for flag in (False, True))
    np.testing.assert_allclose(free.integral, [3.0, 0.0])
    np.testing.assert_allclose(cut.integral, [1.0, 0.0])  # it may fall
    np.testing.assert_array_equal(cut.violation, after.violation)


def test_the_derivative_looks_back_by_its_delay():
    rule = multipliers.pid(0.0, 0.0, 1.0, 0.0, 3, nu_max=100.0)
    nu, _ = run(rule, [[float(cost), 0.0] for cost in (1, 2, 4, 8, 16)])
    np.testing.assert_allclose(nu[:, 0], [0, 1, 3, 7, 14])


def test_predicted_margins_integrate_what_is_measured_and_never_lift_a_limit():
    rule = multipliers.predicted()
    nu = jnp.array([0.3, 0.4])
    same, margin = rule.update(nu, jnp.array([1.0, 0.1]), jnp.array([14.0, 15.0]), LIMITS)
    np.testing.assert_array_equal(same, nu)
    np.testing.assert_allclose(margin, [1 + 0.05 * (14 - 9.7), 0.0], rtol=1e-6)
    _, unknown = rule.update(nu, jnp.array([1.0, 0.1]), jnp.array([math.nan, 1e9]), LIMITS)
    np.testing.assert_allclose(unknown, [1.0, 10.0])  # at most half the limit
    moved = multipliers.step_to_prediction(nu, jnp.array([2.0, -9.0]), 0.7)
    np.testing.assert_allclose(moved, [0.7, 0.0])
