"""CUP's two exact steps against a general-purpose optimiser, and exact CUP against the optimum."""

import numpy as np
import pytest
from scipy.optimize import minimize

from cupola.theory import exact, exact_cup, steps, study
from cupola.theory.cmdp import grid_world, random_cmdps, random_policies
from cupola.theory.lp import solve

M, S, A = 5, 3, 3


def softmax(flat):
    logits = flat.reshape(S, A)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module", name="problem")
def problem_fixture():
    rng = np.random.default_rng(0)
    old = random_policies(rng, M, S, A)
    visits = random_policies(rng, M, 1, S)[:, 0]
    gain, rise = rng.normal(size=(2, M, S, A))
    gain, rise = (x - np.sum(old * x, axis=-1, keepdims=True) for x in (gain, rise))
    alpha = rng.uniform(0.2, 0.8, M) * np.sqrt(2) * steps.spread(old, gain, visits)
    return old, visits, gain, rise, alpha


def test_the_improvement_is_the_maximum(problem):
    old, visits, gain, _, alpha = problem
    half = steps.improve(old, gain, visits, alpha)
    for m in range(M):

        def loss(flat, m=m):
            policy = softmax(flat)
            distance = np.sqrt(visits[m] @ exact.kl(old[m], policy).clip(0) + 1e-18)
            return alpha[m] * distance - visits[m] @ np.sum(policy * gain[m], axis=-1)

        found = min(
            minimize(loss, np.log(old[m]).ravel() + 0.1 * noise).fun
            for noise in np.random.default_rng(m).normal(size=(3, S * A))
        )
        mine = loss(np.log(half[m]).ravel())
        assert mine < 0
        assert mine == pytest.approx(found, abs=1e-6)


def test_beyond_the_kink_nothing_moves(problem):
    old, visits, gain, _, _ = problem
    kink = np.sqrt(2) * steps.spread(old, gain, visits)
    np.testing.assert_array_equal(steps.improve(old, gain, visits, 1.001 * kink), old)
    assert np.abs(steps.improve(old, gain, visits, 0.99 * kink) - old).max() > 1e-4


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_projection_is_the_nearest_safe_policy(problem, beta):
    old, visits, gain, rise, alpha = problem
    half = steps.improve(old, gain, visits, alpha)
    betas, slack = np.full(M, beta), np.full(M, 0.02)
    new = steps.project(old, half, rise, visits, betas, slack)
    active = 0
    for m in range(M):

        def spare(flat, m=m):
            policy = softmax(flat)
            root = np.sqrt(visits[m] @ exact.kl(old[m], policy).clip(0) + 1e-18)
            return slack[m] - visits[m] @ np.sum(policy * rise[m], axis=-1) - beta * root

        def distance(flat, m=m):
            return visits[m] @ exact.kl(softmax(flat), half[m])

        mine = np.log(new[m]).ravel()
        assert spare(mine) >= -1e-9
        if spare(np.log(half[m]).ravel()) >= 0:
            np.testing.assert_array_equal(new[m], half[m])
            continue
        active += 1
        assert spare(mine) == pytest.approx(0, abs=1e-8)
        options = {"maxiter": 500, "ftol": 1e-13}
        constraint = {"type": "ineq", "fun": spare}
        tries = [
            minimize(distance, np.log(x).ravel(), constraints=constraint, options=options)
            for x in (old[m], 0.5 * old[m] + 0.5 * half[m])
        ]
        found = min(t.fun for t in tries if spare(t.x) > -1e-7)
        assert distance(mine) == pytest.approx(found, abs=1e-6)
    assert active >= 2


@pytest.mark.parametrize(
    ("states", "actions", "costs", "count"), [(3, 2, 1, 25), (6, 3, 1, 50), (5, 3, 2, 25)]
)
def test_exact_cup_reaches_the_optimum(states, actions, costs, count):
    race = study.race(np.random.default_rng(states), count, states, actions, costs, 150)
    assert np.abs(race.gap[-1]).max() < 0.01
    assert race.violation[-1].max() < 1e-3


def test_exact_cup_solves_the_grid_and_finds_its_price():
    grid = grid_world(limit=0.2)
    optimum, path = solve(grid), exact_cup.run(grid, 150)
    assert path.returns[-1, 0] == pytest.approx(optimum.value, rel=1e-3)
    assert path.costs[-1, 0, 0] <= 0.2 + 1e-4
    assert path.multipliers[-1, 0, 0] == pytest.approx(optimum.multipliers[0], rel=0.02)


def test_an_unconstrained_start_is_left_alone_by_the_projection():
    cmdp = random_cmdps(np.random.default_rng(0), 2, 3, 2)
    half = np.log(random_policies(np.random.default_rng(1), 2, 3, 2))
    rises = np.random.default_rng(2).normal(size=(2, 1, 3, 2))
    policy, nu = exact_cup.project(half, rises, cmdp.start, np.full((2, 1), 100.0))
    np.testing.assert_allclose(policy, half)
    np.testing.assert_array_equal(nu, 0)
