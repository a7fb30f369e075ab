"""cupola's tasks under Safety-Gymnasium's names and with its six values."""

import gymnasium
import numpy as np
import pytest

import cupola
from cupola import tasks
from cupola.errors import CupolaError
from cupola.gym.register import environment_id


def test_every_alias_is_registered_as_the_task_it_stands_for():
    aliases = tasks.aliases()
    assert aliases["SafetyPointGoal1-v0"] == "PointGoal1"
    for alias, name in aliases.items():
        spec = gymnasium.spec(f"cupola/{alias}")
        assert spec.kwargs == gymnasium.spec(environment_id(name)).kwargs == {"task": name}
        assert spec.max_episode_steps == tasks.spec_of(name).time_limit


@pytest.mark.parametrize(
    "name", ["SafetyPointGoal2-v0", "SafetyHopperVelocity-v1", "cupola/SafetyPointGoal2-v0"]
)
def test_a_step_gives_six_values(name):
    six = cupola.safety_gymnasium_make(name)
    five = gymnasium.make(f"cupola/{name.removeprefix('cupola/')}").unwrapped
    assert six.observation_space == five.observation_space
    total = 0.0
    action = np.array([1.0, 0.0]) if "Point" in name else np.full(3, 0.3)
    for seed in range(20):
        np.testing.assert_array_equal(six.reset(seed=seed)[0], five.reset(seed=seed)[0])
        for _ in range(100):
            obs, reward, cost, *ends, info = six.step(action)
            same, its_reward, *its_ends, its_info = five.step(action)
            np.testing.assert_array_equal(obs, same)
            assert (reward, cost, ends) == (its_reward, its_info["cost"], its_ends)
            parts = {k.removeprefix("cost_"): v for k, v in info.items() if k.startswith("cost_")}
            assert {**parts, "cost": cost} == {**its_info["costs"], "sum": cost, "cost": cost}
            total += cost
            if any(ends):
                break
        if total:
            return
    pytest.fail("nothing cost anything")


def test_a_wrong_name_is_one_sentence():
    with pytest.raises(CupolaError, match="did you mean 'SafetyPointGoal1-v0'"):
        cupola.safety_gymnasium_make("SafetyPointGoal1")


def test_cupola_trains_on_six_values():
    """As it does on Safety-Gymnasium's own environments."""
    from cupola.gym.options import GymOptions
    from cupola.gym.task import factory

    made = factory(
        "env:six", GymOptions(), env=lambda: cupola.safety_gymnasium_make("SafetyPointGoal1-v0")
    )
    assert [cost.name for cost in made.spec.costs] == ["cost"]
    assert made.spec.obs_size == tasks.spec_of("PointGoal1").obs_size
    assert made.spec.time_limit == 1000
