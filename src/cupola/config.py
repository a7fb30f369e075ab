"""What a run was asked to do: resolved, checked, readable, and re-loadable from config.json."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_origin, get_type_hints

from cupola.algos import default_preset, load_algorithm
from cupola.algos.config import OnPolicyConfig
from cupola.checks import check, check_types
from cupola.cores import available_cores
from cupola.errors import CupolaError, unknown
from cupola.gym.options import GymOptions, is_foreign, only_for_gym
from cupola.runs.directory import FORMAT, RunDirectory
from cupola.runs.schema import Record
from cupola.runs.sinks import SinkName, check_names
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
    sinks: tuple[SinkName, ...] = ("tensorboard",)
    """Where metrics go beside the run's own files: any of tensorboard, wandb, mlflow."""

    def __post_init__(self) -> None:
        check_types(self)
        check(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")
        check(self.threads >= 0, f"threads must not be negative, not {self.threads}.")
        for name in ("iterations", "checkpoint_every", "keep_checkpoints"):
            check(
                getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}."
            )
        check_names(self.sinks)

    @property
    def cores(self) -> int:
        """Cores that the training uses."""
        return self.threads or available_cores()

    @property
    def engine_threads(self) -> int:
        """Threads of the physics of each of the two collectors."""
        return max(1, self.cores // 2)


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

    def default_path(self) -> Path:
        """runs/ALGO-TASK-SEED."""
        task = re.sub(r"[^\w.-]+", "-", self.task)
        return Path("runs") / f"{self.algo}-{task}-{self.options.seed}"

    def to_json(self) -> Record:
        return {
            "cupola": __version__,
            "format": FORMAT,
            "algo": self.algo,
            "task": self.task,
            "preset": self.preset,
            "limits": self.limits,
            **_plain(self.options),
            "algorithm": _plain(self.algorithm),
            **({} if self.gym is None else {"gym": _plain(self.gym)}),
        }

    @classmethod
    def of(cls, run: RunDirectory) -> RunConfig:
        """The config of a run that was recorded."""
        record = run.config()
        try:
            return cls.from_json(record)
        except CupolaError as error:
            raise CupolaError(f"{run.config_file}: {error}") from None

    @classmethod
    def from_json(cls, record: Record) -> RunConfig:
        try:
            module = load_algorithm(record["algo"])
            names = [field.name for field in dataclasses.fields(RunOptions)]
            return cls(
                algo=record["algo"],
                task=record["task"],
                preset=record["preset"],
                limits={k: float(v) for k, v in record["limits"].items()},
                options=build(RunOptions, {name: record[name] for name in names}),
                algorithm=build(module.Config, record["algorithm"]),
                gym=build(GymOptions, record["gym"]) if "gym" in record else None,
            )
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise CupolaError(f"the config is incomplete or damaged ({error!r}).") from None


class Settings(NamedTuple):
    """All that a user can set beside algorithm, task and limits, checked.

    The command line parses it; `settings_from` builds it from the keywords of `cupola.train`.
    """

    preset: str
    """What the fields of ``algorithm`` began with."""
    options: RunOptions
    algorithm: OnPolicyConfig
    gym: GymOptions


def settings_from(algo: str, preset: str | None, fields: dict[str, Any]) -> Settings:
    """Settings from a preset and fields of options, algorithm and Gymnasium environment.

    Without a ``preset``: the algorithm's default.
    """
    module = load_algorithm(algo)
    preset = preset or default_preset(module)
    if preset not in module.PRESETS:
        raise unknown("preset", preset, module.PRESETS)
    kinds = (RunOptions, module.Config, GymOptions)
    names = [[field.name for field in dataclasses.fields(kind)] for kind in kinds]
    for name in fields:
        if not any(name in own for own in names):
            raise unknown("field", name, [name for own in names for name in own])
    options, algorithm, gym = ({k: v for k, v in fields.items() if k in own} for own in names)
    return Settings(
        preset=preset,
        options=build(RunOptions, options),
        algorithm=build(module.Config, _plain(module.PRESETS[preset]) | algorithm),
        gym=build(GymOptions, gym),
    )


def run_config(
    algo: str, spec: TaskSpec, limits: float | Limits | None, settings: Settings
) -> RunConfig:
    """The config of a run: the settings, and limits as the task's costs have them."""
    foreign = is_foreign(spec.name)
    for name, value in vars(settings.gym).items():
        if not foreign and value != getattr(GymOptions, name):
            raise only_for_gym(name)
    resolved = resolve_limits(spec, limits)
    by_time = [cost.name for cost in spec.costs if cost.discounted and cost.name in resolved]
    check(
        settings.algorithm.gamma > 0 or spec.time_limit == 1 or not by_time,
        f"the limit of {', '.join(by_time)} is on the discounted return, of which gamma=0 leaves"
        " the first step of an episode alone: write for example gamma=0.99.",
    )
    return RunConfig(
        algo=load_algorithm(algo).__name__.rpartition(".")[2],
        task=spec.name,
        preset=settings.preset,
        limits=resolved,
        options=settings.options,
        algorithm=settings.algorithm,
        gym=settings.gym if foreign else None,
    )


def resolve(
    algo: str,
    spec: TaskSpec,
    preset: str | None,
    limits: float | Limits | None,
    fields: dict[str, Any],
) -> RunConfig:
    """The config of a run from names and fields, as a user writes them."""
    return run_config(algo, spec, limits, settings_from(algo, preset, fields))


def require_limits(config: RunConfig, spec: TaskSpec) -> None:
    """Refuse to hold costs to no limit at all, unless the algorithm ignores them anyway."""
    if config.limits or not getattr(load_algorithm(config.algo), "CONSTRAINED", True):
        return
    raise CupolaError(
        f"{spec.name} has no limit yet: give one with --limit or limits= on"
        f" {' or '.join(cost.name for cost in spec.costs)}."
        if spec.costs
        else no_cost(spec)
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
        saturation=spec.saturation,
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
