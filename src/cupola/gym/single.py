"""One Gymnasium environment, and a few of them together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from cupola.errors import CupolaError
from cupola.gym import costs, restoring, spaces
from cupola.gym.costs import CostFunction
from cupola.gym.failures import REQUESTS_TO_END, EnvironmentFailedError, blamed, blaming
from cupola.tasks.base import State

_PEELED = (TimeLimit, OrderEnforcing, PassiveEnvChecker)


class EnvRecipe(NamedTuple):
    """What an environment is made from, here or in another process."""

    name: str
    """How sentences call it."""
    make: Callable[[], Any]
    cost: CostFunction | None
    costs: tuple[str, ...] = ()
    """Costs that its steps report, in this order."""


class Outcome(NamedTuple):
    """One step of one environment; it has been reset where the episode ended."""

    obs: np.ndarray  # [O]
    final_obs: np.ndarray  # [O]
    reward: float
    costs: list[float]  # K of them
    terminated: bool
    truncated: bool


class SingleEnv:
    """One environment: flat observations, costs by name, one episode after another."""

    def __init__(self, recipe: EnvRecipe) -> None:
        self._name, self._cost, self._costs = recipe.name, recipe.cost, recipe.costs
        self._arguments = costs.arguments_of(recipe.cost, self._name) if recipe.cost else ()
        self._function = f"the cost function {costs.name_of(self._cost)} of {self._name}"
        with blaming(self._name, "when it was made", "correct its name or fix it"):
            env = recipe.make()
            self.time_limit = time_limit_of(env)
            self.env = peeled(env)
            self._flatten = spaces.flattener(self.env.observation_space, self._name)
        self._obs: Any = None
        self._flat = np.zeros(0)
        self._steps = 0

    def reset(self, seed: int) -> np.ndarray:
        """Begin an episode: its observation [O]."""
        with blaming(self._name, "in its reset"):
            answer = self.env.reset(seed=seed)
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise TypeError("reset must return (obs, info)")
            flat = self._flatten(answer[0])
        self._obs, self._flat, self._steps = answer[0], flat, 0
        return flat

    def step(self, action: np.ndarray, due: bool, seed: int) -> Outcome:
        """One step; an episode that ends, or is ``due`` to be cut, is followed by a reset."""
        flat, reward, found, terminated, truncated = self.advance(action)
        chosen = costs.selected(found, self._costs, self._name)
        truncated = (truncated or due) and not terminated
        obs = self.reset(seed) if terminated or truncated else flat
        return Outcome(obs, flat, reward, chosen, terminated, truncated)

    def advance(self, action: np.ndarray) -> tuple[np.ndarray, float, dict[str, float], bool, bool]:
        """Observation [O], reward, costs by name, terminated and truncated of one step."""
        before = copy.deepcopy(self._obs) if "obs" in self._arguments else None
        self._steps += 1
        try:
            answer = self.env.step(action)
            if len(answer) == 6:
                obs, reward, cost, terminated, truncated, info = answer
            else:
                obs, reward, terminated, truncated, info = answer
            flat = self._flatten(obs)
            reward = float(np.asarray(reward).item())
            terminated, truncated = bool(terminated), bool(truncated)
            if not isinstance(info, Mapping):
                raise TypeError(f"the info of a step must be a dict, not {type(info).__name__}")
        except REQUESTS_TO_END:
            raise
        except BaseException as error:
            self._blame_observation()
            raise blamed(error, self._name, self._moment()) from error
        self._obs, self._flat = obs, flat
        try:
            if self._cost is not None:
                known = (before, action, reward, obs, terminated, truncated, info)
                found = self._cost_of(dict(zip(costs.ARGUMENTS, known, strict=True)))
            elif len(answer) == 6:
                found = costs.named(cost, f"the cost in a step of {self._name}")
            else:
                found = costs.in_info(info, self._name)
        except CupolaError:
            self._blame_observation()
            raise
        return flat, reward, found, terminated, truncated

    def _blame_observation(self) -> None:
        """Raise where the cause of a failure is that the last observation is not finite."""
        if not np.isfinite(self._flat).all():
            raise EnvironmentFailedError(
                f"an observation of {self._name} is not finite, {self._moment()}: fix the"
                " environment."
            )

    def _cost_of(self, known: dict[str, Any]) -> dict[str, float]:
        """What the cost function says of a step."""
        assert self._cost is not None
        try:
            result = self._cost(**{name: known[name] for name in self._arguments})
        except REQUESTS_TO_END:
            raise
        except BaseException as error:
            raise blamed(error, self._function, self._moment(), "fix it") from error
        return costs.named(result, f"the result of {self._function}")

    def _moment(self) -> str:
        return f"in step {self._steps} of an episode"

    def render(self) -> np.ndarray:
        """The environment's own picture, uint8 [H, W, 3]."""
        with blaming(self._name, "when it was drawn"):
            picture = self.env.render()
        if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
            raise CupolaError(
                f"{self._name} gives no pictures: make it with render_mode='rgb_array', in which"
                " render() returns an array [H, W, 3]."
            )
        return picture.astype(np.uint8)

    def save(self) -> State:
        with blaming(self._name, "when it was saved"):
            return restoring.save(self.env, [self._obs, self._steps])

    def restore(self, state: State) -> None:
        with blaming(self._name, "when it was restored"):
            self._obs, self._steps = restoring.restore(self.env, state)

    def close(self) -> None:
        with suppress(Exception):  # all that counts is done
            self.env.close()


