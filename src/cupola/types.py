"""What passes between the packages of cupola.

Axes: T time, N environments, B samples, K costs. ``_r`` means reward, ``_c`` cost.
"""

from __future__ import annotations

import math
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
    saturation: tuple[float, ...] = ()  # |action| beyond which it has no further effect; (): none
    act_bound: float = math.inf  # the bound of continuous actions; inf: none


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
    reach: Array = 1.0  # [K], the part of 1/(1 - gamma) that longer episodes live to see; or one


class Samples(NamedTuple):
    """B = T N samples of the policy pi_k that collected them."""

    obs: Array  # [B, O]
    actions: Array  # [B, A]; cut at the saturation where ``side`` is not None
    mean: Array  # [B, A], of pi_k
    log_prob: Array  # [B], of the action under pi_k
    advantages: Array  # [B, 1 + K], as estimated: reward first, then each cost
    adv_r: Array  # [B], the reward's as losses take it: standardised
    adv_c: Array  # [B, K], the costs' as losses take them
    values: Array  # [B, 1 + K], what the critics said
    targets: Array  # [B, 1 + K], what they should say
    times: Array  # [B], steps since the episode began
    side: Array = None  # [B, A], which actions were cut: 1 above, -1 below, 0 not; None: density of
    # a Gaussian everywhere


class CriticMemory(NamedTuple):
    """S samples of each of the last M batches, oldest first; the first ones are empty at the
    beginning. The costs' critics go on learning from them."""

    obs: Array  # [M, S, O], float16
    targets: Array  # [M, S, 1 + K]
    filled: Array  # [], how many of the M hold samples


class Learner(NamedTuple):
    """Everything an algorithm carries from one update to the next."""

    policy: Params
    critics: Params  # leaves have a leading axis [1 + K]: reward first, then each cost
    policy_opt: Params  # state of the policy's optimiser
    critic_opt: Params  # state of the critics' optimisers
    nu: Array  # [K], the Lagrange multiplier nu of each cost
    multiplier_state: Params  # memory of the rule that chooses nu (core/multipliers.py)
    critic_memory: Params = ()  # CriticMemory; () where critics see the newest batch only
    cost_variance: Params = ()  # [K], running, of the cost advantages; () where it is not used


class Prediction(NamedTuple):
    """What an update should change: reward first, then each cost, all [1 + K].

    A return is ``start`` + horizon times ``residual``, with the horizon in the return's convention.
    """

    change: Array  # mean of (rho_t - 1) A_t: what the update is predicted to change
    residual: Array  # mean of delta_t (undiscounted: of the cost itself)
    start: Array  # mean V of the first states (undiscounted: 0)
    started: Array  # whether the batch has a first state, 1 or 0


class Update(NamedTuple):
    """What an update gives."""

    learner: Learner
    metrics: Metrics  # scalars [], or [K] for one number per cost
    prediction: Prediction


class Algorithm(NamedTuple):
    """An algorithm is a value: pure functions. No result depends on the number of ``cores``."""

    init: Callable[[jax.Array], Learner]
    """A fresh learner, of a random key."""
    learn: Callable[[Learner, Samples, Batch, jax.Array, int], tuple[Learner, Metrics]]
    """The part of an update behind the samples; of a random key and the number of cores."""
    update: Callable[[Learner, Batch, jax.Array, int], Update]
    """A whole update: samples of the batch, `learn`, a prediction for the new policy."""
    trace: Callable[[Learner, Samples, Batch, jax.Array], tuple[Array, ...]] | None = None
    """The KL after each epoch of each policy step that `learn` takes with the same arguments, [E]
    each; NaN where none was taken or delta is inf. None where a step has no epochs."""
