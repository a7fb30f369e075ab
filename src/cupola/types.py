"""What passes through the doorways between the rooms of cupola.

Axes: T time, N environments, B samples, K costs. ``_r`` means reward, ``_c`` cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:  # tasks can be listed without waiting for JAX
    import jax

Array: TypeAlias = Any  # numpy on the host, jax within compiled functions
Params: TypeAlias = Any
Metrics: TypeAlias = dict[str, Array]


class Cost(NamedTuple):
    """One named cost of a task and the limit on its return.

    ``limit`` is None for a cost that a task can measure but does not constrain by default.
    """

    name: str
    limit: float | None
    discounted: bool


class Problem(NamedTuple):
    """What an algorithm needs to know of a task: sizes, costs and their limits (length K)."""

    obs_size: int  # of the columns that networks are given
    act_size: int
    costs: tuple[str, ...]
    limits: tuple[float, ...]
    discounted: tuple[bool, ...]
    discrete: bool = False  # one of act_size choices instead of act_size numbers


class Step(NamedTuple):
    """One step of N environments.

    An environment whose episode ends is reset within the same step: ``obs`` then holds the
    first observation of the new episode and ``final_obs`` the last one of the old episode;
    elsewhere the two are equal. The next step leaves all arrays as they are.
    """

    obs: np.ndarray  # [N, O]
    final_obs: np.ndarray  # [N, O]
    reward: np.ndarray  # [N]
    costs: np.ndarray  # [N, K]
    terminated: np.ndarray  # [N] bool: the task itself ended
    truncated: np.ndarray  # [N] bool: the time limit cut it


class Rollout(NamedTuple):
    """T steps of N environments, observations as the task gave them but for constant columns."""

    obs: Array  # [T, N, O]
    next_obs: Array  # [T, N, O], the final observation where an episode ended
    actions: Array  # [T, N, A]; discrete ones have a 1 for their choice and 0 elsewhere
    rewards: Array  # [T, N]
    costs: Array  # [T, N, K]
    terminated: Array  # [T, N] bool
    truncated: Array  # [T, N] bool
    times: Array  # [T, N] int, steps since the episode began


class Batch(NamedTuple):
    """What an algorithm learns from: a rollout with normalised observations, and J^_c."""

    rollout: Rollout
    cost_returns: Array  # [K], J^c in each limit's convention; NaN before any episode ended
    horizons: Array  # [K], mean of sum_t gamma^t (or of the length) over those episodes
    progress: Array  # [], share of the training that lies behind, in [0, 1)


class Learner(NamedTuple):
    """Everything an algorithm carries from one update to the next."""

    policy: Params
    critics: Params  # leaves have a leading axis [1 + K]: reward first, then each cost
    policy_opt: Params
    critic_opt: Params
    nu: Array  # [K], price of each cost
    nu_opt: Params


class Algorithm(NamedTuple):
    """An algorithm is a value: two pure functions."""

    init: Callable[[jax.Array], Learner]
    update: Callable[[Learner, Batch, jax.Array], tuple[Learner, Metrics]]