class Outcomes(NamedTuple):
    """One step of n environments."""

    obs: np.ndarray  # [n, O]
    final_obs: np.ndarray  # [n, O]
    reward: np.ndarray  # [n]
    costs: np.ndarray  # [n, K]
    terminated: np.ndarray  # [n] bool
    truncated: np.ndarray  # [n] bool


class EnvGroup:
    """Some environments, one after the other."""

    def __init__(self, recipe: EnvRecipe, count: int) -> None:
        self._envs = [SingleEnv(recipe) for _ in range(count)]
        self._shape = (count, len(recipe.costs))

    def reset(self, seeds: list[int]) -> np.ndarray:
        return np.stack([env.reset(seed) for env, seed in zip(self._envs, seeds, strict=True)])

    def step(self, actions: np.ndarray, due: list[bool], seeds: list[int]) -> Outcomes:
        parts = zip(self._envs, actions, due, seeds, strict=True)
        steps = [env.step(action, cut, seed) for env, action, cut, seed in parts]
        obs, final_obs, reward, found, terminated, truncated = zip(*steps, strict=True)
        return Outcomes(
            np.stack(obs),
            np.stack(final_obs),
            np.array(reward),
            np.array(found, np.float64).reshape(self._shape),
            np.array(terminated),
            np.array(truncated),
        )

    def render(self, index: int) -> np.ndarray:
        return self._envs[index].render()

    def save(self) -> list[State]:
        """The state of each; nothing where it cannot be saved."""
        states: list[State] = []
        for env in self._envs:
            try:
                states.append(env.save())
            except restoring.CannotSaveError:
                states.append({})
        return states

    def restore(self, states: list[State]) -> None:
        for env, state in zip(self._envs, states, strict=True):
            env.restore(state)

    def close(self) -> None:
        for env in self._envs:
            env.close()


def peeled(env: Any) -> Any:
    """An environment without the wrappers whose work the task does itself.

    The task keeps the time and calls in order, and a step may return six values.
    """
    while isinstance(env, _PEELED):
        env = env.env
    return env


def time_limit_of(env: Any) -> int | None:
    """The shortest time limit that Gymnasium knows of an environment."""
    found = []
    if getattr(env, "spec", None) is not None and env.spec.max_episode_steps:
        found.append(int(env.spec.max_episode_steps))
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            found.append(int(env._max_episode_steps))
        env = env.env
    return min(found, default=None)
