"""What can be asked of a Gymnasium environment."""

from __future__ import annotations

from dataclasses import dataclass

from cupola.checks import check, check_types
from cupola.errors import CupolaError

PREFIXES = ("gym:", "env:")
"""Of a task that is a Gymnasium id, or a function that makes an environment."""


@dataclass(frozen=True, kw_only=True)
class GymOptions:
    """For tasks of the form gym:ID or env:package.module:function."""

    GROUP = "gymnasium"

    cost: str = ""
    """Cost function of a Gymnasium environment, package.module:function; default: its own costs."""
    discounted: bool = False
    """Whether the limits of a Gymnasium environment are on discounted returns of its costs."""
    max_episode_steps: int = 0
    """Time limit of a Gymnasium environment; 0: its own, or 1000 where it has none."""
    workers: int = 0
    """Processes that step Gymnasium environments, rounded up to an even number; 0: this one."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("max_episode_steps", "workers"):
            value = getattr(self, name)
            check(value >= 0, f"{name} must not be negative, not {value}.")


def is_foreign(task: str) -> bool:
    return task.startswith(PREFIXES)


def only_for_gym(name: str) -> CupolaError:
    """An error for something given with a task that has it already."""
    return CupolaError(
        f"{name} is for Gymnasium environments (gym:ID): a task of cupola has its own."
    )
