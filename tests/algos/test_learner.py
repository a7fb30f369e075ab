"""The policy's noise: of a fresh learner, and where it may not go."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cupola import algos, tasks
from cupola.algos import cup
from cupola.algos.assembly import make_algorithm
from cupola.algos.learner import init_learner
from cupola.config import problem_of
from cupola.errors import CupolaError
from cupola.types import Problem


def initial_std(config, act_bound: float) -> np.ndarray:
    problem = Problem(3, 2, ("cost",), (1.0,), (True,), act_bound=act_bound)
    return np.exp(np.asarray(init_learner(jax.random.key(0), config, problem).policy.log_std))


@pytest.mark.parametrize(
    ("unit", "act_bound", "expected"),
    [("bound", 0.4, 0.2), ("bound", 1.0, 0.5), ("bound", math.inf, 0.5), ("action", 0.4, 0.5)],
)
def test_the_initial_noise_is_in_units_of_the_bound_or_of_the_actions(unit, act_bound, expected):
    config = cup.Config(log_std=math.log(0.5), std_unit=unit, hidden=(4,))
    np.testing.assert_allclose(initial_std(config, act_bound), [expected, expected], rtol=1e-6)


def test_a_task_says_where_its_actuators_end():
    assert problem_of(tasks.spec_of("HumanoidSpeed"), {}).act_bound == 0.4
    assert problem_of(tasks.spec_of("HopperSpeed"), {}).act_bound == 1.0


@pytest.mark.parametrize(
    ("unit", "act_bound", "expected"), [("bound", 0.4, 0.08), ("action", 0.4, 0.2)]
)
def test_the_noise_never_falls_below_a_share_of_the_range(unit, act_bound, expected):
    problem = Problem(3, 2, ("cost",), (1.0,), (True,), act_bound=act_bound)
    config = cup.Config(min_std=0.2, std_unit=unit, hidden=(4,))

    def learn(learner, samples, batch, key, cores):
        policy = learner.policy._replace(log_std=jnp.log(jnp.array([0.01, 0.3])))
        return learner._replace(policy=policy), {}

    algorithm = make_algorithm(config, problem, learn)
    learner = algorithm.init(jax.random.key(0))
    after, _ = algorithm.learn(learner, None, None, jax.random.key(1), 1)
    np.testing.assert_allclose(np.exp(after.policy.log_std), [expected, 0.3], rtol=1e-6)
    free = make_algorithm(replace(config, min_std=0.0), problem, learn)
    after, _ = free.learn(learner, None, None, jax.random.key(1), 1)
    np.testing.assert_allclose(np.exp(after.policy.log_std), [0.01, 0.3], rtol=1e-6)


def test_noise_that_begins_below_its_least_value_is_refused():
    with pytest.raises(CupolaError, match=r"min_std must be at most exp\(log_std\), 0\.135"):
        cup.Config(log_std=-2.0)
    assert cup.Config(log_std=-2.0, min_std=0.1).min_std == 0.1


@pytest.mark.parametrize("name", algos.names())
def test_published_settings_have_the_noise_of_their_paper(name):
    presets = algos.load_algorithm(name).PRESETS
    units = {preset: config.std_unit for preset, config in presets.items()}
    assert {unit for preset, unit in units.items() if preset != "steady"} <= {"action"}, units
    least = {preset: config.min_std for preset, config in presets.items()}
    assert {value for preset, value in least.items() if preset != "steady"} <= {0.0}, least
