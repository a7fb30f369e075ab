"""A task is the same, however it was named or given."""

from __future__ import annotations

import sys
from functools import partial

import gymnasium
import numpy as np
import pytest

from cupola.config import RunConfig, resolve
from cupola.errors import CupolaError
from cupola.gym.options import GymOptions
from cupola.task_source import find_task, task_of
from cupola.tasks import make_task, spec_of
from cupola.tasks.base import TaskFactory


def cart_pole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def lean(next_obs: np.ndarray) -> float:
    return float(abs(next_obs[2]) > 0.05)


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """This module's functions, importable as a user's are."""
    monkeypatch.setitem(sys.modules, "a_users_module", sys.modules[__name__])
    return "a_users_module"


def first_steps(factory: TaskFactory, costs: tuple[str, ...]) -> list[np.ndarray]:
    """Observations, rewards and costs of a few steps of two environments."""
    task = factory.make(2, costs)
    found = [task.reset(5)]
    for i in range(12):
        numbers = np.cos(np.arange(2 * task.spec.act_size) + i).reshape(2, -1)
        step = task.step(numbers)
        found += [step.obs, step.reward, step.costs]
    task.close()
    return found


def assert_same_task(one: TaskFactory, other: TaskFactory, costs: tuple[str, ...]) -> None:
    for a, b in zip(first_steps(one, costs), first_steps(other, costs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_name_and_an_alias_are_the_registered_task():
    name, alias = find_task("PointGoal1"), find_task("SafetyPointGoal1-v0")
    assert name.spec == alias.spec == spec_of("PointGoal1")
    costs = tuple(cost.name for cost in name.spec.costs)
    registered = TaskFactory(name.spec, partial(make_task, "PointGoal1"))
    for other in (name, alias, find_task("PointGoal1", threads=2)):
        assert_same_task(registered, other, costs)


def test_a_factory_is_itself():
    factory = find_task("TabularGrid")
    assert find_task(factory) is factory


def test_an_id_a_named_function_and_a_function_make_the_same_environment(by_name):
    limits = {"lean": 5.0}
    registered = find_task("gym:CartPole-v1", cost=lean, limits=limits)
    named = find_task(
        f"env:{by_name}:cart_pole", gym=GymOptions(cost=f"{by_name}:lean"), limits=limits
    )
    given = find_task(None, env=cart_pole, cost=lean, limits=limits)
    for other in (named, given):
        assert other.spec._replace(name="", actions=None) == registered.spec._replace(
            name="", actions=None
        )
        assert_same_task(registered, other, ("lean",))
    assert named.spec.name == f"env:{by_name}:cart_pole"
    assert given.spec.name.startswith("env:")
    assert sum(costs.sum() for costs in first_steps(given, ("lean",))[3::3]) > 0


def test_a_recorded_run_finds_its_task_again(by_name):
    gym = {"cost": f"{by_name}:lean", "max_episode_steps": 7}
    named = find_task("gym:CartPole-v1", gym=GymOptions(**gym), limits=5.0)
    config = resolve("ppo", named.spec, "paper", 5.0, gym)
    again = task_of(RunConfig.from_json(config.to_json()), threads=1, trust=True)
    assert again.spec.time_limit == 7
    assert_same_task(named, again, ("cost",))
    other = find_task("TabularGrid")
    assert task_of(config, task=other, threads=1) is other


def test_a_function_without_a_name_is_given_again():
    env = lambda: cart_pole()  # noqa: E731
    factory = find_task(None, env=env, cost=lean, limits=5.0)
    config = resolve("ppo", factory.spec, "paper", 5.0, {"cost": "somewhere:lean"})
    again = task_of(config, env=env, cost=lean, threads=1)
    assert again.spec.name == factory.spec.name
    assert_same_task(factory, again, ("cost",))
    with pytest.raises(CupolaError, match="cannot be found by that name"):
        task_of(config, cost=lean, threads=1)


@pytest.mark.parametrize("given", [{"env": cart_pole}, {"cost": lean}])
def test_a_task_of_cupola_takes_no_parts_of_a_gymnasium_environment(given):
    [name] = given
    with pytest.raises(CupolaError, match=f"^{name} is for Gymnasium environments"):
        find_task("HopperSpeed", **given)


def test_nothing_and_nonsense_are_refused():
    with pytest.raises(CupolaError, match="name a task, for example 'HopperSpeed'"):
        find_task(None)
    with pytest.raises(CupolaError, match="unknown task 'HoperSpeed': did you mean 'HopperSpeed'"):
        find_task("HoperSpeed")
    with pytest.raises(CupolaError, match="unknown cost of HopperSpeed 'sped'"):
        find_task("HopperSpeed").make(1, ("sped",))
