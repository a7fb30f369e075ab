"""What every task of the registry keeps to; a new task is picked up by itself.

Where episodes must end within a few steps, batches are staggered and large: the last of N
environments is cut after a N-th of the time limit.
"""

import functools
import re
from typing import NamedTuple

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.tasks import make_task, specs
from cupola.tasks.base import Task
from cupola.types import Step

ENVS, STEPS = 40, 30
SEED = 7
ONE_STEP = [name for name, spec in specs().items() if spec.time_limit == 1]
WITHOUT_RANDOMNESS = {"ProbeQuadratic", "ProbeTwoCosts"}
FEW_STATES = {"TabularGrid", "TabularChain"}  # two episodes may well begin, or end, in the same one

# Crowded scenes take ten times as long and run the same code as the emptier ones.
CROWDED = {"PointGoal2", "CarGoal2", "PointButton2", "CarButton2"}


def tasks(*, without: set[str] | frozenset[str] = frozenset()) -> pytest.MarkDecorator:
    """One test per task; `make test` leaves out those that share all their code with another."""
    names = [name for name in specs() if name not in without]
    alike = re.compile(r"(Goal|Button)[02]$|PointButton1|CarGoal1|^Safety")
    return pytest.mark.parametrize(
        "name",
        [pytest.param(n, marks=pytest.mark.slow) if alike.search(n) else n for n in names],
    )


every_task = tasks()


def make(name: str, num_envs: int = ENVS, threads: int = 1) -> Task:
    costs = tuple(cost.name for cost in specs()[name].costs)
    return make_task(name, num_envs, costs, threads)


def actions_of(task: Task, steps: int = STEPS) -> np.ndarray:
    """Actions [T, N, A] that depend on the environment's place only: odd ones are gentle."""
    shape = (steps, task.spec.act_size)
    streams = [np.random.default_rng(i).uniform(-1, 1, shape) for i in range(task.num_envs)]
    return np.stack([a * (0.05 if i % 2 else 1) for i, a in enumerate(streams)], axis=1)


class Trajectory(NamedTuple):
    """T steps of N environments, stacked; ``first`` are the observations before them."""

    first: np.ndarray
    steps: Step

    @property
    def ended(self) -> np.ndarray:
        return self.steps.terminated | self.steps.truncated


def stacked(steps: list[Step]) -> Step:
    return Step(*(np.stack(column) for column in zip(*steps, strict=True)))


def play(task: Task, seed: int = SEED, stagger: bool = True, steps: int = STEPS) -> Trajectory:
    first = task.reset(seed, stagger=stagger)
    return Trajectory(first, stacked([task.step(a) for a in actions_of(task, steps)]))


@functools.cache
def staggered(name: str) -> Trajectory:
    return play(make(name))


