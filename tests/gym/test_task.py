"""Gymnasium environments as tasks: actions, observations, costs, endings, saving, failures."""

from __future__ import annotations

import re
import warnings

import gymnasium
import numpy as np
import pytest

from cupola.cli import main
from cupola.errors import CupolaError
from cupola.gym.costs import ARGUMENTS
from cupola.gym.options import GymOptions
from cupola.gym.task import DEFAULT_TIME_LIMIT, factory

QUICK = GymOptions(max_episode_steps=7)


def make(task="env:test", num_envs=3, costs=None, options=QUICK, **given):
    """A task and its factory."""
    made = factory(task, options, **given)
    return made.make(num_envs, costs or tuple(cost.name for cost in made.spec.costs))


def episode_seed(seed: int, episode: int) -> int:
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1)


def run(task, steps, seed=0):
    """All that ``steps`` steps of random actions give."""
    rng = np.random.default_rng(seed)
    return [task.step(rng.normal(size=(task.num_envs, task.spec.act_size))) for _ in range(steps)]


def assert_same(ours, theirs):
    for one, two in zip(ours, theirs, strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


# --- What a task does with an environment ---


@pytest.mark.parametrize("name", ["Pendulum-v1", "CartPole-v1"])
def test_a_task_does_what_gymnasiums_environments_do(worlds, name):
    limit, count = 12, 3
    cost = worlds.speed if name == "Pendulum-v1" else worlds.lean
    task = make(f"gym:{name}", options=GymOptions(max_episode_steps=limit), cost=cost)
    twins = [gymnasium.make(name) for _ in range(count)]
    seeds, episodes, elapsed = [40, 41, 42], [0] * count, [0] * count
    obs = task.reset(40)
    for i, twin in enumerate(twins):
        np.testing.assert_array_equal(obs[i], twin.reset(seed=episode_seed(seeds[i], 0))[0])
    rng, ends = np.random.default_rng(1), [0, 0]
    for _ in range(60):
        numbers = rng.normal(size=(count, task.spec.act_size))
        step = task.step(numbers)
        for i, twin in enumerate(twins):
            if name == "Pendulum-v1":
                action = np.clip(2 * numbers[i], -2, 2).astype(np.float32)
            else:
                action = int(numbers[i, 1] > numbers[i, 0])
            expected, reward, terminated, _, _ = twin.step(action)
            elapsed[i] += 1
            truncated = elapsed[i] == limit and not terminated
            np.testing.assert_array_equal(step.final_obs[i], expected)
            assert step.reward[i] == reward
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            measured = abs(expected[2]) if name == "Pendulum-v1" else expected[2] > 0
            assert step.costs[i, 0] == measured
            if terminated or truncated:
                episodes[i], elapsed[i] = episodes[i] + 1, 0
                expected, _ = twin.reset(seed=episode_seed(seeds[i], episodes[i]))
                ends[truncated] += 1
            np.testing.assert_array_equal(step.obs[i], expected)
    assert ends[1] > 3
    assert (ends[0] > 0) == (name == "CartPole-v1")


def test_actions_are_rescaled_and_cut_to_the_bounds(worlds):
    task = make(env=worlds.Drift, num_envs=1)
    task.reset(0)
    for numbers in ([0.0, 0.0], [-1.0, 1.0], [0.5, -0.5], [7.0, -9.0]):
        task.step(np.array([numbers]))
    seen = task._groups[0]._group._envs[0].env.seen
    np.testing.assert_allclose(seen, [[5, 0], [0, 3], [7.5, -1.5], [10, -3]])
    assert all(worlds.Drift.action_space.contains(action) for action in seen)


def test_choices_count_from_the_first_of_the_space(worlds):
    with pytest.warns(UserWarning, match="cannot be saved"):
        task = make(env=worlds.Opaque, num_envs=2)
    task.reset(0)
    step = task.step(np.array([[1.0, 0.0], [0.0, 1.0]]))  # the environment accepts 5 and 6 only
    np.testing.assert_array_equal(step.costs[:, 0], [0.0, 1.0])


def test_observations_of_dicts_and_tuples_are_flattened_as_gymnasium_does(worlds):
    task = make(env=worlds.Drift, num_envs=1)
    obs = task.reset(3)
    twin = worlds.Drift()
    expected, _ = twin.reset(seed=episode_seed(3, 0))
    flat = gymnasium.spaces.flatten(worlds.Drift.observation_space, expected)
    np.testing.assert_array_equal(obs[0], flat)
    assert obs.shape == (1, 2 + 3 + 2 + 2)


def test_episodes_without_an_end_are_cut_with_a_warning(worlds):
    with pytest.warns(UserWarning, match="no time limit.*1000 steps.*max_episode_steps"):
        made = factory("env:test", GymOptions(), env=worlds.Drift)
    assert made.spec.time_limit == DEFAULT_TIME_LIMIT
    task = make(env=worlds.Drift)
    task.reset(0)
    ends = np.array([step.truncated for step in run(task, 21)])
    np.testing.assert_array_equal(np.flatnonzero(ends[:, 0]), [6, 13, 20])
    assert not any(step.terminated.any() for step in run(task, 5))


@pytest.mark.parametrize(
    ("wrap", "limit"),
    [
        (lambda env: env, 500),
        (lambda env: gymnasium.wrappers.TimeLimit(env, 50), 50),
        (lambda env: gymnasium.wrappers.FlattenObservation(env), 500),
    ],
)
def test_time_limits_are_gymnasiums(worlds, wrap, limit):
    made = factory(
        "env:test", GymOptions(), env=lambda: wrap(gymnasium.make("CartPole-v1")), cost=worlds.lean
    )
    assert made.spec.time_limit == limit


# --- Costs ---


def test_a_cost_function_is_given_what_it_names(worlds):
    calls = []

    def cost(obs, action, reward, next_obs, terminated, truncated, info):
        calls.append(dict(zip(ARGUMENTS, (obs, action, reward, next_obs), strict=False)))
        assert (terminated, truncated) == (False, False)
        assert set(info) == {"costs"}
        return {"place": next_obs["place"][0], "gain": reward}

    task = make(env=worlds.Drift, num_envs=1, cost=cost)
    assert task.costs == ("place", "gain")
    obs = task.reset(0)
    calls.clear()
    first, second = run(task, 2)
    assert [call["obs"]["place"][0] for call in calls] == [obs[0, 0], first.obs[0, 0]]
    assert [call["next_obs"]["place"][0] for call in calls] == [first.obs[0, 0], second.obs[0, 0]]
    np.testing.assert_array_equal(second.costs[0], [second.obs[0, 0], second.reward[0]])
    np.testing.assert_array_equal(calls[1]["action"].shape, (2,))


def test_costs_come_from_info_or_from_a_sixth_value(worlds):
    named = make(env=worlds.Drift, costs=("fast", "far"))
    named.reset(0)
    step = named.step(np.zeros((3, 2)))
    np.testing.assert_array_equal(step.costs, np.abs(step.obs[:, [1, 0]]) ** [2, 1])
    six = make(env=worlds.SixValues)
    assert six.costs == ("cost",)
    six.reset(0)
    step = six.step(np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0]]))
    np.testing.assert_array_equal(step.costs[:, 0], [0.5, 0.0, 0.5])
    assert [s.terminated.all() for s in run(six, 5)] == [False, True, False, False, True]


