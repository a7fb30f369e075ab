"""The exact optimum of a finite CMDP: a linear programme over occupancy measures.

x(s, a) = sum_t gamma^t P(s_t = s, a_t = a) ranges over x >= 0 with
sum_a x(s', a) - gamma sum_{s,a} P(s'|s,a) x(s, a) = rho_0(s') for every s'; return and costs are
linear in it, and pi(a|s) = x(s, a) / sum_b x(s, b) is a policy that has this occupancy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cupola.errors import CupolaError
from cupola.theory import exact
from cupola.theory.cmdp import Cmdp


class Optimum(NamedTuple):
    """The best that any policy can do within the limits."""

    value: float  # J of the optimal policy
    costs: np.ndarray  # [K], its cost returns
    policy: np.ndarray  # [S, A]; uniform in states that it never visits
    multipliers: np.ndarray  # [K], dual multipliers: dJ*/d limit, >= 0
    values: np.ndarray  # [S], dual values of the states: V of reward minus weighted costs
    occupancy: np.ndarray  # [S, A]


def solve(cmdp: Cmdp) -> Optimum:
    """The optimum of a single CMDP; a sentence where no policy meets the limits."""
    reward, costs = _signals(cmdp)
    result = _maximise(cmdp, reward, costs, cmdp.limits)
    if result.status == 2:
        raise CupolaError(_why_infeasible(cmdp))
    if result.status != 0:
        raise CupolaError(f"the linear programme was not solved: {result.message}")
    occupancy = result.x.reshape(cmdp.states, cmdp.actions).clip(0)
    mass = occupancy.sum(axis=1, keepdims=True)
    uniform = np.full_like(occupancy, 1 / cmdp.actions)
    policy = np.divide(occupancy, mass, out=uniform, where=mass > 1e-12)
    return Optimum(
        value=float(-result.fun),
        costs=np.einsum("ksa,sa->k", costs, occupancy),
        policy=policy,
        multipliers=-result.ineqlin.marginals if len(costs) else np.zeros(0),
        values=-result.eqlin.marginals,
        occupancy=occupancy,
    )


def lowest_cost(cmdp: Cmdp, index: int) -> float:
    """The smallest cost return that any policy has, of one cost."""
    _, costs = _signals(cmdp)
    return float(_maximise(cmdp, -costs[index], costs[:0], cmdp.limits[:0]).fun)


def _signals(cmdp: Cmdp) -> tuple[np.ndarray, np.ndarray]:
    if cmdp.cases:
        raise CupolaError("the linear programme takes one CMDP at a time: pick one with .case(i).")
    costs = [exact.expected(cmdp, cost) for cost in cmdp.costs]
    shape = (len(costs), cmdp.states, cmdp.actions)
    return exact.expected(cmdp, cmdp.reward), np.array(costs).reshape(shape)


def _maximise(cmdp: Cmdp, reward: np.ndarray, costs: np.ndarray, limits: np.ndarray) -> Any:
    from scipy.optimize import linprog  # slow to import, and not needed by whoever lists tasks

    states, actions = cmdp.states, cmdp.actions
    leaving = np.repeat(np.eye(states), actions, axis=1)  # [S, S A]
    arriving = cmdp.transitions.reshape(states * actions, states).T
    return linprog(
        -reward.reshape(-1),
        A_ub=costs.reshape(len(costs), states * actions) if len(costs) else None,
        b_ub=limits if len(costs) else None,
        A_eq=leaving - float(cmdp.gamma) * arriving,
        b_eq=cmdp.start,
        method="highs",
    )


def _why_infeasible(cmdp: Cmdp) -> str:
    for k, limit in enumerate(cmdp.limits):
        lowest = lowest_cost(cmdp, k)
        if lowest > limit:
            return (
                f"no policy meets limit {k}: the lowest cost return is {lowest:.6g},"
                f" the limit {limit:.6g}; write a limit of at least {lowest:.6g}."
            )
    return "no policy meets all limits at once, though each can be met alone: raise one of them."
