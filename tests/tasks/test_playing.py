"""Rollouts by the compiled part against the same actions step by step, and against NumPy."""

import itertools

import numpy as np
import pytest

from cupola.rollout import Collector, collect
from cupola.tasks import make_task, specs
from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import Task
from cupola.tasks.engine import VARIABLE, engine_name
from cupola.types import Rollout

ENVS, STEPS = 6, 60
PLAYED = [
    name
    for name in specs()
    if name.endswith(("Speed", "Circle")) or name[:-1].endswith(("Goal", "Button"))
]
pytestmark = pytest.mark.skipif(engine_name() != "native", reason="without the compiled part")
# The others run the same code.
TRIED = {"HopperSpeed", "AntSpeed", "SwimmerSpeed", "HumanoidCircle", "PointGoal1", "CarButton1"}
every_task = pytest.mark.parametrize(
    "name", [n if n in TRIED else pytest.param(n, marks=pytest.mark.slow) for n in PLAYED]
)


def make(name: str, threads: int = 1, envs: int = ENVS) -> Task:
    return make_task(name, envs, tuple(cost.name for cost in specs()[name].costs), threads)


def actor_of(name: str, scale: float = 1.0) -> NetworkActor:
    spec, rng = specs()[name], np.random.default_rng(3)
    sizes = (len(spec.inputs), 24, 16, spec.act_size)
    layers = tuple(
        (rng.normal(0, 1 / np.sqrt(a), (a, b)), rng.normal(0, 0.1, b))
        for a, b in itertools.pairwise(sizes)
    )
    shift = rng.normal(0, 0.1, sizes[0]).astype(np.float32)
    width = rng.uniform(0.5, 1.5, sizes[0]).astype(np.float32)
    return NetworkActor(layers, shift, width, 2.0, np.full(spec.act_size, scale, np.float32))


def noise_of(task: Task, steps: int = STEPS) -> np.ndarray:
    rng = np.random.default_rng(4)
    return rng.standard_normal((steps, task.num_envs, task.spec.act_size)).astype(np.float32)


def played(task: Task, noise: np.ndarray, seed: int | None = 5) -> tuple[Rollout, np.ndarray]:
    """A rollout, and the observations behind it; without a seed it goes on."""
    collector = Collector(task, 0.99)
    if seed is not None:
        collector.obs = task.reset(seed, stagger=True)
    rollout, _ = collect([collector], actor_of(task.spec.name), noise, side_by_side=False)
    return rollout, collector.obs


def assert_alike(left: Rollout, right: Rollout, tolerance: float) -> None:
    for name, a, b in zip(Rollout._fields, left, right, strict=True):
        if name == "times":
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        if tolerance:
            np.testing.assert_allclose(a, b, atol=tolerance, rtol=tolerance, err_msg=name)
        else:
            assert a.tobytes() == b.tobytes(), name


@every_task
def test_a_rollout_is_its_actions_step_by_step(name):
    task, again = make(name), make(name)
    noise = noise_of(task)
    rollout, obs = played(task, noise)
    inputs = task.spec.inputs
    seen = again.reset(5, stagger=True)
    for t in range(STEPS):
        np.testing.assert_array_equal(seen[:, inputs].astype(np.float32), rollout.obs[t])
        step = again.step(rollout.actions[t])
        seen = step.obs
        last = step.final_obs[:, inputs].astype(np.float32)
        np.testing.assert_array_equal(last, rollout.next_obs[t])
        np.testing.assert_array_equal(step.terminated, rollout.terminated[t])
        np.testing.assert_array_equal(step.truncated, rollout.truncated[t])
        np.testing.assert_array_equal(step.reward.astype(np.float32), rollout.rewards[t])
        np.testing.assert_array_equal(step.costs.astype(np.float32), rollout.costs[t])
    np.testing.assert_array_equal(seen, obs)
    for key, value in again.save().items():
        np.testing.assert_array_equal(value, task.save()[key], err_msg=key)


@every_task
def test_the_policy_of_a_rollout_is_the_actor(name):
    task = make(name)
    noise, actor = noise_of(task), actor_of(name)
    rollout, _ = played(task, noise)
    np.testing.assert_allclose(actor(rollout.obs, noise), rollout.actions, atol=2e-5)


@every_task
def test_driving_is_stepping_the_engine(name):
    """The ceiling of benchmarks is the same physics, without waiting in between."""
    stepped, driven = make(name), make(name, threads=2)
    actions = np.random.default_rng(6).uniform(-1, 1, (STEPS, ENVS, stepped.spec.act_size))
    for task in (stepped, driven):
        task.reset(5)
    for action in actions:
        stepped.step_engine(action)
    driven.drive(actions)
    assert stepped.save()["physics"].tobytes() == driven.save()["physics"].tobytes()


@every_task
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_a_bit_of_a_rollout(name, threads):
    alone, many = make(name), make(name, threads)
    noise = noise_of(alone, 2 * STEPS)
    left, right = played(alone, noise), played(many, noise)
    assert_alike(left[0], right[0], 0)
    assert left[1].tobytes() == right[1].tobytes()


@every_task
def test_a_restored_rollout_is_the_one_that_was_never_stopped(name):
    whole, task = make(name), make(name)
    noise = noise_of(whole)
    half = STEPS // 2
    played(whole, noise[:half])
    ahead, obs = played(whole, noise[half:], seed=None), None
    played(task, noise[:half])
    state, fresh = task.save(), make(name)
    collector = Collector(fresh, 0.99)
    collector.obs = fresh.restore(state)
    rest, _ = collect([collector], actor_of(name), noise[half:], side_by_side=False)
    assert_alike(ahead[0], rest, 0)
    assert ahead[1].tobytes() == collector.obs.tobytes()
    assert obs is None


@every_task
def test_without_the_compiled_part_it_is_the_same_but_for_rounding(name, monkeypatch):
    """For a few steps, and nearly everywhere: contacts make much of the last bits of an action."""
    native = make(name)
    monkeypatch.setenv(VARIABLE, "plain")
    plain = make(name)
    noise = noise_of(native, 5)
    left, right = played(native, noise)[0], played(plain, noise)[0]
    for field, a, b in zip(left._fields, left, right, strict=True):
        assert np.mean(~np.isclose(a, b, atol=2e-3, rtol=2e-3)) < 0.01, field


@every_task
def test_each_step_is_that_of_numpy(name, monkeypatch):
    """From the same state, with the same actions; contacts of boxes amplify rounding."""
    native = make(name, envs=12)
    monkeypatch.setenv(VARIABLE, "plain")
    plain = make(name, envs=12)
    rng = np.random.default_rng(0)
    native.reset(7, stagger=True)
    plain.reset(7, stagger=True)
    for _ in range(80):
        plain.restore(native.save())
        actions = rng.uniform(-1, 1, (12, native.spec.act_size))
        left, right = native.step(actions), plain.step(actions)
        for field, a, b in zip(left._fields, left, right, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-7, rtol=1e-7, err_msg=field)
        for key, value in plain.save().items():
            np.testing.assert_allclose(value, native.save()[key], atol=1e-6, err_msg=key)
