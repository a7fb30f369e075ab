"""Finite CMDPs as tasks: frequencies, exact metrics, and all algorithms against the optimum."""

import numpy as np
import pytest
from scipy.special import ndtri

import cupola
from cupola.errors import CupolaError
from cupola.tasks.tabular import TASKS, TabularTask, choice_probabilities, make, spec_of
from cupola.theory import grid_world, make_cmdp, solve
from cupola.theory.cmdp import random_cmdps

GRID = grid_world()


def biased(obs, noise):
    """A Gaussian policy, different in every state."""
    mean = obs @ np.linspace(-1, 1, 8 * 4).reshape(8, 4)
    return mean + np.array([0.5, 1.0, 0.7, 1.3]) * noise


def test_choices_are_the_largest_component():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(3, 4)), rng.uniform(0.3, 1.5, (3, 4))
    draws = mean + std * rng.normal(size=(200_000, 3, 4))
    counted = np.eye(4)[draws.argmax(axis=-1)].mean(axis=0)
    np.testing.assert_allclose(choice_probabilities(mean, std), counted, atol=0.004)
    two = choice_probabilities(np.array([[0.3, -0.2]]), np.array([[0.6, 0.8]]))
    assert two[0, 0] == pytest.approx(0.6914624612740131)  # Phi(0.5 / 1)


def test_sampled_returns_are_the_exact_ones():
    """Discounted sums over many episodes, against linear algebra."""
    task = make("TabularGrid", 2000, ("hazards",), 1)
    obs, rng = task.reset(0), np.random.default_rng(1)
    totals, costs = np.zeros(2000), np.zeros(2000)
    running, gamma = np.ones(2000, bool), 0.9
    for t in range(60):
        step = task.step(biased(obs, rng.normal(size=(2000, 4))))
        totals += running * gamma**t * step.reward
        costs += running * gamma**t * step.costs[:, 0]
        running &= ~step.terminated
        obs = step.obs
    known = task.extra_metrics(
        biased, gamma, (5.0,)
    )  # what is cut after 50 steps is within the noise
    error = 4 * totals.std() / 2000**0.5
    assert known["exact_return"] == pytest.approx(totals.mean(), abs=error)
    error = 4 * costs.std() / 2000**0.5
    assert known["exact_cost/hazards"] == pytest.approx(costs.mean(), abs=error)


def test_the_gap_is_that_to_the_linear_programme():
    task = make("TabularGrid", 2, ("hazards",), 1)
    optimum = solve(GRID)
    known = task.extra_metrics(biased, 0.9, (0.2,))
    assert known["optimum"] == pytest.approx(optimum.value)
    gap = (optimum.value - known["exact_return"]) / optimum.value
    assert known["optimum_gap"] == pytest.approx(gap)
    # The optimum's own choices, as means that the noise can hardly overturn but where it must.
    wanted = optimum.policy
    rows = np.log(wanted.clip(1e-9))

    def best(obs, noise):
        return obs @ rows + 1e-3 * noise

    random_state = int(np.argmax((wanted > 0.01).sum(axis=1)))
    share = wanted[random_state].max()
    order = np.argsort(wanted[random_state])
    rows[random_state, order[-1]] = ndtri(share) * 2**0.5 * 1e-3
    rows[random_state, order[-2]] = 0.0
    rows[random_state, order[:-2]] = -1.0
    assert task.extra_metrics(best, 0.9, (0.2,))["optimum_gap"] == pytest.approx(0, abs=1e-5)


def test_an_infeasible_limit_is_said():
    chain = make("TabularChain", 2, ("effort",), 1)
    cmdp = make_cmdp(np.ones((1, 2, 1)), np.zeros((1, 2)), np.ones((1, 1, 2)), [1.0], [1.0], 0.5)
    task = TabularTask(spec_of("Costly", cmdp, ["price"]), cmdp, 2, ("price",))
    with pytest.raises(CupolaError, match="lowest cost return is 2"):
        task.extra_metrics(lambda obs, noise: noise, 0.5, (1.0,))
    assert chain.extra_metrics(lambda obs, noise: noise, 0.9, (1.0,))["optimum"] > 0


def test_any_cmdp_is_a_task():
    cmdp = random_cmdps(np.random.default_rng(0), 1, 5, 3, costs=2).case(0)
    spec = spec_of("Mine", cmdp, ["first", "second"], time_limit=7)
    task = TabularTask(spec, cmdp, 3, ("second",))
    task.reset(0)
    step = task.step(np.eye(3))
    state = step.final_obs.argmax(axis=1)
    assert step.costs.shape == (3, 1)
    assert set(state) <= set(range(5))
    assert (spec.obs_size, spec.act_size, spec.time_limit) == (5, 3, 7)
    assert [cost.name for cost in spec.costs] == ["first", "second"]


SHARED = {
    "batch_size": 1000,
    "hidden": (16,),
    "normalise_obs": False,
    "learning_rate": 3e-3,
    "iterations": 60,
    "gamma": 0.9,
    "checkpoint_every": 100,
    "threads": 1,
}
# What CPO predicts on the samples that it is fitted to is too good: small nets, large batches.
CAREFUL = {"delta": 0.005, "batch_size": 4000, "num_envs": 40, "hidden": (8,)}
OWN = {
    "cup": {"minibatch_size": 100, "batch_size": 2000},
    "focops": {"minibatch_size": 100, "multiplier_lr": 0.1, "nu_init": 0.5},
    "ppo_lag": {"minibatch_size": 100, "multiplier_lr": 0.1, "nu_max": 10.0},
    "trpo_lag": {"delta": 0.02, "multiplier_lr": 0.5, "nu_max": 10.0},
    "cpo": CAREFUL,
    "pcpo": CAREFUL,
}


@pytest.mark.slow
@pytest.mark.parametrize("algo", OWN)
def test_every_constrained_algorithm_comes_within_5_percent_of_the_optimum(algo, tmp_path):
    run = cupola.train(algo, "TabularGrid", out=tmp_path / "run", **(SHARED | OWN[algo]))
    last = run.metrics[-10:]
    gap = np.mean([line["optimum_gap"] for line in last])
    cost = np.mean([line["exact_cost/hazards"] for line in last])
    assert abs(gap) < 0.05
    assert cost < 1.05 * TASKS["TabularGrid"].costs[0].limit
    # Updates do what they were predicted to do, on the whole.
    later = run.metrics[5:]
    predicted = np.array([line["return_change_predicted"] for line in later])
    measured = np.array([line["return_change_measured"] for line in later])
    assert np.corrcoef(predicted, measured)[0, 1] > 0
