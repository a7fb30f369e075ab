"""The linear programme against brute force, and its duals against the optimality conditions."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from cupola.errors import CupolaError
from cupola.theory import exact, lp, study
from cupola.theory.cmdp import grid_world, make_cmdp, random_cmdps


def deterministic(states, actions):
    for choice in itertools.product(range(actions), repeat=states):
        yield np.eye(actions)[list(choice)]


@pytest.mark.parametrize("costs", [1, 2])
def test_the_optimum_is_the_best_mixture_of_deterministic_policies(costs):
    cmdps, optima = study.constrained(np.random.default_rng(costs), 6, 3, 2, costs)
    for i, optimum in enumerate(optima):
        one = cmdps.case(i)
        corners = [exact.returns(one, policy) for policy in deterministic(3, 2)]
        values = np.array([float(value) for value, _ in corners])
        paid = np.array([cost for _, cost in corners]).T
        mixed = linprog(
            -values,
            A_ub=paid,
            b_ub=one.limits,
            A_eq=np.ones((1, len(values))),
            b_eq=[1],
        )
        assert optimum.value == pytest.approx(-mixed.fun, abs=1e-8)


@pytest.mark.parametrize("costs", [1, 2, 3])
def test_policy_multipliers_and_slackness(costs):
    cmdps, optima = study.constrained(np.random.default_rng(10 + costs), 5, 4, 3, costs)
    for i, optimum in enumerate(optima):
        one = cmdps.case(i)
        value, paid = exact.returns(one, optimum.policy)
        assert value == pytest.approx(optimum.value, abs=1e-8)
        np.testing.assert_allclose(paid, optimum.costs, atol=1e-8)
        assert (paid <= one.limits + 1e-8).all()
        assert (optimum.multipliers >= -1e-12).all()
        np.testing.assert_allclose(optimum.multipliers * (one.limits - paid), 0, atol=1e-8)
        # The dual values are those of reward minus priced costs under the optimal policy, and no
        # action does better.
        signal = one.reward - np.einsum("k,ksat->sat", optimum.multipliers, one.costs)
        np.testing.assert_allclose(
            exact.values(one, optimum.policy, signal), optimum.values, atol=1e-7
        )
        assert exact.advantages(one, optimum.policy, signal).max() < 1e-7
        # A multiplier is what a little more of its limit is worth.
        more = one._replace(limits=one.limits + 1e-5 * np.eye(costs)[0])
        assert (lp.solve(more).value - optimum.value) / 1e-5 <= optimum.multipliers[0] + 1e-4


def test_the_optimum_can_need_a_random_choice():
    optimum = lp.solve(grid_world(limit=0.2))
    assert ((optimum.policy > 0.01) & (optimum.policy < 0.99)).any(axis=1).sum() == 1
    assert optimum.costs[0] == pytest.approx(0.2)


def test_no_costs_at_all():
    one = random_cmdps(np.random.default_rng(0), 1, 3, 2).case(0)
    free = lp.solve(one._replace(costs=one.costs[:0], limits=one.limits[:0]))
    best = max(float(exact.objective(one, p, one.reward)) for p in deterministic(3, 2))
    assert free.value == pytest.approx(best)


def test_infeasible_limits_are_said():
    one = random_cmdps(np.random.default_rng(0), 1, 3, 2).case(0)
    lowest = lp.lowest_cost(one, 0)
    with pytest.raises(CupolaError, match=f"limit 0: the lowest cost return is {lowest:.6g}"):
        lp.solve(one._replace(limits=np.array([0.9 * lowest])))
    # Two costs that exclude each other: one action costs the first, the other the second.
    torn = make_cmdp(
        np.ones((1, 2, 1)), np.zeros((1, 2)), [[[1.0, 0.0]], [[0.0, 1.0]]], [0.5, 0.5], [1.0], 0.5
    )
    with pytest.raises(CupolaError, match="all limits at once"):
        lp.solve(torn)
    with pytest.raises(CupolaError, match="one CMDP at a time"):
        lp.solve(random_cmdps(np.random.default_rng(0), 2, 3, 2))
