"""Any Gymnasium environment as a cupola task."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from cupola.errors import CupolaError, CupolaWarning
from cupola.gym import costs, restoring, spaces
from cupola.gym.costs import CostFunction
from cupola.gym.options import GymOptions
from cupola.gym.single import EnvRecipe, Outcomes, SingleEnv
from cupola.gym.workers import InProcess, Worker
from cupola.tasks.base import Choice, Clock, Scaled, State, Task, TaskFactory, TaskSpec
from cupola.tasks.canvas import fit
from cupola.tasks.observation import Part
from cupola.types import Cost, Step

DEFAULT_TIME_LIMIT = 1000
TRIAL_STEPS = 8
"""Steps after which a restored environment must still do the same as the original."""
TRIAL_SECONDS = 2.0
"""For finding out whether an environment cuts its episodes itself."""
NEW_EPISODES = "a resumed run begins new episodes"


class GymTask(Task):
    """N environments of Gymnasium."""

    def __init__(
        self, spec: TaskSpec, num_envs: int, recipe: EnvRecipe, workers: int, restorable: bool
    ) -> None:
        assert spec.actions is not None
        self.spec, self.num_envs, self.costs = spec, num_envs, recipe.costs
        self.restorable = restorable
        self.parallel = workers > 0  # other people's code need not be safe in threads
        self._decode = spec.actions.decode
        self._clock = Clock(num_envs, spec.time_limit)
        self._all = range(num_envs)
        self._obs = np.zeros((num_envs, spec.obs_size))
        self._next_seeds = [0] * num_envs
        self._pictures: dict[int, np.ndarray] = {}
        kind: Callable[[EnvRecipe, int], InProcess | Worker] = Worker if workers else InProcess
        self._slices = _shares(num_envs, min(max(1, workers), num_envs))
        self._groups = [kind(recipe, part.stop - part.start) for part in self._slices]

    def _ask(self, method: str, *columns: Any) -> list[Any]:
        """The groups' answers; each is given its part of every column."""
        for group, part in zip(self._groups, self._slices, strict=True):
            group.send(method, *(column[part] for column in columns))
        return [group.receive() for group in self._groups]

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        return self._begin()

    def _begin(self) -> np.ndarray:
        """Begin the clock's current episodes."""
        self._obs = np.concatenate(self._ask("reset", [self._seed(i, 0) for i in self._all]))
        self._next_seeds = [self._seed(i, 1) for i in self._all]
        return self._obs

    def _seed(self, env: int, later: int) -> int:
        """The seed of an environment's current episode, or of a ``later`` one."""
        key = [int(self._clock.seeds[env]), int(self._clock.episodes[env]) + later]
        return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)

    def step(self, actions: np.ndarray) -> Step:
        due = self._clock.elapsed + 1 >= self.spec.time_limit
        parts = self._ask("step", self._decode(actions), due.tolist(), self._next_seeds)
        step = Outcomes(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        self._clock.tick(step.terminated)
        ended = np.flatnonzero(step.terminated | step.truncated)
        self._clock.begin(ended)
        for i in ended.tolist():
            self._next_seeds[i] = self._seed(i, 1)
        self._obs = step.obs
        return Step(*step)

    def save(self) -> State:
        state = {"obs": self._obs.copy(), **self._clock.save()}
        if not self.restorable:
            return state
        states = [env for group in self._ask("save") for env in group]
        if not all(states):
            warnings.warn(
                f"{self.spec.name} can no longer be saved: {NEW_EPISODES}.",
                CupolaWarning,
                stacklevel=2,
            )
            self.restorable = False
            return state
        for i, env in enumerate(states):
            state |= {f"env{i}.{name}": array for name, array in env.items()}
        return state

    def restore(self, state: State) -> np.ndarray:
        self._clock.restore(state)
        states = [
            {k.removeprefix(f"env{i}."): v for k, v in state.items() if k.startswith(f"env{i}.")}
            for i in self._all
        ]
        if self.restorable and not all(states):
            warnings.warn(
                f"{self.spec.name} was not saved: {NEW_EPISODES}.", CupolaWarning, stacklevel=2
            )
            self.restorable = False
        if not self.restorable:
            self._clock.begin(np.arange(self.num_envs))
            self._clock.stagger()
            return self._begin()
        self._begin()
        self._ask("restore", states)
        self._obs = state["obs"].copy()
        return self._obs

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        """A picture; the end of an episode is its last picture, as the next one has begun."""
        if end and index in self._pictures:
            return self._pictures[index]
        mine = next(i for i, part in enumerate(self._slices) if part.start <= index < part.stop)
        group = self._groups[mine]
        group.send("render", index - self._slices[mine].start)
        self._pictures[index] = fit(group.receive(), width, height)
        return self._pictures[index]

    def close(self) -> None:
        for group in self._groups:
            group.close()


def _shares(count: int, parts: int) -> list[slice]:
    """``count`` things shared out evenly."""
    bounds = [count * i // parts for i in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


class EnvFacts(NamedTuple):
    """What a look at one environment tells."""

    obs_size: int
    act_size: int
    actions: Scaled | Choice
    time_limit: int | None
    cuts_itself: bool
    """Whether it truncated an episode by itself where no time limit is known."""
    costs: tuple[str, ...]
    obstacle: str
    """Why it cannot be restored; empty where it can."""
    parts: tuple[Part, ...]
    fps: int


def factory(
    task: str,
    options: GymOptions,
    *,
    env: Callable[[], Any] | None = None,
    cost: CostFunction | None = None,
    limits: float | Mapping[str, float] | None = None,
    pictures: bool = False,
) -> TaskFactory:
    """A task from ``gym:ID``, ``env:package.module:function`` or ``env``, a function without
    arguments; ``cost`` and ``env`` go before what the names stand for.

    Makes one or two environments and takes a few steps, to learn the sizes and the names of the
    costs and to find early what cannot work.
    """
    if cost is None and options.cost:
        if ":" not in options.cost:
            raise CupolaError(
                f"the cost function {options.cost!r} of {task} cannot be found by that name: write"
                " package.module:function, or give it in Python as cost=the function."
            )
        cost = costs.load(options.cost)
    recipe = EnvRecipe(task, env or maker(task, pictures), cost)
    facts = inspect_env(recipe, limited=options.max_episode_steps > 0)
    names = facts.costs
    if names == (costs.ONLY,) and isinstance(limits, Mapping) and len(limits) == 1:
        names = tuple(limits)
    time_limit = options.max_episode_steps or facts.time_limit
    if time_limit is None:
        time_limit = DEFAULT_TIME_LIMIT
        if not facts.cuts_itself:
            warnings.warn(
                f"{task} has no time limit: its episodes are cut after {time_limit} steps; set"
                " another one with max_episode_steps.",
                CupolaWarning,
                stacklevel=2,
            )
    if facts.obstacle:
        warnings.warn(
            f"{task} cannot be saved and restored ({facts.obstacle}): {NEW_EPISODES}; to resume"
            " exactly, give it save_state() and restore_state(state).",
            CupolaWarning,
            stacklevel=2,
        )
    spec = TaskSpec(
        task,
        obs_size=facts.obs_size,
        act_size=facts.act_size,
        costs=tuple(Cost(name, None, options.discounted) for name in names),
        time_limit=time_limit,
        actions=facts.actions,
        parts=facts.parts,
    )

    def make(num_envs: int, chosen: tuple[str, ...]) -> Task:
        plan, half = recipe._replace(costs=chosen), (options.workers + 1) // 2
        made = GymTask(spec, num_envs, plan, half, restorable=not facts.obstacle)
        made.fps = facts.fps
        return made

    return TaskFactory(spec, make)


def maker(task: str, pictures: bool = False) -> Callable[[], Any]:
    """How to make the environment that a name stands for, with ``pictures`` one that is drawn."""
    kind, _, name = task.partition(":")
    if kind == "gym":
        module, colon, _ = name.rpartition(":")
        if colon:
            costs.reach(module)
        mode: dict[str, Any] = {"render_mode": "rgb_array"} if pictures else {}
        return lambda: gymnasium.make(name, disable_env_checker=True, **mode)
    if ":" not in name:
        raise CupolaError(
            f"the environment {name!r} cannot be found by that name: write"
            " env:package.module:function, or give it in Python as env=the function."
        )
    return costs.load(name)


def task_name(env: Callable[[], Any]) -> str:
    if not callable(env):
        raise CupolaError(
            f"env must be a function without arguments that makes an environment, not {env!r}."
        )
    return f"env:{costs.name_of(env)}"


def inspect_env(recipe: EnvRecipe, limited: bool = False) -> EnvFacts:
    """Make an environment, take a few steps, and see whether a second one can go on from there.

    ``limited`` says that a time limit is given.
    """
    original = SingleEnv(recipe)
    act_size, actions = spaces.actions_of(original.env.action_space, recipe.name)
    numbers = np.random.default_rng(0).uniform(-1, 1, (2 * TRIAL_STEPS, act_size))
    trial = actions.decode(numbers)
    original.reset(0)
    found: dict[str, float] = {}
    for i, action in enumerate(trial[:TRIAL_STEPS]):
        _, _, costs_now, terminated, truncated = original.advance(action)
        found |= costs_now
        if terminated or truncated:
            original.reset(i + 1)
    obstacle = _obstacle(original, SingleEnv(recipe), trial[TRIAL_STEPS:])
    limit, cuts_itself = original.time_limit, False
    if limit is None and not limited:
        cuts_itself = _cuts_itself(SingleEnv(recipe), act_size, actions)
    space = original.env.observation_space
    size, parts = gymnasium.spaces.flatdim(space), spaces.parts_of(space)
    fps = round(getattr(original.env, "metadata", {}).get("render_fps") or Task.fps)
    costs_found = tuple(found)
    return EnvFacts(
        size, act_size, actions, limit, cuts_itself, costs_found, obstacle, parts, max(1, fps)
    )


def _cuts_itself(env: SingleEnv, act_size: int, actions: Scaled | Choice) -> bool:
    """Whether an environment truncates an episode within the default time limit.

    Environments often count their steps themselves, and Gymnasium does not know of it.
    """
    rng, until = np.random.default_rng(1), time.monotonic() + TRIAL_SECONDS
    try:
        env.reset(0)
        for i in range(DEFAULT_TIME_LIMIT):
            _, _, _, terminated, truncated = env.advance(
                actions.decode(rng.uniform(-1, 1, act_size))
            )
            if truncated or time.monotonic() > until:
                return truncated
            if terminated:
                env.reset(i + 1)
    except CupolaError:  # the training will find it, and say what came before
        pass
    finally:
        env.close()
    return False


def _obstacle(original: SingleEnv, copy: SingleEnv, actions: np.ndarray) -> str:
    """Why ``copy`` cannot go on exactly as the original does; empty where it can."""
    try:
        state = original.save()
        copy.reset(2**31 - 1)
        copy.restore(state)
        for i, action in enumerate(actions):
            (obs, *rest), (same_obs, *same) = original.advance(action), copy.advance(action)
            if not np.array_equal(obs, same_obs, equal_nan=True) or rest != same:
                return f"after {i + 1} steps a restored one differs"
            if rest[-1] or rest[-2]:
                original.reset(i)
                copy.reset(i)
    except restoring.CannotSaveError as error:
        return str(error)
    finally:
        original.close()
        copy.close()
    return ""