def test_a_cost_that_is_a_number_takes_the_name_of_its_limit(worlds):
    made = factory("env:test", QUICK, env=worlds.SixValues, limits={"effort": 3.0})
    assert [cost.name for cost in made.spec.costs] == ["effort"]
    task = made.make(1, ("effort",))
    task.reset(0)
    assert task.step(np.array([[0.0, 1.0]])).costs.tolist() == [[0.5]]


# --- Saving ---


@pytest.mark.parametrize(
    "name",
    [
        "gym:Pendulum-v1",
        "gym:CartPole-v1",
        "gym:Acrobot-v1",
        "gym:FrozenLake-v1",
        "gym:HalfCheetah-v5",
        "gym:Humanoid-v5",
        "gym:cupola/HopperSpeed-v0",
        "env:worlds:Drift",
        "env:worlds:Records",
        "env:worlds:SavesItself",
    ],
)
def test_a_restored_task_goes_on_bit_for_bit(worlds, name):
    """Restored into fresh environments, which is what a new process has."""
    options = GymOptions(max_episode_steps=25)
    made = factory(name, options, cost=lambda reward: {"cost": reward})
    original, copy = made.make(2, ("cost",)), made.make(2, ("cost",))
    original.reset(5, stagger=True)
    run(original, 17)
    state = original.save()
    assert all(array.dtype.kind in "biuf" for array in state.values())
    expected = run(original, 30, seed=1)
    assert copy.restorable
    copy.reset(99)
    obs = copy.restore(state)
    np.testing.assert_array_equal(obs, state["obs"])
    assert_same(run(copy, 30, seed=1), expected)
    for task in (original, copy):
        task.close()


