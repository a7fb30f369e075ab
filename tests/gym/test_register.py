"""cupola's tasks as Gymnasium environments."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import cupola  # registers the tasks
from cupola import tasks
from cupola.errors import CupolaError
from cupola.gym.register import environment_id
from cupola.tasks.canvas import caption

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


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_a_render_mode_that_there_is_not_is_a_type_error(many):
    """Upon a TypeError Stable-Baselines3 makes the environment again, without pictures."""
    make = partial(gymnasium.make_vec, num_envs=2) if many else gymnasium.make
    for error in (CupolaError, TypeError):
        with pytest.raises(error, match=r"ProbeQuadratic cannot be drawn.*write 'rgb_array'"):
            make("cupola/ProbeQuadratic-v0", render_mode="ansi")


@pytest.mark.parametrize(
    ("name", "fps"),
    # Hopper: 4 physics steps of 2 ms; Ant 5 of 10 ms; Humanoid 5 of 3 ms; Point 10 of 2 ms,
    # Car 10 of 4 ms.
    [
        ("HopperSpeed", 125),
        ("AntCircle", 20),
        ("HumanoidSpeed", 67),
        ("PointGoal1", 50),
        ("CarGoal1", 25),
    ],
)
def test_pictures_a_second_are_the_tasks_own(name, fps):
    env = gymnasium.make(environment_id(name), render_mode="rgb_array")
    assert env.metadata["render_fps"] == fps
    assert gymnasium.make_vec(environment_id(name), num_envs=2).metadata["render_fps"] == fps
    assert env.metadata["render_modes"] == ["rgb_array"]


def test_pictures_have_the_size_that_is_asked_for_and_say_speed_limit_and_cost(monkeypatch):
    monkeypatch.setattr("cupola.tasks.robot_picture.find_camera", lambda *_: None)
    name = "cupola/SafetyHopperVelocity-v1"
    env = gymnasium.make(name, render_mode="rgb_array", width=400, height=300)
    env.reset(seed=0)
    plain = env.render()
    assert plain.shape == (300, 400, 3)
    drawn: list[list[str]] = []
    monkeypatch.setattr(
        "cupola.gym.register.caption",
        lambda picture, lines: drawn.append([text for text, _ in lines]) or caption(picture, lines),
    )
    _, _, _, _, info = env.step(np.full(3, 0.5, np.float32))
    picture = env.render()
    x, dt = env.unwrapped._task._position[0, 0], 0.008
    assert np.abs(picture[:60, :200].astype(int) - plain[:60, :200]).max() > 100
    (speed, cost), *_ = drawn
    value = float(speed.removeprefix("speed ").partition(" ")[0])
    assert value * dt == pytest.approx(abs(x - plain_start(name)), abs=0.005 * dt)
    assert speed.endswith("m/s, limit 0.74")
    assert cost == f"cost velocity {info['cost']:.2f} (limit 25, sum)"
    with pytest.raises(CupolaError, match="at least 16 pixels"):
        gymnasium.make(name, render_mode="rgb_array", width=3)


def plain_start(name: str) -> float:
    env = gymnasium.make(name)
    env.reset(seed=0)
    return float(env.unwrapped._task._position[0, 0])


def test_the_last_picture_of_an_episode_shows_its_end():
    env = gymnasium.make("cupola/TabularGrid-v0", render_mode="rgb_array").unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        ended = False
        while not ended:
            obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated or truncated
        if terminated:
            break
    assert obs.argmax() == 3, "the goal"
    end = env.render()
    env.reset()
    start = env.render()
    # Four columns and two rows of cells: the goal is the last one of the first row.
    goal = np.s_[182:190, 398:410]
    assert end[goal].max() < 60
    assert start[goal].max() > 100


def test_vector_wrappers_work_or_say_why():
    envs = gymnasium.make_vec("cupola/ProbeRegulator-v0", num_envs=3)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    counting = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    counting.reset(seed=0)
    for actions in action_sequence(envs, 15):
        *_, infos = counting.step(actions)
    assert infos["episode"]["l"].tolist() == [15, 15, 15]
    with pytest.raises((ValueError, AssertionError), match="NEXT_STEP"):
        gymnasium.wrappers.vector.NormalizeObservation(envs)
    single = gymnasium.make_vec("cupola/ProbeRegulator-v0", num_envs=3, vectorization_mode="sync")
    normal = gymnasium.wrappers.vector.NormalizeObservation(single)
    normal.reset(seed=0)
    seen = [normal.step(actions)[0] for actions in action_sequence(single, 60)]
    assert 0.3 < np.std(np.concatenate(seen[20:])) < 2


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
