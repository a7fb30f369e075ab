"""The claims: corrected ones never fail, printed ones do, and both are what they say."""

import numpy as np
import pytest

from cupola.theory import bounds, exact, study
from cupola.theory.bounds import Cases
from cupola.theory.cmdp import random_cmdps, random_policies

SIZES = ((2, 2), (4, 3), (8, 4))


@pytest.fixture(scope="module", name="result")
def result_fixture():
    return {
        family: study.run(np.random.default_rng(3), 105, family == "sparse", sizes=SIZES)
        for family in ("dense", "sparse")
    }


@pytest.mark.parametrize("family", ["dense", "sparse"])
def test_no_corrected_claim_is_violated_and_the_identity_holds(result, family):
    assert result[family].identity.max() < 1e-9
    for (claim, version), measured in result[family].claims.items():
        if version != "printed" or "TV-KL" in claim:
            assert not measured.violated.any(), (claim, version)


def test_printed_theorem_1_fails_often_but_not_at_lambda_0(result):
    for family in ("dense", "sparse"):
        positive = result[family].lam > 0
        for p in ("1, inf", "2, 2", "3, 1.5"):
            violated = result[family].claims[f"Theorem 1 ({p})", "printed"].violated
            assert 0.1 < violated[positive].mean() < 0.6
            assert not violated[~positive].any()


def test_the_summary_counts(result):
    rows = study.summary(result["dense"])
    row = next(r for r in rows if (r["claim"], r["version"]) == ("Theorem 1 (2, 2)", "printed"))
    assert row["cases"] == 105
    assert row["violations"] == result["dense"].claims["Theorem 1 (2, 2)", "printed"].violated.sum()
    assert row["violations_lambda_0"] == 0
    assert row["worst_violation"] > 0


def one_case(lam, seed=0, states=3, actions=2):
    rng = np.random.default_rng(seed)
    cmdp = random_cmdps(rng, 1, states, actions, gamma=(0.5, 0.6))
    old, new = (random_policies(rng, 1, states, actions) for _ in range(2))
    phi = exact.values(cmdp, old, cmdp.reward)
    return Cases(cmdp, new, old, np.array([lam]), phi, cmdp.reward)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_theorem_1_is_the_series_that_the_paper_writes(p):
    case = one_case(0.7)
    case = Cases(case.cmdp, case.new, case.old, case.lam, np.ones((1, 3)), case.signal)
    q = {1.0: np.inf, 2.0: 2.0, 3.0: 1.5, np.inf: 1.0}[p]
    gamma, lam = case.cmdp.gamma[0], 0.7
    p_new = exact.state_transitions(case.cmdp, case.new)[0]
    p_old = exact.state_transitions(case.cmdp, case.old)[0]
    delta_new = exact.mean_td_error(case.cmdp, case.new, case.signal, case.phi)[0]
    delta_old = exact.mean_td_error(case.cmdp, case.old, case.signal, case.phi)[0]
    d_new, d_old = case.visits_new[0], case.visits_old[0]
    horizon = (1 - gamma * lam) / (1 - gamma)
    distance = np.linalg.norm(d_new - d_old, ord=p)
    surrogates, allowed = {"printed": 0.0, "corrected": 0.0}, 0.0
    for t in range(200):
        weight = (gamma * lam) ** t * horizon
        new_t, old_t = (np.linalg.matrix_power(x, t) for x in (p_new, p_old))
        surrogates["printed"] += weight * d_old @ old_t @ (delta_new - delta_old)
        surrogates["corrected"] += weight * d_old @ (new_t @ delta_new - old_t @ delta_old)
        allowed += weight * distance * np.linalg.norm(new_t @ delta_new, ord=q)
    for version, surrogate in surrogates.items():
        bound = bounds.theorem_1(case, p, version)
        np.testing.assert_allclose(bound.surrogate, surrogate, rtol=1e-9)
        np.testing.assert_allclose(bound.upper - bound.surrogate, allowed, rtol=1e-9)
        np.testing.assert_allclose(bound.surrogate - bound.lower, allowed, rtol=1e-9)


def test_at_lambda_0_propositions_are_cpos_bound():
    case = one_case(0.0)
    gamma = case.cmdp.gamma[0]
    gain = exact.advantages(case.cmdp, case.old, case.signal)[0]
    mean = np.sum(case.new[0] * gain, axis=-1)
    d = exact.visits(case.cmdp.start, case.p_old, case.cmdp.gamma)[0]
    spread = d @ exact.total_variation(case.old, case.new)[0]
    cpo = (d @ mean) / (1 - gamma) - 2 * gamma * np.abs(mean).max() * spread / (1 - gamma) ** 2
    for version in ("corrected", "products"):
        assert bounds.proposition(case, "lower", version).lower[0] == pytest.approx(cpo)


def test_the_error_of_the_printed_surrogate_is_of_first_order():
    """Equation (3) of docs/theory.md, and its orders: halve the step, halve the error."""
    full = one_case(0.6)
    errors, product_errors = [], []
    for share in (1e-3, 5e-4):
        new = (1 - share) * full.old + share * full.new
        case = Cases(full.cmdp, new, full.old, full.lam, full.phi, full.signal)
        for version, kept in (("corrected", errors), ("products", product_errors)):
            bound = bounds.proposition(case, "lower", version)
            kept.append((bound.truth - bound.surrogate)[0])
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.01)
    assert product_errors[0] / product_errors[1] == pytest.approx(4, rel=0.01)


def test_equal_policies_make_every_bound_zero():
    case = one_case(0.5)
    same = Cases(case.cmdp, case.old, case.old, case.lam, case.phi, case.signal)
    for p in (1.0, 2.0):
        bound = bounds.theorem_1(same, p, "corrected")
        np.testing.assert_allclose([bound.lower, bound.upper, bound.truth], 0, atol=1e-12)
    bound = bounds.proposition(same, "lower", "corrected")
    np.testing.assert_allclose([bound.lower, bound.truth], 0, atol=1e-12)