def test_what_cannot_be_restored_says_so_and_begins_new_episodes(worlds):
    with pytest.warns(UserWarning, match=r"env:test cannot be saved.*'engine' of Opaque.*Engine"):
        made = factory("env:test", QUICK, env=worlds.Opaque)
    task = made.make(3, ("cost",))
    task.reset(0)
    run(task, 10)
    obs = made.make(3, ("cost",)).restore(task.save())
    for i in range(3):
        twin = worlds.Opaque()
        np.testing.assert_array_equal(obs[i], twin.reset(seed=episode_seed(i, 2))[0])


def test_an_environment_that_only_seems_to_be_plain_is_found_out():
    """It keeps its state outside of its attributes."""
    memory = {"at": 0.0}

    class Sly(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float64)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            return np.array([memory["at"]]), {}

        def step(self, action):
            memory["at"] += 0.01
            return np.array([memory["at"]]), 0.0, False, False, {"cost": 0.0}

    with pytest.warns(UserWarning, match="a restored one differs"):
        factory("env:test", QUICK, env=Sly)


# --- Worker processes ---


def test_workers_change_nothing(worlds):
    """Neither the steps nor what is saved; functions of a test travel as well."""
    scale = 2.0
    outcomes = []
    for workers in (0, 4):
        task = make(
            env=lambda: worlds.Drift(),
            num_envs=5,
            cost=lambda next_obs, action: scale * next_obs["place"][0] + action[0],
            options=GymOptions(max_episode_steps=7, workers=workers),
        )
        assert len(task._groups) == max(1, workers // 2)
        task.reset(1, stagger=True)
        first = run(task, 9)
        state = task.save()
        second = run(task, 9, seed=2)
        task.restore(state)
        assert_same(run(task, 9, seed=2), second)
        outcomes.append([*first, *second, [state[name] for name in sorted(state)]])
        task.close()
    assert_same(*outcomes)


def test_a_worker_that_dies_is_reported(worlds):
    task = make(env=worlds.Drift, num_envs=2, options=GymOptions(max_episode_steps=7, workers=2))
    task.reset(0)
    task._groups[0]._process.kill()
    with pytest.raises(CupolaError, match=r"a worker process of env:test ended \(exit code -9\)"):
        run(task, 2)
    task.close()


def test_a_failure_in_a_worker_is_the_same_sentence(worlds):
    with pytest.warns(UserWarning, match="cannot be saved"):
        task = make(
            env=worlds.Breaks, num_envs=2, options=GymOptions(max_episode_steps=9, workers=2)
        )
    task.reset(0)
    with pytest.raises(CupolaError, match=r"env:test failed in step 5 .*the gearbox is on fire"):
        run(task, 50)
    task.close()


# --- What can go wrong ---


@pytest.mark.parametrize(
    ("misdeed", "said"),
    [
        ("none", "TypeError: the info of a step must be a dict, not NoneType"),
        ("list", "TypeError: the info of a step must be a dict, not list"),
        ("base", "BaseException: not an Exception"),
    ],
)
def test_odd_failures_late_in_an_episode_are_one_sentence(worlds, misdeed, said):
    """They were tracebacks: not every failure is an `Exception`, and `info` may be anything."""

    class Odd(worlds.Drift):
        def step(self, action):
            answer = super().step(action)
            if len(self.seen) < 20:
                return answer
            if misdeed == "base":
                raise BaseException("not an Exception")
            return *answer[:4], {"none": None, "list": ["cost"]}[misdeed]

    task = make(env=Odd, options=GymOptions(max_episode_steps=30))
    task.reset(0)
    run(task, 19)
    with pytest.raises(CupolaError, match=rf"^env:test failed in step 20 of .*\({said}"):
        run(task, 1)


@pytest.mark.filterwarnings("ignore:.*cannot be saved")
@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        ("Unbounded", r"env:worlds:Unbounded has an unbounded Box action.*TransformAction"),
        ("Binary", r"env:worlds:Binary has actions of the space MultiBinary\(3\).*TransformAction"),
        ("Prose", r"env:worlds:Prose has observations of the space Text.*wrap it"),
        ("Shapeless", r"env:worlds:Shapeless failed in its reset .*does not fit.*fix"),
        ("Nowhere", r"cannot import 'worlds:Nowhere' .*working directory"),
    ],
)
def test_environments_that_cannot_be_used(worlds, world, sentence):
    with pytest.raises(CupolaError, match=f"(?s)^{sentence}") as caught:
        factory(f"env:worlds:{world}", QUICK)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        ("two", r"worlds:two of gym:Pendulum-v1 is an array of shape \(2,\).* one finite number"),
        ("word", r"worlds:word of gym:Pendulum-v1 is 'much'.* one finite number"),
        ("nan", r"worlds:nan of gym:Pendulum-v1\['cost'\] is nan.* one finite number"),
        ("boom", r"worlds:boom of gym:Pendulum-v1 failed in step 1 .*ValueError: no such thing, .*"
                 r"worlds.py line \d+\): fix it"),
        ("greedy", r"worlds:greedy of gym:Pendulum-v1 asks for 'state': .*obs, action, reward"),
    ],
)  # fmt: skip
def test_cost_functions_that_cannot_be_used(worlds, capsys, cost, sentence):
    with pytest.raises(SystemExit) as end:
        main(["train", "cup", "gym:Pendulum-v1", "--cost", f"worlds:{cost}", "--limit", "5"])
    assert end.value.code == 1
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert re.search(sentence, complaint), complaint


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gym:Pendulm-v1", "--limit", "5"], "gym:Pendulm-v1 failed when it was made.*Pendulum"),
        (["gym:Pendulum-v1", "--limit", "5"], "gym:Pendulum-v1 measures no cost: give a function"),
        (["gym:Pendulum-v1"], "gym:Pendulum-v1 measures no cost"),
        (["gym:Pendulum-v1", "--cost", "worlds:speed"], "has no limit yet.* on cost"),
        (
            ["gym:Pendulum-v1", "--cost", "worlds:speed", "--limit", "a=1", "--limit", "b=1"],
            "unknown cost of gym:Pendulum-v1 'a': choose from cost",
        ),
        (
            ["gym:Pendulum-v1", "--cost", "speed", "--limit", "5"],
            "'speed' of gym:Pendulum-v1 cannot be found",
        ),
        (["gym:Pendulum-v1", "--cost", "worlds:s", "--limit", "5"], "cannot import 'worlds:s'"),
        (["HopperSpeed", "--cost", "worlds:speed"], "cost is for Gymnasium environments"),
        (["gym:Pendulum-v1", "--workers", "-1"], "workers must not be negative"),
    ],
)
def test_commands_that_cannot_work(worlds, capsys, arguments, sentence):
    with pytest.raises(SystemExit) as end:
        main(["train", "cup", *arguments])
    assert end.value.code == 1
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert re.search(sentence, complaint), complaint


