"""What a run was asked to do: resolved, checked, readable, and re-loadable from config.json."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, get_origin, get_type_hints

from cupola.algos import load_algorithm
from cupola.algos.config import OnPolicyConfig
from cupola.checks import check, check_types
from cupola.errors import CupolaError, unknown
from cupola.gym.options import GymOptions
from cupola.tasks.base import TaskSpec
from cupola.types import Problem
from cupola.version import __version__

Limits = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is the same for all algorithms."""

    seed: int = 0
    iterations: int = 500
    """Updates; each takes batch_size environment steps."""
    threads: int = 0
    """Cores to use; 0 means all. The results do not depend on it."""
    checkpoint_every: int = 10
    """Iterations between two checkpoints."""
    keep_checkpoints: int = 3
    start_from: str = ""
    """A run whose policy, critics and observation statistics this one begins with."""

    def __post_init__(self) -> None:
        check_types(self)
        check(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")
        check(self.threads >= 0, f"threads must not be negative, not {self.threads}.")
        for name in ("iterations", "checkpoint_every", "keep_checkpoints"):
            check(
                getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}."
            )


@dataclass(frozen=True)
class RunConfig:
    """A run, resolved."""

    algo: str
    task: str
    preset: str
    limits: Limits
    """Limit of each cost that is constrained, by name, in the task's order."""
    options: RunOptions
    algorithm: OnPolicyConfig
    gym: GymOptions | None = None
    """Of a Gymnasium environment."""

    def to_json(self) -> dict[str, Any]:
        return {
            "cupola": __version__,
            "algo": self.algo,
            "task": self.task,
            "preset": self.preset,
            "limits": self.limits,
            **_plain(self.options),
            "algorithm": _plain(self.algorithm),
            **({} if self.gym is None else {"gym": _plain(self.gym)}),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> RunConfig:
        try:
            module = load_algorithm(record["algo"])
            names = [field.name for field in dataclasses.fields(RunOptions)]
            return cls(
                algo=record["algo"],
                task=record["task"],
                preset=record["preset"],
                limits={k: float(v) for k, v in record["limits"].items()},
                options=RunOptions(**{name: record[name] for name in names}),
                algorithm=build(module.Config, record["algorithm"]),
                gym=build(GymOptions, record["gym"]) if "gym" in record else None,
            )
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise CupolaError(f"config.json is incomplete or damaged ({error!r}).") from None


def resolve(
    algo: str,
    spec: TaskSpec,
    preset: str,
    limits: float | Limits | None,
    fields: dict[str, Any],
    gym: GymOptions | None = None,
) -> RunConfig:
    """A checked config from a preset, limits and overriding fields of options and algorithm."""
    module = load_algorithm(algo)
    if preset not in module.PRESETS:
        raise unknown("preset", preset, module.PRESETS)
    option_names = [field.name for field in dataclasses.fields(RunOptions)]
    algorithm_names = [field.name for field in dataclasses.fields(module.Config)]
    for name in fields:
        if name not in (*option_names, *algorithm_names):
            raise unknown("field", name, (*option_names, *algorithm_names))
    options = {k: v for k, v in fields.items() if k in option_names}
    overrides = {k: v for k, v in fields.items() if k in algorithm_names}
    return RunConfig(
        algo=module.__name__.rpartition(".")[2],
        task=spec.name,
        preset=preset,
        limits=resolve_limits(spec, limits),
        options=RunOptions(**options),
        algorithm=build(module.Config, _plain(module.PRESETS[preset]) | overrides),
        gym=gym,
    )


def no_cost(spec: TaskSpec) -> str:
    """What to write where a task has nothing to limit."""
    return (
        f"{spec.name} measures no cost: give a function, --cost package.module:function"
        " (cost=function in Python)."
    )


def resolve_limits(spec: TaskSpec, limits: float | Limits | None) -> Limits:
    """The task's default limits with the given ones put in; inf takes one out.

    One number means the task's only cost.
    """
    resolved = {cost.name: cost.limit for cost in spec.costs if cost.limit is not None}
    available = [cost.name for cost in spec.costs]
    if isinstance(limits, int | float):
        meant = list(resolved) or available
        if len(meant) > 1 and "cost" in meant:
            meant = ["cost"]
        if len(meant) != 1:
            raise CupolaError(
                f"{spec.name} has several costs: name them, for example {', '.join(available)}."
                if available
                else no_cost(spec)
            )
        limits = {meant[0]: float(limits)}
    return checked_limits(spec, resolved | (limits or {}))


def checked_limits(spec: TaskSpec, limits: Limits) -> Limits:
    """The limits below inf in the order of the task's costs, or what is wrong with them."""
    available = [cost.name for cost in spec.costs]
    for name, value in limits.items():
        if name not in available:
            raise unknown(f"cost of {spec.name}", name, available)
        check(
            value >= 0,
            f"the limit of {name} must be a number of at least 0 (or inf, for none), not {value}.",
        )
    return {
        name: float(limits[name]) for name in available if limits.get(name, math.inf) < math.inf
    }


def problem_of(spec: TaskSpec, limits: Limits) -> Problem:
    """The problem that a task and resolved limits pose."""
    limits = checked_limits(spec, limits)
    discounted = {cost.name: cost.discounted for cost in spec.costs}
    return Problem(
        obs_size=len(spec.inputs),
        act_size=spec.act_size,
        costs=tuple(limits),
        limits=tuple(limits.values()),
        discounted=tuple(discounted[name] for name in limits),
        discrete=spec.discrete,
    )


def build(kind: type, record: dict[str, Any]) -> Any:
    """A config dataclass from plain JSON values: lists become tuples, "inf" the number."""
    hints = get_type_hints(kind)
    fields = {}
    for name, value in record.items():
        if name not in hints:
            raise unknown("field", name, hints)
        if get_origin(hints[name]) is tuple and isinstance(value, list):
            value = tuple(value)
        elif hints[name] is float and value == "inf":
            value = math.inf
        fields[name] = value
    return kind(**fields)


def _plain(config: Any) -> dict[str, Any]:
    """The fields of a config as JSON can hold them."""
    record = dataclasses.asdict(config)
    return {k: "inf" if isinstance(v, float) and math.isinf(v) else v for k, v in record.items()}
