"""Probes: tiny tasks with continuous actions whose constrained optimum is known in closed form.

They show within seconds whether an algorithm solves constrained problems at all:

- `ProbeQuadratic`: one step, reward 10 - |a - target|^2, cost normal . a;
- `ProbeTwoCosts`: the same with two costs that are both active at the optimum;
- `ProbeRegulator`: a discounted linear-quadratic regulator with a limit on the effort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cupola.tasks.base import Clock, State, Task, TaskSpec, alike
from cupola.tasks.diagrams import draw_quadratic, draw_regulator
from cupola.types import Cost, Step

GAMMA = 0.99
RADIUS = 4.0
"""Distance of the regulator's random starts from the origin."""


class Quadratic(NamedTuple):
    """Maximise 10 - |a - target|^2 subject to normals a <= limits (componentwise)."""

    target: np.ndarray  # [A]
    normals: np.ndarray  # [K, A]
    limits: np.ndarray  # [K]

    def optimum(self) -> tuple[np.ndarray, float]:
        """The best action [A] and its reward: the projection of the target on the limits.

        With G = normals, all constraints active: a = target - G'(G G')^-1 (G target - limits).
        """
        excess = self.normals @ self.target - self.limits
        multipliers = np.linalg.solve(self.normals @ self.normals.T, excess)
        action = self.target - self.normals.T @ multipliers
        return action, float(10 - np.sum((action - self.target) ** 2))


QUADRATICS = {
    "ProbeQuadratic": Quadratic(np.array([1.0, 1.0]), np.array([[1.0, 0.5]]), np.array([0.5])),
    "ProbeTwoCosts": Quadratic(
        np.array([1.0, 1.0]), np.array([[1.0, 0.2], [-0.3, 1.0]]), np.array([0.4, 0.1])
    ),
}


class QuadraticTask(Task):
    """Every episode is one step."""

    fps = 4

    def __init__(self, spec: TaskSpec, num_envs: int, costs: tuple[str, ...]) -> None:
        self.spec, self.num_envs, self.costs = spec, num_envs, costs
        self._quadratic = QUADRATICS[spec.name]
        rows = [[cost.name for cost in spec.costs].index(name) for name in costs]
        self._normals = self._quadratic.normals[rows]
        self._limits = self._quadratic.limits[rows]
        self._obs = np.ones((num_envs, 1))
        self._actions: np.ndarray | None = None

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._actions = None
        return self._obs

    def step(self, actions: np.ndarray) -> Step:
        reward = 10 - np.sum((actions - self._quadratic.target) ** 2, axis=1)
        ended = np.ones(self.num_envs, bool)
        costs = np.einsum("na,ka->nk", actions, self._normals)
        self._actions = actions.copy()
        return Step(self._obs, self._obs, reward, costs, ended, ~ended)

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        action = None if self._actions is None else self._actions[index]
        return draw_quadratic(
            self._quadratic.target, self._normals, self._limits, action, (width, height)
        )

    def save(self) -> State:
        return {}

    def restore(self, state: State) -> np.ndarray:
        return self._obs


class Regulator(NamedTuple):
    """s' = A s + B a; reward -(s'Qs + 0.1 |a|^2), cost |a|^2; s_0 uniform on a circle."""

    a: np.ndarray
    b: np.ndarray
    q: np.ndarray
    effort_weight: float
    limit: float

    def gain(self, nu: float) -> np.ndarray:
        """The best policy is a = -K s: K for effort weighted by 0.1 + nu, by Riccati."""
        from scipy import linalg  # slow to import, and not needed by whoever lists tasks

        root = GAMMA**0.5
        weight = (self.effort_weight + nu) * np.eye(2)
        p = linalg.solve_discrete_are(root * self.a, root * self.b, self.q, weight)
        pull = GAMMA * self.b.T @ p
        return np.linalg.solve(weight + pull @ self.b, pull @ self.a)

    def values(self, gain: np.ndarray) -> tuple[float, float]:
        """Discounted return and effort of a = -K s from a random start, by Lyapunov."""
        from scipy import linalg

        closed = self.a - self.b @ gain
        effort = gain.T @ gain
        start = RADIUS**2 / 2 * np.eye(2)  # covariance of a random start
        returns, costs = (
            float(np.trace(start @ linalg.solve_discrete_lyapunov(GAMMA**0.5 * closed.T, weight)))
            for weight in (-self.q - self.effort_weight * effort, effort)
        )
        return returns, costs

    def optimum(self) -> tuple[np.ndarray, float]:
        """The gain whose effort is exactly the limit, and its return."""

        from scipy import optimize

        def excess(nu: float) -> float:
            return self.values(self.gain(nu))[1] - self.limit

        gain = self.gain(optimize.brentq(excess, 0.0, 1e3))
        return gain, self.values(gain)[0]


