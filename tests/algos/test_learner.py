"""A fresh learner: the policy's initial noise."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from cupola import algos, tasks
from cupola.algos import cup
from cupola.algos.learner import init_learner
from cupola.config import problem_of
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


@pytest.mark.parametrize("name", algos.names())
def test_published_settings_have_the_noise_of_their_paper(name):
    presets = algos.load_algorithm(name).PRESETS
    units = {preset: config.std_unit for preset, config in presets.items()}
    assert {unit for preset, unit in units.items() if preset != "steady"} <= {"action"}, units
