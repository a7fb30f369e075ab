"""Learning tests: CUP on tasks whose constrained optimum is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import cupola
from cupola.policy import Policy
from cupola.tasks.probes import GAMMA, QUADRATICS, RADIUS, REGULATOR

SMALL = {
    "batch_size": 1000,
    "minibatch_size": 100,
    "hidden": (16, 16),
    "checkpoint_every": 1000,
    "threads": 1,
}


def trained(tmp_path, task: str, **fields) -> Policy:
    run = cupola.train("cup", task, out=tmp_path / "run", **(SMALL | fields))
    return cupola.load(run.path)


def test_the_regulators_optimum_is_the_best_of_nearby_gains():
    """The closed form against brute force: no gain of equal effort does better."""
    gain, best = REGULATOR.optimum()
    assert REGULATOR.values(gain) == pytest.approx((best, REGULATOR.limit))
    rng = np.random.default_rng(0)
    for _ in range(300):
        returns, effort = REGULATOR.values(gain + rng.normal(scale=0.05, size=(2, 2)))
        assert effort > REGULATOR.limit or returns <= best + 1e-9


def test_the_regulators_values_are_those_of_a_simulation():
    gain, _ = REGULATOR.optimum()
    returns, effort = simulate(lambda states: -states @ gain.T)
    assert REGULATOR.values(gain) == pytest.approx((returns, effort), rel=1e-6)


def simulate(act) -> tuple[float, float]:
    """Discounted return and effort from starts spread evenly over the circle."""
    angles = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    states = RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    returns = effort = 0.0
    for t in range(100):
        actions = act(states)
        squares = np.sum(actions**2, axis=1)
        rewards = -np.sum(states**2, axis=1) - REGULATOR.effort_weight * squares
        returns += GAMMA**t * rewards.mean()
        effort += GAMMA**t * squares.mean()
        states = states @ REGULATOR.a.T + actions @ REGULATOR.b.T
    return float(returns), float(effort)


@pytest.mark.learning
@pytest.mark.parametrize("task", ["ProbeQuadratic", "ProbeTwoCosts"])
@pytest.mark.parametrize(
    "fields",
    [
        {"dual": "solved", "iterations": 300, "epochs": 3, "learning_rate": 3e-3},
        {"dual": "slow", "iterations": 300, "epochs": 3, "learning_rate": 3e-3, "dual_lr": 1.0},
    ],
    ids=["solved", "slow"],
)
def test_one_step_problems_are_solved(tmp_path, task, fields):
    policy = trained(tmp_path, task, **fields)
    quadratic = QUADRATICS[task]
    action = policy.predict(np.ones(1))
    reward = 10 - np.sum((action - quadratic.target) ** 2)
    _, best = quadratic.optimum()
    costs = quadratic.normals @ action
    np.testing.assert_array_less(costs, quadratic.limits + 0.02)
    assert reward == pytest.approx(best, rel=0.02)


@pytest.mark.learning
def test_the_constrained_regulator_is_solved(tmp_path):
    """Solved prices steer to 97 % of the limit, which alone costs about 3 % of the return."""
    policy = trained(
        tmp_path,
        "ProbeRegulator",
        batch_size=3000,
        num_envs=200,
        minibatch_size=200,
        iterations=300,
        learning_rate=2e-3,
        log_std=-2.0,
        hidden=(32, 32),
    )
    returns, effort = simulate(policy.predict)
    _, best = REGULATOR.optimum()
    assert effort <= 1.01 * REGULATOR.limit
    assert returns == pytest.approx(best, rel=0.05)