class CutsItself(gymnasium.Env):
    """Counts its steps, which Gymnasium cannot know."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 0.0, False, self.steps == 30, {"cost": 0.0}


def test_an_environment_that_cuts_its_episodes_itself_is_not_said_to_have_no_time_limit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = factory("env:counts", GymOptions(), env=CutsItself)
    task = made.make(2, ("cost",))
    task.reset(0)
    ends = np.array([step.truncated[0] for step in run(task, 90)])
    np.testing.assert_array_equal(np.flatnonzero(ends), [29, 59, 89])


class Drawn(CutsItself):
    """Its pictures are as bright as it is old, twice as wide as high."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012

    def render(self):
        return np.full((20, 40, 3), self.steps, np.uint8)


@pytest.mark.parametrize("workers", [0, 2])
def test_environments_draw_themselves(workers):
    options = GymOptions(workers=workers)
    task = factory("env:drawn", options, env=Drawn).make(3, ("cost",))
    assert task.fps == 12
    task.reset(0)
    run(task, 7)
    picture = task.render(2, 80, 80)
    assert picture.shape == (80, 80, 3)
    assert (picture[20:60] == 7).all(), "in the middle, in its own proportions"
    assert not picture[:20].any()
    assert not picture[60:].any()
    run(task, 23)
    np.testing.assert_array_equal(task.render(2, 80, 80, end=True), picture)
    assert not task.render(2, 80, 80).any()
    task.close()


def test_an_environment_without_pictures_is_one_sentence():
    task = factory("env:counts", GymOptions(), env=CutsItself).make(1, ("cost",))
    task.reset(0)
    with pytest.raises(
        CupolaError, match=r"env:counts (gives no pictures|failed when it was drawn)"
    ):
        task.render(0)