REGULATOR = Regulator(
    a=np.array([[1.0, 0.2], [0.0, 0.9]]),
    b=np.array([[0.5, 0.0], [0.0, 0.5]]),
    q=np.eye(2),
    effort_weight=0.1,
    limit=12.0,
)


class RegulatorTask(Task):
    """Episodes of 15 steps, after which the state has come to rest."""

    fps = 4

    def __init__(self, spec: TaskSpec, num_envs: int, costs: tuple[str, ...]) -> None:
        self.spec, self.num_envs, self.costs = spec, num_envs, costs
        self._clock = Clock(num_envs, spec.time_limit)
        self._obs = self._seen = self._ends = np.zeros((num_envs, 2))

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        self._obs = np.stack([self._start(i) for i in range(self.num_envs)])
        self._seen = self._ends = self._obs
        return self._obs

    def _start(self, env: int) -> np.ndarray:
        angle = self._clock.stream(env).uniform(0, 2 * np.pi)
        return RADIUS * np.array([np.cos(angle), np.sin(angle)])

    def step(self, actions: np.ndarray) -> Step:
        state, effort = self._obs, np.sum(actions**2, axis=1)
        reward = -np.einsum("ni,ij,nj->n", state, REGULATOR.q, state)
        reward -= REGULATOR.effort_weight * effort
        # Not a matrix product: its last bits would depend on the number of rows.
        final_obs = np.einsum("ij,nj->ni", REGULATOR.a, state)
        final_obs += np.einsum("ij,nj->ni", REGULATOR.b, actions)
        terminated = np.zeros(self.num_envs, bool)
        truncated = self._clock.tick(terminated)
        self._seen, self._ends = state, final_obs
        self._obs = final_obs.copy()
        ended = np.flatnonzero(truncated)
        self._clock.begin(ended)
        for env in ended.tolist():
            self._obs[env] = self._start(env)
        costs = np.repeat(effort[:, None], len(self.costs), axis=1)
        return Step(self._obs, final_obs, reward, costs, terminated, truncated)

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        state = (self._ends if end else self._obs)[index]
        begins = not end and self._clock.elapsed[index] == 0
        before = state if begins else self._seen[index]
        return draw_regulator(RADIUS, before, state, (width, height))

    def save(self) -> State:
        return {"obs": self._obs.copy(), **self._clock.save()}

    def restore(self, state: State) -> np.ndarray:
        state = alike(state, self.save())
        self._obs = self._seen = self._ends = state["obs"].copy()
        self._clock.restore(state)
        return self._obs


def _quadratic_spec(name: str, quadratic: Quadratic) -> TaskSpec:
    names = ("cost",) if len(quadratic.limits) == 1 else ("first", "second")
    pairs = zip(names, quadratic.limits, strict=True)
    costs = tuple(Cost(cost, float(limit), discounted=False) for cost, limit in pairs)
    return TaskSpec(name, obs_size=1, act_size=2, costs=costs, time_limit=1, act_bound=np.inf)


_EFFORT = Cost("effort", REGULATOR.limit, discounted=True)
TASKS = {name: _quadratic_spec(name, quadratic) for name, quadratic in QUADRATICS.items()}
TASKS["ProbeRegulator"] = TaskSpec("ProbeRegulator", 2, 2, (_EFFORT,), 15, act_bound=np.inf)


def make(name: str, num_envs: int, costs: tuple[str, ...], threads: int) -> Task:
    if name == "ProbeRegulator":
        return RegulatorTask(TASKS[name], num_envs, costs)
    return QuadraticTask(TASKS[name], num_envs, costs)
