"""Finite CMDPs as tasks, so that sampled algorithms can be compared with the exact optimum.

An observation is the state, one-hot. An action has one component for each action of the CMDP, and
the largest component is the choice: a Gaussian policy then chooses at random, with any
probabilities strictly between 0 and 1. So the optimum of the linear programme, which may need a
random choice, can be approached by the policies that cupola trains.

- `TabularGrid`: a grid world whose short way leads through a hazard;
- `TabularChain`: states in a row, where going towards the reward costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from cupola.tasks.base import Actor, Clock, State, Task, TaskSpec, alike
from cupola.tasks.diagrams import draw_table
from cupola.theory import chain, exact, grid_world, lp
from cupola.theory.cmdp import GRID, Cmdp
from cupola.types import Cost, Step

GAMMA = 0.9
TIME_LIMIT = 50
"""0.9^50 is half a per cent: what lies beyond the time limit hardly matters."""


def spec_of(name: str, cmdp: Cmdp, costs: Sequence[str], time_limit: int = TIME_LIMIT) -> TaskSpec:
    """The spec of a CMDP's task, given a name for each of its costs."""
    pairs = zip(costs, cmdp.limits.tolist(), strict=True)
    named = tuple(Cost(cost, limit, discounted=True) for cost, limit in pairs)
    return TaskSpec(name, cmdp.states, cmdp.actions, named, time_limit)


class TabularTask(Task):
    """N copies of a CMDP. States that pay and cost nothing and are never left end an episode.

    All random numbers of an episode are drawn when it begins. Pictures show the states in rows of
    ``columns``, from the first one on.
    """

    fps = 4

    def __init__(
        self,
        spec: TaskSpec,
        cmdp: Cmdp,
        num_envs: int,
        costs: tuple[str, ...],
        columns: int | None = None,
    ) -> None:
        self.spec, self.num_envs, self.costs = spec, num_envs, costs
        self._rows = [[cost.name for cost in spec.costs].index(name) for name in costs]
        self._cmdp = cmdp._replace(costs=cmdp.costs[self._rows], limits=cmdp.limits[self._rows])
        self._bounds = cmdp.transitions.cumsum(axis=-1)[..., :-1]
        self._first = cmdp.start.cumsum()[:-1]
        stays = np.einsum("sas->sa", cmdp.transitions).min(axis=1) == 1
        idle = (cmdp.reward == 0).all(axis=(1, 2)) & (cmdp.costs == 0).all(axis=(0, 2, 3))
        self._final = stays & idle
        self._clock = Clock(num_envs, spec.time_limit)
        self._states = np.zeros(num_envs, np.int64)
        # Not the clock's count, which begins later where starts are staggered.
        self._taken = np.zeros(num_envs, np.int64)
        self._uniforms = np.zeros((num_envs, 1 + spec.time_limit))
        self._columns = columns or int(np.ceil(cmdp.states**0.5))
        self._ends = self._before = self._states
        self._optima: dict[tuple[float, tuple[float, ...]], float] = {}

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        self._draw_uniforms(range(self.num_envs))
        self._taken[:] = 0
        self._states = np.searchsorted(self._first, self._uniforms[:, 0], side="right")
        self._ends = self._before = self._states
        return self._observe(self._states)

    def _draw_uniforms(self, envs: Sequence[int]) -> None:
        for env in envs:
            self._uniforms[env] = self._clock.stream(env).random(self._uniforms.shape[1])

    def _observe(self, states: np.ndarray) -> np.ndarray:
        return np.eye(self.spec.obs_size)[states]

    def step(self, actions: np.ndarray) -> Step:
        states, choices = self._states, actions.argmax(axis=1)
        uniforms = self._uniforms[np.arange(self.num_envs), 1 + self._taken]
        after = (uniforms[:, None] >= self._bounds[states, choices]).sum(axis=1)
        reward = self._cmdp.reward[states, choices, after]
        costs = self._cmdp.costs[:, states, choices, after].T
        terminated = self._final[after]
        truncated = self._clock.tick(terminated)
        self._before, self._ends = states, after
        self._states = after.copy()
        ended = np.flatnonzero(terminated | truncated)
        self._clock.begin(ended)
        self._draw_uniforms(ended.tolist())
        begun = np.searchsorted(self._first, self._uniforms[ended, 0], side="right")
        self._states[ended] = begun
        self._taken += 1
        self._taken[ended] = 0
        return Step(
            self._observe(self._states), self._observe(after), reward, costs, terminated, truncated
        )

    def extra_metrics(
        self, act: Actor, gamma: float, limits: tuple[float, ...]
    ) -> dict[str, float]:
        """Exact return and costs of the policy, and how far it is from the best one.

        Gaussian actions are assumed: ``act`` is linear in the noise.
        """
        obs = np.eye(self.spec.obs_size, dtype=np.float32)
        zeros, ones = (np.full((len(obs), self.spec.act_size), x) for x in (0.0, 1.0))
        mean = act(obs, zeros)
        policy = choice_probabilities(mean, act(obs, ones) - mean)
        cmdp = self._cmdp._replace(gamma=np.array(gamma), limits=np.array(limits))
        value, costs = exact.returns(cmdp, policy)
        key = (gamma, limits)
        if key not in self._optima:
            self._optima[key] = lp.solve(cmdp).value
        best = self._optima[key]
        return {
            "exact_return": float(value),
            **{f"exact_cost/{name}": float(costs[k]) for k, name in enumerate(self.costs)},
            "optimum": best,
            "optimum_gap": float((best - value) / max(abs(best), 1e-12)),
        }

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        state = int((self._ends if end else self._states)[index])
        begins = not end and self._taken[index] == 0
        before = state if begins else int(self._before[index])
        rewards = by_state(self._cmdp.reward).max(axis=-1)
        costs = by_state(self._cmdp.costs).max(axis=(0, -1))
        return draw_table(rewards, costs, self._columns, before, state, (width, height))

    def save(self) -> State:
        state = {"states": self._states.copy(), "taken": self._taken.copy()}
        return state | self._clock.save()

    def restore(self, state: State) -> np.ndarray:
        state = alike(state, self.save())
        for name, count in (("states", self.spec.obs_size), ("taken", self._uniforms.shape[1] - 1)):
            if not ((state[name] >= 0) & (state[name] < count)).all():
                raise ValueError(f"{name!r} must lie in [0, {count})")
        self._clock.restore(state)
        self._states, self._taken = state["states"].copy(), state["taken"].copy()
        self._ends = self._before = self._states
        self._draw_uniforms(range(self.num_envs))
        return self._observe(self._states)