def assert_same_bits(left: Trajectory | Step, right: Trajectory | Step) -> None:
    for a, b in zip(leaves(left), leaves(right), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def leaves(value: Trajectory | Step) -> list[np.ndarray]:
    return [value.first, *value.steps] if isinstance(value, Trajectory) else list(value)


@every_task
def test_unscored_steps_are_steps_whose_rewards_and_costs_come_later(name):
    stepped, moved = staggered(name), make(name)
    moved.reset(SEED, stagger=True)
    actions = actions_of(moved)
    moves = [moved.step_physics(a) for a in actions]
    rewards, costs = moved.score(moves, actions)
    later = [
        Step(m.obs, m.final_obs, r, c, m.terminated, m.truncated)
        for m, r, c in zip(moves, rewards, costs, strict=True)
    ]
    assert_same_bits(stacked(later), stepped.steps)


@every_task
def test_a_task_may_be_asked_for_no_costs(name):
    task = make_task(name, 2, (), 1)
    task.reset(SEED)
    assert task.step(np.zeros((2, task.spec.act_size))).costs.shape == (2, 0)


@every_task
def test_shapes_types_and_finite_numbers(name):
    task = make(name)
    spec = specs()[name]
    assert (task.spec, task.num_envs) == (spec, ENVS)
    first, steps = staggered(name)
    assert first.shape == (ENVS, spec.obs_size)
    assert steps.obs.shape == steps.final_obs.shape == (STEPS, ENVS, spec.obs_size)
    assert steps.reward.shape == steps.terminated.shape == steps.truncated.shape == (STEPS, ENVS)
    assert steps.costs.shape == (STEPS, ENVS, len(spec.costs))
    assert steps.terminated.dtype == steps.truncated.dtype == bool
    for array in (first, steps.obs, steps.final_obs, steps.reward, steps.costs):
        assert array.dtype == np.float64
        assert np.isfinite(array).all()
    assert not (steps.terminated & steps.truncated).any()
    assert (steps.terminated | steps.truncated).any()
    task.close()


@every_task
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name):
    task = make(name, 5)
    once, again, other = play(task), play(make(name, 5)), play(task, seed=SEED + 5)
    assert_same_bits(once, again)
    assert_same_bits(once, play(task))  # a used task begins anew
    if name not in WITHOUT_RANDOMNESS:
        assert name in FEW_STATES or not np.any(np.all(once.first == other.first, axis=1))
        assert not np.array_equal(once.steps.reward, other.steps.reward)


@every_task
def test_an_environment_is_its_seed_and_not_its_place(name):
    """Environment i of a batch seeded s is environment 0 of a batch seeded s + i."""
    batch = play(make(name, 3), stagger=False, steps=60)
    for i in range(3):
        task = make(name, 1)
        first = task.reset(SEED + i)
        steps = stacked([task.step(a[i : i + 1]) for a in actions_of(make(name, 3), 60)])
        mine = Trajectory(batch.first[i : i + 1], Step(*(x[:, i : i + 1] for x in batch.steps)))
        assert_same_bits(mine, Trajectory(first, steps))
    if name not in FEW_STATES:
        assert len(np.unique(batch.first, axis=0)) == (1 if name in WITHOUT_RANDOMNESS else 3)


@every_task
def test_threads_do_not_change_a_bit(name):
    alone = play(make(name, 7, threads=1))
    assert_same_bits(alone, play(make(name, 7, threads=2)))
    assert_same_bits(alone, play(make(name, 7, threads=3)))


@every_task
def test_restore_continues_bit_for_bit_across_a_reset(name):
    task = make(name)
    actions = actions_of(task)
    task.reset(SEED, stagger=True)
    half = STEPS // 2
    obs = [task.step(a) for a in actions[:half]][-1].obs.copy()
    state = task.save()
    kept = {key: value.copy() for key, value in state.items()}
    ahead = stacked([task.step(a) for a in actions[half:]])
    assert (ahead.terminated | ahead.truncated).any()
    fresh = make(name, threads=2)
    fresh.reset(SEED + 1)
    for other in (task, fresh, make(name)):
        np.testing.assert_array_equal(other.restore(state), obs)
        assert_same_bits(ahead, stacked([other.step(a) for a in actions[half:]]))
    for key, value in state.items():
        np.testing.assert_array_equal(value, kept[key], err_msg=f"a step changed {key!r}")


@every_task
def test_restoring_twice_in_a_row_at_every_step_changes_nothing(name):
    """A run that is stopped and resumed at every step is the run that never was."""
    undisturbed = play(make(name, 4), stagger=False, steps=8)
    task = make(name, 4)
    first = task.reset(SEED)
    steps = []
    for action in actions_of(task, 8):
        state, task = task.save(), make(name, 4)
        task.restore(state)
        steps.append(task.step(action))
    assert_same_bits(undisturbed, Trajectory(first, stacked(steps)))


