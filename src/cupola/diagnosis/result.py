"""What a diagnosis finds, as plain values. A signal is the return or a cost, by its name."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, TypeAlias

RETURN = "return"
"""The first signal; the others are the costs."""

Topic: TypeAlias = Literal["level", "rate", "critic", "gradient", "change", "kl", "multiplier"]


class Estimate(NamedTuple):
    mean: float
    error: float  # standard error


class Level(NamedTuple):
    """Where the standing policy is: the undiscounted return, costs as their limits count them."""

    name: str
    value: Estimate
    limit: float | None


class Explained(NamedTuple):
    """Share of the variance of discounted returns that a critic explains: 1 all, 0 or less none."""

    name: str
    before: float  # the checkpoint's critic, on fresh batches
    in_sample: float  # the critic after an update, on the batch of that update
    held_out: float  # the critic after an update, on batches that it has not seen


class Cosine(NamedTuple):
    between: Estimate  # of the gradients of two independent batches
    truth: float  # of one batch's gradient and the true one, as `between` implies


class Gradient(NamedTuple):
    """How much of one batch's gradient of mean_t rho_t A_t is signal."""

    name: str
    plain: Cosine
    natural: Cosine
    with_reward: Cosine | None  # of a cost's gradient and the reward's; None for the reward's own


class Change(NamedTuple):
    """By how much one update changes the discounted return, or a cost as its limit counts it."""

    name: str
    fitted: Estimate  # predicted on the batch of the update
    held_out: Estimate  # predicted on batches that the update has not seen
    measured: Estimate  # episodes of the new policy against episodes of the old one


class Trace(NamedTuple):
    """The KL divergence of one step of an update, as it goes."""

    step: str
    kl: tuple[float, ...]  # each time that it is looked at; () where the step was skipped
    delta: float | None  # what is allowed; None for no bound


class Multiplier(NamedTuple):
    """Where a Lagrange multiplier stands."""

    name: str
    nu: float
    bound: float
    price: float  # in units of return per cost


class Finding(NamedTuple):
    """One sentence about one number, and what to change where it is a warning."""

    topic: Topic
    status: Literal["ok", "warning"]
    text: str


class Diagnosis(NamedTuple):
    """All of it."""

    run: str
    algo: str
    task: str
    iteration: int
    settings: dict[str, Any]  # of the algorithm, that were tried instead of the run's own
    batch_size: int
    batches: int  # that were drawn
    apart: int  # batches so far apart have no episode in common
    updates: int  # each from another batch
    episodes: int  # of either policy, for the measured changes
    progress: float  # share of the training that lies behind
    levels: tuple[Level, ...]  # [1 + K], as all that is of a signal
    critics: tuple[Explained, ...]
    gradients: tuple[Gradient, ...]
    changes: tuple[Change, ...]
    kl: tuple[Trace, ...]  # of the first update
    multipliers: tuple[Multiplier, ...]  # () where the algorithm has none
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return _plain(self)


def _plain(value: Any) -> Any:
    """Named tuples as objects, other tuples as lists, what is not finite as null."""
    if isinstance(value, tuple):
        if hasattr(value, "_asdict"):
            return {name: _plain(field) for name, field in value._asdict().items()}
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {name: _plain(field) for name, field in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
