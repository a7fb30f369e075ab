"""Finite constrained MDPs: one, or many of the same size side by side.

Axes: ... cases (none for a single CMDP), S states, A actions, K costs. Rewards and costs may depend
on the next state: r(s, a, s').
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cupola.errors import CupolaError

TOLERANCE = 1e-9
"""By how much the sum of a distribution may be off one."""


class Cmdp(NamedTuple):
    """Maximise J(pi) subject to J^{c_i}(pi) <= limits_i, both discounted by gamma."""

    transitions: np.ndarray  # [..., S, A, S]
    reward: np.ndarray  # [..., S, A, S]
    costs: np.ndarray  # [..., K, S, A, S]
    limits: np.ndarray  # [..., K]
    start: np.ndarray  # [..., S], distribution of the first state
    gamma: np.ndarray  # [...]

    @property
    def states(self) -> int:
        return self.transitions.shape[-3]

    @property
    def actions(self) -> int:
        return self.transitions.shape[-2]

    @property
    def cases(self) -> tuple[int, ...]:
        """Shape of the leading axes; () for a single CMDP."""
        return self.transitions.shape[:-3]

    def case(self, index: int | np.ndarray | slice) -> Cmdp:
        """One case, or a selection of them."""
        return Cmdp(*(array[index] for array in self))


def make_cmdp(
    transitions: np.ndarray,
    reward: np.ndarray,
    costs: np.ndarray | Sequence[np.ndarray],
    limits: np.ndarray | Sequence[float],
    start: np.ndarray,
    gamma: np.ndarray | float,
) -> Cmdp:
    """A checked CMDP; reward and each cost may be given as [..., S, A] or [..., S, A, S]."""
    transitions = _numbers("transitions", transitions)
    if transitions.ndim < 3 or transitions.shape[-1] != transitions.shape[-3]:
        raise CupolaError(
            f"transitions must have the shape [states, actions, states], not {transitions.shape}."
        )
    shape, cases = transitions.shape, transitions.shape[:-3]
    _check_distributions("transitions", transitions)
    start = _shaped("start", start, (*cases, shape[-1]))
    _check_distributions("start", start)
    gamma = _shaped("gamma", gamma, cases)
    for value in gamma.flat:
        if not 0 <= value < 1:
            raise CupolaError(f"gamma must lie in [0, 1), not {value:g}.")
    limits = _numbers("limits", limits)
    if limits.ndim == 0:
        raise CupolaError("limits must be a list with one number for each cost.")
    count = limits.shape[-1]
    costs = _numbers("costs", costs)
    return Cmdp(
        transitions,
        _signal("reward", reward, shape),
        _signal("costs", costs, (*cases, count, *shape[-3:])),
        _shaped("limits", limits, (*cases, count)),
        start,
        gamma,
    )


def check_policy(cmdp: Cmdp, policy: np.ndarray) -> np.ndarray:
    """The policy [..., S, A] as floats, or a sentence that says what is wrong with it."""
    policy = _numbers("policy", policy)
    if policy.shape[-2:] != (cmdp.states, cmdp.actions):
        raise CupolaError(
            f"a policy of this CMDP has the shape [{cmdp.states}, {cmdp.actions}],"
            f" not {list(policy.shape)}."
        )
    _check_distributions("policy", policy)
    return policy


def _numbers(name: str, values: object) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise CupolaError(f"{name} must be an array of numbers.") from None
    if not np.isfinite(array).all():
        raise CupolaError(f"{name} must be finite numbers.")
    return array


def _shaped(name: str, values: object, shape: tuple[int, ...]) -> np.ndarray:
    array = _numbers(name, values)
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise CupolaError(
            f"{name} must have the shape {list(shape)}, not {list(array.shape)}."
        ) from None


def _signal(name: str, values: object, shape: tuple[int, ...]) -> np.ndarray:
    """A signal of [..., S, A, S], the last axis added where it is missing."""
    array = _numbers(name, values)
    if array.ndim == len(shape) - 1 and array.shape[-2:] == shape[-3:-1]:
        array = array[..., None]
    return _shaped(name, array, shape)


def _check_distributions(name: str, array: np.ndarray) -> None:
    """Refuse negative probabilities and rows along the last axis that do not sum to one."""
    if (array < 0).any():
        at = tuple(np.argwhere(array < 0)[0].tolist())
        raise CupolaError(f"{name}{list(at)} is {array[at]:g}: probabilities must not be negative.")
    sums = array.sum(axis=-1)
    wrong = np.abs(sums - 1) > TOLERANCE
    if wrong.any():
        row = tuple(np.argwhere(wrong)[0].tolist())
        raise CupolaError(
            f"{name}{list(row) if row else ''} sums to {sums[row]:.10g}, not to 1:"
            " make it a probability distribution."
        )


def random_cmdps(
    rng: np.random.Generator,
    count: int,
    states: int,
    actions: int,
    costs: int = 1,
    sparse: bool = False,
    gamma: tuple[float, float] = (0.3, 0.99),
) -> Cmdp:
    """``count`` CMDPs side by side, rewards in [-1.5, 1.5], costs in [0, 1].

    Dense ones draw every row uniformly from the simplex. Sparse ones have one or two next states
    for each action and a single first state.
    """
    shape = (count, states, actions, states)
    weights = rng.exponential(size=shape)
    first = rng.exponential(size=(count, states))
    if sparse:
        order = rng.random(shape).argsort(axis=-1).argsort(axis=-1)
        weights = weights * (order < rng.integers(1, 3, shape[:-1])[..., None])
        first = np.eye(states)[rng.integers(0, states, count)]
    charged = rng.uniform(0, 1, (count, costs, states, actions, 1))
    discount = rng.uniform(*gamma, count)
    return Cmdp(
        transitions=weights / weights.sum(axis=-1, keepdims=True),
        reward=rng.uniform(-1, 1, (count, states, actions, 1)) * np.ones(states)
        + 0.5 * rng.uniform(-1, 1, shape),
        costs=charged * np.ones(states),
        limits=rng.uniform(0.3, 0.7, (count, costs)) / (1 - discount)[:, None],
        start=first / first.sum(axis=-1, keepdims=True),
        gamma=discount,
    )


def random_policies(rng: np.random.Generator, count: int, states: int, actions: int) -> np.ndarray:
    """Policies [count, S, A], each state's distribution uniform in the simplex."""
    weights = rng.exponential(size=(count, states, actions))
    return weights / weights.sum(axis=-1, keepdims=True)


