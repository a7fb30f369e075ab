"""Exact quantities against truncated series and against their own definitions."""

import numpy as np
import pytest

from cupola.theory import exact
from cupola.theory.cmdp import random_cmdps, random_policies

RNG = np.random.default_rng(1)
M, S, A = 6, 4, 3
CMDP = random_cmdps(RNG, M, S, A, costs=2, gamma=(0.3, 0.8))
POLICY = random_policies(RNG, M, S, A)
LAM = np.array([0.0, 0.3, 0.5, 0.8, 0.95, 1.0])
PHI = RNG.normal(size=(M, S))
TERMS = 400


@pytest.fixture(name="chain")
def chain_fixture():
    """P_pi by loops."""
    p = np.zeros((M, S, S))
    for m in range(M):
        for s in range(S):
            for a in range(A):
                p[m, s] += POLICY[m, s, a] * CMDP.transitions[m, s, a]
    return p


def power(p, t):
    return np.linalg.matrix_power(p, t)


def test_transitions_values_and_visits_are_the_series(chain):
    np.testing.assert_allclose(exact.state_transitions(CMDP, POLICY), chain, atol=1e-15)
    mean = np.einsum("msa,msat,msat->ms", POLICY, CMDP.transitions, CMDP.reward)
    for m in range(M):
        g = CMDP.gamma[m]
        series = sum(g**t * power(chain[m], t) for t in range(TERMS))
        value = exact.values(CMDP, POLICY, CMDP.reward)[m]
        np.testing.assert_allclose(value, series @ mean[m], atol=1e-12)
        occupied = exact.visits(CMDP.start, chain, CMDP.gamma)[m]
        np.testing.assert_allclose(occupied, (1 - g) * CMDP.start[m] @ series, atol=1e-13)
        assert occupied.sum() == pytest.approx(1)


def test_lambda_versions_are_their_definitions_and_the_closed_form(chain):
    jump = exact.lambda_transitions(chain, CMDP.gamma, LAM)
    d = exact.lambda_visits(CMDP.start, chain, CMDP.gamma, LAM)
    plain = exact.visits(CMDP.start, chain, CMDP.gamma)
    for m in range(M):
        g, lam = CMDP.gamma[m], LAM[m]
        series = sum((g * lam) ** t * power(chain[m], t + 1) for t in range(TERMS))
        np.testing.assert_allclose(jump[m], (1 - g * lam) * series, atol=1e-12)
        tilde = g * (1 - lam) / (1 - g * lam)
        walk = sum(tilde**t * power(jump[m], t) for t in range(TERMS))
        np.testing.assert_allclose(d[m], (1 - tilde) * CMDP.start[m] @ walk, atol=1e-12)
        mixed = ((1 - lam) * plain[m] + lam * (1 - g) * CMDP.start[m]) / (1 - g * lam)
        np.testing.assert_allclose(d[m], mixed, atol=1e-12)  # (1) of docs/theory.md


def test_advantages_have_mean_zero_and_return_the_difference_of_returns():
    gain = exact.advantages(CMDP, POLICY, CMDP.reward)
    np.testing.assert_allclose(np.sum(POLICY * gain, axis=-1), 0, atol=1e-12)
    other = random_policies(np.random.default_rng(5), M, S, A)
    d = exact.visits(CMDP.start, exact.state_transitions(CMDP, other), CMDP.gamma)
    promised = np.einsum("ms,msa,msa->m", d, other, gain) / (1 - CMDP.gamma)
    measured = exact.objective(CMDP, other, CMDP.reward) - exact.objective(
        CMDP, POLICY, CMDP.reward
    )
    np.testing.assert_allclose(promised, measured, atol=1e-11)  # Kakade and Langford


def test_expected_gae_is_the_series_of_td_errors_and_the_advantage_for_v(chain):
    deltas = exact.expected(CMDP, exact.td_errors(CMDP, CMDP.reward, PHI))
    one_step = np.sum(POLICY * deltas, axis=-1)
    np.testing.assert_allclose(exact.mean_td_error(CMDP, POLICY, CMDP.reward, PHI), one_step)
    gae = exact.expected_gae(CMDP, POLICY, CMDP.reward, PHI, LAM)
    for m in range(M):
        rate = CMDP.gamma[m] * LAM[m]
        later = sum(rate ** (t + 1) * power(chain[m], t) @ one_step[m] for t in range(TERMS))
        np.testing.assert_allclose(gae[m], deltas[m] + CMDP.transitions[m] @ later, atol=1e-11)
    value = exact.values(CMDP, POLICY, CMDP.reward)
    np.testing.assert_allclose(
        exact.expected_gae(CMDP, POLICY, CMDP.reward, value, LAM),
        exact.advantages(CMDP, POLICY, CMDP.reward),
        atol=1e-11,
    )


def test_costs_and_a_single_cmdp_come_out_the_same():
    value, costs = exact.returns(CMDP, POLICY)
    alone, own = exact.returns(CMDP.case(2), POLICY[2])
    assert alone == pytest.approx(value[2])
    np.testing.assert_allclose(own, costs[2])
    assert costs.shape == (M, 2)


def test_divergences():
    first, second = np.array([[0.5, 0.5]]), np.array([[0.9, 0.1]])
    assert exact.total_variation(first, second) == pytest.approx(0.4)
    expected = 0.5 * np.log(0.5 / 0.9) + 0.5 * np.log(0.5 / 0.1)
    assert exact.kl(first, second) == pytest.approx(expected)
    assert exact.kl(first, np.array([[1.0, 0.0]])) == np.inf
    assert exact.kl(np.array([[1.0, 0.0]]), first) == pytest.approx(np.log(2))
