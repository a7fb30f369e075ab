"""Learning tests: every algorithm on tasks whose optimum is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import cupola
from cupola.algos import load_algorithm
from cupola.policy import Policy
from cupola.tasks.probes import GAMMA, QUADRATICS, RADIUS, REGULATOR

SMALL = {
    "batch_size": 1000,
    "minibatch_size": 100,
    "hidden": (16, 16),
    "checkpoint_every": 1000,
    "threads": 1,
}


FIRST_ORDER = {"epochs": 3, "iterations": 300, "learning_rate": 2e-3, "nu_max": 3.0}
PID = {"pid_kp": 1.0, "pid_ki": 0.3, "pid_kd": 1.0, "pid_smoothing": 0.5}
# A trust region's steps do not shrink by themselves, so small ones are asked for.
SECOND_ORDER = {"value_iterations": 10, "learning_rate": 3e-3, "delta": 0.003, "log_std": -1.0}
EPISODES = {
    "batch_size": 3000,
    "num_envs": 200,
    "hidden": (32, 32),
    "log_std": -2.0,
    "time_limit": "terminal",
}

QUADRATIC_TASKS = ["ProbeQuadratic", pytest.param("ProbeTwoCosts", marks=pytest.mark.slow)]


def trained(tmp_path, task: str, algo: str = "cup", **fields) -> Policy:
    small = {k: v for k, v in SMALL.items() if k != "minibatch_size" or takes_minibatches(algo)}
    run = cupola.train(algo, task, out=tmp_path / "run", **(small | fields))
    return cupola.load(run.path)


def takes_minibatches(algo: str) -> bool:
    return hasattr(load_algorithm(algo).Config, "minibatch_size")


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


def simulate(act, steps: int = 100) -> tuple[float, float]:
    """Discounted return and effort from starts spread evenly over the circle."""
    angles = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    states = RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    returns = effort = 0.0
    for t in range(steps):
        actions = act(states)
        squares = np.sum(actions**2, axis=1)
        rewards = -np.sum(states**2, axis=1) - REGULATOR.effort_weight * squares
        returns += GAMMA**t * rewards.mean()
        effort += GAMMA**t * squares.mean()
        states = states @ REGULATOR.a.T + actions @ REGULATOR.b.T
    return float(returns), float(effort)


@pytest.mark.parametrize("task", QUADRATIC_TASKS)
@pytest.mark.parametrize(
    "fields",
    [
        # The rule itself: by default it aims below the limit, where less can be had.
        pytest.param(
            {"pid_ki": 0.1, "epochs": 10, "log_std": -1.5, "aim": 1.0},
            id="steady",
        ),
        pytest.param({"preset": "predicted"}, id="predicted", marks=pytest.mark.slow),
        pytest.param({"preset": "paper", "multiplier_lr": 1.0}, id="paper", marks=pytest.mark.slow),
        pytest.param(
            {"preset": "paper", "multiplier": "pid", **PID}, id="pid", marks=pytest.mark.slow
        ),
    ],
)
def test_one_step_problems_are_solved(tmp_path, task, fields):
    pace = {"iterations": 300, "epochs": 3, "learning_rate": 3e-3}
    check_quadratic(trained(tmp_path, task, **(pace | fields)), task, tolerance=0.02)


@pytest.mark.parametrize("task", QUADRATIC_TASKS)
@pytest.mark.parametrize(
    ("algo", "fields"),
    [
        # Prices that jump between extremes: the costs cross their limits in steps that shrink.
        ("focops", FIRST_ORDER | {"multiplier_lr": 30.0}),
        ("ppo_lag", FIRST_ORDER | {"multiplier_lr": 30.0}),
        ("trpo_lag", SECOND_ORDER | {"iterations": 200, "multiplier_lr": 10.0, "nu_max": 3.0}),
        ("cpo", {"iterations": 100, "value_iterations": 20}),
        ("pcpo", {"iterations": 100, "value_iterations": 20}),
        ("p3o", {k: v for k, v in FIRST_ORDER.items() if k != "nu_max"}),
        ("crpo", SECOND_ORDER | {"iterations": 200}),
        ("ppo_pid", FIRST_ORDER | PID),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_baselines_solve_one_step_problems(tmp_path, task, algo, fields):
    check_quadratic(trained(tmp_path, task, algo, **fields), task, tolerance=0.03)


@pytest.mark.parametrize(
    ("algo", "fields"),
    [("ppo", {"epochs": 3, "learning_rate": 3e-3}), ("trpo", {"value_iterations": 10})],
    ids=["ppo", "trpo"],
)
def test_unconstrained_algorithms_find_the_unconstrained_optimum(tmp_path, algo, fields):
    policy = trained(tmp_path, "ProbeQuadratic", algo, iterations=60, **fields)
    target = QUADRATICS["ProbeQuadratic"].target
    assert np.sum((policy.predict(np.ones(1)) - target) ** 2) < 0.03 * 10


def check_quadratic(policy: Policy, task: str, tolerance: float) -> None:
    """The reward is near the optimum's, and no cost above its limit."""
    quadratic = QUADRATICS[task]
    action = policy.predict(np.ones(1))
    _, best = quadratic.optimum()
    np.testing.assert_array_less(quadratic.normals @ action, quadratic.limits + 0.02)
    reward = 10 - np.sum((action - quadratic.target) ** 2)
    assert reward == pytest.approx(best, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "iterations", "tolerance"),
    # Predicted multipliers steer to 97 % of the limit, which alone costs about 3 % of the return.
    [("paper", 1600, 0.02), ("predicted", 800, 0.04)],
)
def test_the_constrained_regulator_is_solved(tmp_path, preset, iterations, tolerance):
    """With settings found by trial; those with the clipped improvement left 3 % and more."""
    policy = trained(
        tmp_path,
        "ProbeRegulator",
        **EPISODES,
        minibatch_size=200,
        iterations=iterations,
        learning_rate=5e-4,
        improvement="focops",
        delta=0.05,
        preset=preset,
        multiplier_lr=0.3,
    )
    returns, effort = simulate(policy.predict)
    _, best = REGULATOR.optimum()
    assert effort <= 1.01 * REGULATOR.limit
    assert returns == pytest.approx(best, rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "fields"),
    [
        ("focops", {"iterations": 500, "multiplier_lr": 3.0, "nu_max": 2.0}),
        ("ppo_lag", {"iterations": 500, "multiplier_lr": 3.0, "nu_max": 2.0}),
        ("trpo_lag", {"iterations": 400, "delta": 0.01, "multiplier_lr": 1.0, "nu_max": 3.0}),
        ("cpo", {"iterations": 350, "delta": 0.003}),
        ("pcpo", {"iterations": 350, "delta": 0.003}),
    ],
    ids=["focops", "ppo_lag", "trpo_lag", "cpo", "pcpo"],
)
def test_baselines_solve_the_constrained_regulator(tmp_path, algo, fields):
    pace = (
        {"minibatch_size": 200, "learning_rate": 1e-3}
        if takes_minibatches(algo)
        else {"value_iterations": 20, "learning_rate": 3e-3}
    )
    policy = trained(tmp_path, "ProbeRegulator", algo, **(EPISODES | pace | fields))
    returns, effort = simulate(policy.predict, steps=15)
    _, best = REGULATOR.optimum()
    assert effort <= 1.02 * REGULATOR.limit
    assert returns == pytest.approx(best, rel=0.03)
