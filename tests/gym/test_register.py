"""cupola's tasks as Gymnasium environments."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import cupola  # registers the tasks
from cupola import tasks
from cupola.errors import CupolaError
from cupola.gym.register import environment_id

NAMES = sorted(tasks.specs())


def action_sequence(env, steps, seed=0):
    space = env.single_action_space if hasattr(env, "num_envs") else env.action_space
    rng = np.random.default_rng(seed)
    count = getattr(env, "num_envs", 1)
    bound = np.minimum(space.high, 3.0)
    return rng.uniform(-bound, bound, (steps, count, *space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_finds_no_fault(name):
    env = gymnasium.make(environment_id(name))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*infinity.*")
        warnings.filterwarnings("ignore", message=".*recommend using a symmetric.*")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_many_environments_at_once_are_single_ones(name):
    """The same seed, the same trajectory, across the ends of episodes."""
    spec, count, seed = tasks.spec_of(name), 3, 11
    steps = 40 if spec.obs_size < 100 else 15
    many = gymnasium.make_vec(environment_id(name), num_envs=count, threads=2)
    singles = [gymnasium.make(environment_id(name)).unwrapped for _ in range(count)]
    assert many.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert many.single_observation_space == singles[0].observation_space
    obs, info = many.reset(seed=seed)
    assert info == {}
    for i, single in enumerate(singles):
        np.testing.assert_array_equal(single.reset(seed=seed + i)[0], obs[i])
    limited = [cost.name for cost in spec.costs if cost.limit is not None]
    for actions in action_sequence(many, steps):
        obs, reward, terminated, truncated, infos = many.step(actions)
        assert obs in many.observation_space
        for i, single in enumerate(singles):
            alone, its_reward, *ends, info = single.step(actions[i])
            assert (reward[i], terminated[i], truncated[i]) == (its_reward, *ends)
            assert {k: v[i] for k, v in infos["costs"].items() if k[0] != "_"} == info["costs"]
            assert infos["cost"][i] == info["cost"]
            assert info["cost"] == pytest.approx(sum(info["costs"][name] for name in limited))
            assert set(info["costs"]) == {cost.name for cost in spec.costs}
            if any(ends):
                assert infos["_final_obs"][i]
                np.testing.assert_array_equal(infos["final_obs"][i], alone)
                assert infos["final_info"]["cost"][i] == info["cost"]
                alone, _ = single.reset()
            np.testing.assert_array_equal(obs[i], alone)
    for env in (many, *singles):
        env.close()


def test_single_environments_agree_with_the_task_itself():
    env = gymnasium.make("cupola/HopperSpeed-v0")
    task = tasks.make_task("HopperSpeed", 1, ("effort", "speed"))
    np.testing.assert_array_equal(env.reset(seed=4)[0], task.reset(4)[0])
    for actions in action_sequence(env, 20):
        (obs, reward, terminated, _, info), step = env.step(actions[0]), task.step(actions)
        np.testing.assert_array_equal(obs, step.final_obs[0])
        assert (reward, terminated) == (step.reward[0], step.terminated[0])
        assert info["costs"] == {"effort": step.costs[0, 0], "speed": step.costs[0, 1]}
        assert info["cost"] == info["costs"]["speed"]
        if terminated:
            env.reset()


def test_a_reset_without_a_seed_goes_on_from_the_last_one():
    env = gymnasium.make("cupola/ProbeRegulator-v0").unwrapped

    def starts(seed):
        return [env.reset(seed=seed)[0], *(env.reset()[0] for _ in range(3))]

    first, second, other = starts(1), starts(1), starts(2)
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(np.concatenate([first, other]), axis=0)) == 8


def test_an_episode_must_be_begun():
    env = gymnasium.make("cupola/ProbeQuadratic-v0").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2))
    env.reset(seed=0)
    assert env.step(np.zeros(2))[2]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2))


def test_robots_are_drawn_without_a_screen():
    many = gymnasium.make_vec("cupola/SwimmerSpeed-v0", num_envs=2, render_mode="rgb_array")
    many.reset(seed=0)
    before = many.render()
    for actions in action_sequence(many, 10):
        many.step(actions)
    after = many.render()
    for picture in (*before, *after):
        assert (picture.shape, picture.dtype) == ((480, 480, 3), np.uint8)
        assert picture.std() > 10
    assert not np.array_equal(before[0], after[0])
    assert not np.array_equal(after[0], after[1])
    many.close()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*infinity.*")
        check_env(gymnasium.make("cupola/SwimmerSpeed-v0").unwrapped)  # pictures as well


def test_pictures_that_cannot_be_drawn_are_refused_with_a_sentence():
    probe = gymnasium.make("cupola/ProbeQuadratic-v0")
    assert probe.unwrapped.metadata["render_modes"] == []
    with pytest.raises(CupolaError, match=r"ProbeQuadratic cannot be drawn.*leave it out"):
        gymnasium.make("cupola/ProbeQuadratic-v0", render_mode="rgb_array")


def test_a_module_prefix_imports_cupola_and_jax_is_left_alone():
    program = (
        "import sys, gymnasium; gymnasium.make('cupola:cupola/ProbeQuadratic-v0');"
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert cupola.__version__


def test_another_time_limit_needs_single_environments():
    with pytest.raises(CupolaError, match="episodes of HopperSpeed last 1000 steps"):
        gymnasium.make_vec("cupola/HopperSpeed-v0", num_envs=2, max_episode_steps=10)
    envs = gymnasium.make_vec(
        "cupola/HopperSpeed-v0", num_envs=2, vectorization_mode="sync", max_episode_steps=2
    )
    envs.reset(seed=0)
    ends = [envs.step(actions)[3].tolist() for actions in action_sequence(envs, 2)]
    assert ends == [[False, False], [True, True]]
    envs.close()