def by_state(numbers: np.ndarray) -> np.ndarray:
    """Rewards or costs [..., S, A, S'] seen from the states, [..., S, 1]: the most that entering
    one brings, or, where it does not matter which state follows, the most that an action there
    does.
    """
    enters = np.ptp(numbers, axis=-1).max() > 0
    most = numbers.max(axis=(-3, -2)) if enters else numbers[..., 0].max(axis=-1)
    return most[..., None]


@cache
def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of an integral over a Gaussian, up to a factor."""
    return np.polynomial.hermite_e.hermegauss(100)


def choice_probabilities(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """P(component i is the largest) [S, A] of independent Gaussians, mean and std [S, A].

    The integral over component i of the product of the others' distribution functions.
    """
    from scipy.special import ndtr  # slow to import, and not needed by whoever lists tasks

    nodes, weights = quadrature()
    values = mean[..., None] + std[..., None] * nodes  # [S, A, nodes]
    scaled = (values[:, :, None] - mean[:, None, :, None]) / std[:, None, :, None]
    below = ndtr(scaled)  # [S, i, j, nodes]
    own = np.eye(mean.shape[1], dtype=bool)[None, :, :, None]
    product = np.where(own, 1.0, below).prod(axis=2)
    chances = product @ weights
    return chances / chances.sum(axis=1, keepdims=True)


_CMDPS = {
    "TabularGrid": (grid_world(gamma=GAMMA, limit=0.2), ("hazards",), len(GRID[0])),
    "TabularChain": (chain(5, gamma=GAMMA, limit=2.0), ("effort",), 5),
}
TASKS = {name: spec_of(name, cmdp, costs) for name, (cmdp, costs, _) in _CMDPS.items()}


def make(name: str, num_envs: int, costs: tuple[str, ...], threads: int) -> TabularTask:
    cmdp, _, columns = _CMDPS[name]
    return TabularTask(TASKS[name], cmdp, num_envs, costs, columns)
