"""What the configurations of all algorithms share."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cupola.core.advantages import TimeLimit
from cupola.errors import CupolaError


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig:
    """Sampling, networks and critics."""

    batch_size: int = 5000
    """Environment steps an iteration."""
    num_envs: int = 20
    """Environments that take these steps together; must divide batch_size."""
    minibatch_size: int = 64
    gamma: float = 0.99
    """Discount of the reward and of the costs."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation."""
    time_limit: TimeLimit = "bootstrap"
    """Whether the value goes on beyond an episode that the time limit cut."""
    hidden: tuple[int, ...] = (64, 64)
    log_std: float = -0.5
    """Initial log standard deviation of the actions."""
    last_layer_scale: float = 0.1
    """Factor on the initial weights of every network's last layer."""
    normalise_obs: bool = True
    """Subtract the running mean of the observations and divide by their standard deviation."""
    obs_clip: float = 5.0
    """Bound on normalised observations."""
    learning_rate: float = 3e-4
    lr_decay: Literal["all", "policy", "none"] = "all"
    """Which networks' learning rate falls linearly to zero over the training."""
    value_l2: float = 1e-3
    """Weight of the sum of squared parameters in the critics' loss."""

    def __post_init__(self) -> None:
        check_types(self)
        check(self.batch_size >= 1, "batch_size must be at least 1.")
        check(self.num_envs >= 1, "num_envs must be at least 1.")
        check(
            self.batch_size % self.num_envs == 0,
            f"num_envs must divide batch_size: {self.num_envs} environments cannot share"
            f" {self.batch_size} steps evenly, write for example"
            f" num_envs={math.gcd(self.num_envs, self.batch_size)}.",
        )
        check(
            1 <= self.minibatch_size <= self.batch_size,
            f"minibatch_size must lie between 1 and batch_size ({self.batch_size}),"
            f" not {self.minibatch_size}.",
        )
        check(0 <= self.gamma < 1, f"gamma must lie in [0, 1), not {self.gamma}.")
        check(0 <= self.lam <= 1, f"lam must lie in [0, 1], not {self.lam}.")
        check(
            len(self.hidden) > 0 and min(self.hidden) >= 1,
            "hidden needs at least one layer of at least one unit, for example hidden=(64, 64).",
        )
        positive = ("learning_rate", "obs_clip", "last_layer_scale")
        for name in positive:
            check(getattr(self, name) > 0, f"{name} must be positive, not {getattr(self, name)}.")
        check(self.value_l2 >= 0, f"value_l2 must not be negative, not {self.value_l2}.")


def check(condition: bool, message: str) -> None:
    if not condition:
        raise CupolaError(message)


def check_types(config: Any) -> None:
    """Refuse values of a wrong type, a word that is not a choice, and numbers that are not."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            check(
                value in choices,
                f"{field.name} must be one of {', '.join(map(str, choices))}, not {value!r}.",
            )
        elif hint is float:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            check(
                number and not math.isnan(value), f"{field.name} must be a number, not {value!r}."
            )
        elif hint is int:
            whole = isinstance(value, int) and not isinstance(value, bool)
            check(whole, f"{field.name} must be a whole number, not {value!r}.")
        elif hint is bool:
            check(isinstance(value, bool), f"{field.name} must be true or false, not {value!r}.")