def neighbours(rng: np.random.Generator, policies: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Policies ``distance`` [M] of the way, in [0, 1], from the given ones to random ones."""
    others = random_policies(rng, *policies.shape)
    share = distance[:, None, None]
    return (1 - share) * policies + share * others


def chain(states: int = 5, slip: float = 0.1, gamma: float = 0.9, limit: float = 1.0) -> Cmdp:
    """States in a row. Action 1 goes right, action 0 left; a slip goes the other way.

    The right end pays 1 a step; going right costs 1 everywhere else.
    """
    transitions = np.zeros((states, 2, states))
    for s in range(states):
        left, right = max(s - 1, 0), min(s + 1, states - 1)
        for action, (ahead, back) in enumerate([(left, right), (right, left)]):
            transitions[s, action, ahead] += 1 - slip
            transitions[s, action, back] += slip
    reward, cost = np.zeros((states, 2)), np.zeros((1, states, 2))
    reward[-1] = 1.0
    cost[0, :-1, 1] = 1.0
    return make_cmdp(transitions, reward, cost, [limit], np.eye(states)[0], gamma)


GRID = ("SSHG", "SSS.")
"""A small grid world: S start, G goal, H hazard."""


def grid_world(
    rows: Sequence[str] = GRID,
    *,
    slip: float = 0.1,
    gamma: float = 0.9,
    limit: float = 0.2,
    step_reward: float = 0.0,
    goal_reward: float = 10.0,
) -> Cmdp:
    """A grid with hazards; actions up, right, down, left. One cost: entering a hazard costs 1.

    A slip goes to either side. Walls hold back. A goal pays once and is never left. Starts are
    uniform over the cells ``S``.
    """
    if not rows or len({len(row) for row in rows}) != 1 or not set("".join(rows)) <= set("S.HG"):
        raise CupolaError(
            "a grid world is rows of equal length made of S (start), G (goal), H (hazard) and '.'."
        )
    cells, height, width = "".join(rows), len(rows), len(rows[0])
    if "S" not in cells or "G" not in cells:
        raise CupolaError("a grid world needs at least one start S and one goal G.")
    if not 0 <= slip <= 1:
        raise CupolaError(f"slip must lie in [0, 1], not {slip:g}.")
    is_goal, is_hazard, is_start = (np.array([c == kind for c in cells], float) for kind in "GHS")
    transitions = np.zeros((len(cells), 4, len(cells)))
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    for s, cell in enumerate(cells):
        if cell == "G":
            transitions[s, :, s] = 1.0
            continue
        y, x = divmod(s, width)
        for action in range(4):
            for turn, share in ((0, 1 - slip), (1, slip / 2), (3, slip / 2)):
                dy, dx = moves[(action + turn) % 4]
                ty, tx = min(max(y + dy, 0), height - 1), min(max(x + dx, 0), width - 1)
                transitions[s, action, ty * width + tx] += share
    walking = (1 - is_goal)[:, None, None] * np.ones((1, 4, 1))
    reward = walking * (step_reward + goal_reward * is_goal)
    cost = walking * is_hazard
    return make_cmdp(transitions, reward, cost[None], [limit], is_start / is_start.sum(), gamma)