@tasks(without=CROWDED.union(ONE_STEP))
def test_final_obs_belongs_to_the_old_episode_and_obs_to_the_new_one(name):
    cut, whole = staggered(name), play(make(name), stagger=False)
    ended = cut.ended
    np.testing.assert_array_equal(cut.steps.obs[~ended], cut.steps.final_obs[~ended])
    if name not in FEW_STATES:
        assert not np.any(np.all(cut.steps.obs == cut.steps.final_obs, axis=2)[ended])
    # Where the time limit cut a first episode, the same episode goes on in the other batch.
    firsts = ended & (ended.cumsum(axis=0) == 1)
    compared = firsts & cut.steps.truncated & (whole.ended.cumsum(axis=0) == 0)
    assert compared.any()
    np.testing.assert_array_equal(cut.steps.final_obs[compared], whole.steps.obs[compared])
    # The start of an environment's second episode does not depend on when the first one ended.
    later = play(make(name, ENVS + 1), steps=2 * STEPS)
    for env in np.flatnonzero(firsts.any(axis=0)):
        begins = cut.steps.obs[firsts[:, env].argmax(), env]
        assert later.ended[:, env].any()
        np.testing.assert_array_equal(begins, later.steps.obs[later.ended[:, env].argmax(), env])
        assert name in FEW_STATES or not np.array_equal(begins, cut.first[env])


@tasks(without=CROWDED)
def test_stagger_spreads_the_first_ends_over_the_time_limit(name):
    task = make(name, 4)
    limit = task.spec.time_limit
    task.reset(SEED, stagger=True)
    rng = np.random.default_rng(0)
    ends, truncated = np.zeros(4, int), np.zeros(4, bool)
    for i in range(1, limit + 1):
        step = task.step(rng.uniform(-1, 1, (4, task.spec.act_size)))
        first = (step.terminated | step.truncated) & (ends == 0)
        ends[first] = i
        truncated[first] = step.truncated[first]
        if ends.all():
            break
    assert ends.all(), "an episode outlives the time limit"
    grid = [limit - limit * i // 4 for i in reversed(range(4))]
    assert set(ends[truncated]) <= set(grid)
    assert len(set(ends[truncated])) == truncated.sum()
    if truncated.all():
        assert sorted(ends) == grid


@every_task
def test_later_steps_do_not_overwrite_what_was_returned(name):
    task = make(name)
    actions = actions_of(task)
    sent = actions.copy()
    returned = [(task.reset(SEED, stagger=True),)]
    kept = [tuple(x.copy() for x in returned[0])]
    for action in actions:
        returned.append(tuple(task.step(action)))
        kept.append(tuple(x.copy() for x in returned[-1]))
    task.reset(SEED + 1)
    for arrays, copies in zip(returned, kept, strict=True):
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
    np.testing.assert_array_equal(actions, sent)


@every_task
def test_costs_come_in_the_order_of_their_names(name):
    costs = tuple(cost.name for cost in specs()[name].costs)
    forth, back = make_task(name, 2, costs), make_task(name, 2, costs[::-1])
    assert (forth.costs, back.costs) == (costs, costs[::-1])
    left, right = play(forth, steps=5).steps, play(back, steps=5).steps
    np.testing.assert_allclose(left.costs, right.costs[..., ::-1], rtol=1e-12)
    for i, cost in enumerate(costs):
        alone = play(make_task(name, 2, (cost,)), steps=5).steps
        np.testing.assert_allclose(alone.costs[..., 0], left.costs[..., i], rtol=1e-12)


def test_unknown_tasks_and_costs_are_refused_with_the_nearest_name():
    with pytest.raises(CupolaError, match=r"unknown task 'HoperSpeed': did you mean 'HopperSpeed'"):
        make_task("HoperSpeed", 1, ("speed",))
    with pytest.raises(CupolaError, match=r"unknown cost of HopperSpeed 'sped'.*'speed'"):
        make_task("HopperSpeed", 1, ("sped",))
