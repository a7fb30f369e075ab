"""What a run was asked to do: resolved, checked, readable, and re-loadable from config.json."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin, get_type_hints

from cupola.algos import default_preset, load_algorithm, owners
from cupola.checks import check, check_not_negative, check_types
from cupola.cores import available_cores
from cupola.errors import CupolaError, CupolaWarning, unknown
from cupola.gym.options import GymOptions, is_foreign, only_for_gym
from cupola.naming import slug, text_of
from cupola.runs.directory import FORMAT, RunDirectory
from cupola.runs.schema import Record
from cupola.runs.sinks import SinkName, check_names
from cupola.tasks.base import TaskSpec
from cupola.types import Problem
from cupola.version import __version__

if TYPE_CHECKING:  # options are read without waiting for JAX
    from cupola.algos.config import OnPolicyConfig

Limits = dict[str, float]
LONGEST_NAME = 100
"""Characters of a run directory's name."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is the same for all algorithms."""

    GROUP = "run"

    seed: int = 0
    """Of all that is random: networks, environments, actions."""
    iterations: int = 500
    """Updates; each takes batch_size environment steps."""
    threads: int = 0
    """Cores to use; 0 means all. The results do not depend on it."""
    checkpoint_every: int = 10
    """Iterations between two checkpoints."""
    keep_checkpoints: int = 3
    """Newest checkpoints that are kept, beside the best one."""
    evaluate_every: int = 0
    """Iterations between two evaluations on episodes of their own; 0: none."""
    evaluate_episodes: int = 10
    """Episodes of each, once with sampled and once with deterministic actions."""
    patience: int = 0
    """End the run when no better policy was found for so many iterations; 0: never."""
    start_from: str = ""
    """A run whose policy, critics and observation statistics this one begins with."""
    sinks: tuple[SinkName, ...] = ("tensorboard",)
    """Where metrics go beside the run's own files: any of tensorboard, wandb, mlflow."""

    def __post_init__(self) -> None:
        check_types(self)
        check(0 <= self.seed < 2**32, f"seed must lie in [0, 2^32), not {self.seed}.")
        check(self.threads >= 0, f"threads must not be negative, not {self.threads}.")
        for name in ("iterations", "checkpoint_every", "keep_checkpoints", "evaluate_episodes"):
            check(
                getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}."
            )
        check_not_negative(self, "evaluate_every", "patience")
        check_names(self.sinks)

    @property
    def cores(self) -> int:
        """Cores that the training uses."""
        return self.threads or available_cores()

    @property
    def engine_threads(self) -> int:
        """Threads of the physics of each of the two collectors."""
        return max(1, self.cores // 2)


LATER = ("evaluate_every", "evaluate_episodes", "patience")
"""Options that older runs of this format do not know: written where they are not the default."""


class Decay(NamedTuple):
    """What the learning rates follow from an iteration on: a fall to zero over a stretch."""

    since: int
    begin: int
    end: int


class Ending(NamedTuple):
    """Where a run ended before all of its iterations were done, and why."""

    iteration: int
    reason: str


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
    decay: tuple[Decay, ...] = ()
    """Of a run whose iterations were changed; empty: one over all iterations."""
    ended: Ending | None = None

    @property
    def last(self) -> int:
        """The iteration with which the run is finished."""
        return self.ended.iteration if self.ended else self.options.iterations

    @property
    def _stretches(self) -> tuple[Decay, ...]:
        return self.decay or (Decay(0, 0, self.options.iterations),)

    def progress(self, iteration: int) -> float:
        """The share of the learning rates' decay that lies behind, in [0, 1)."""
        _, begin, end = [d for d in self._stretches if d.since <= iteration][-1]
        return (iteration - begin) / (end - begin)

    def trained_on(self, done: int, iterations: int, restart_decay: bool) -> RunConfig:
        """The same run with so many iterations, of which ``done`` are done.

        The decay of the learning rates is stretched to the new end, or begins again now.
        """
        if iterations < done:
            raise CupolaError(f"{done} iterations are done: write --iterations {done} or more.")
        stretches = self._stretches
        begin = done if restart_decay else stretches[-1].begin
        if iterations > done and (begin, iterations) != stretches[-1][1:]:
            earlier = [d for d in stretches if d.since < done]
            stretches = (*earlier, Decay(done, begin, iterations))
        # What has run out of patience would do so again at once.
        patience = 0 if self.ended else self.options.patience
        options = dataclasses.replace(self.options, iterations=iterations, patience=patience)
        decay = () if stretches == (Decay(0, 0, iterations),) else stretches
        return dataclasses.replace(self, options=options, decay=decay, ended=None)

    def decay_in_words(self, done: int) -> str:
        """What the learning rates do from here on; nothing where they do not change."""
        if self.algorithm.lr_decay == "none" or not self.decay:
            return ""
        return (
            f"learning rates: {1 - self.progress(done):.0%} of their start now, falling to 0 at"
            f" iteration {self.decay[-1].end}"
        )

    def default_path(self, spec: TaskSpec) -> Path:
        """runs/ALGO-TASK-SEED, with all that was asked for besides before the seed."""
        task = re.sub(r"[^\w.-]+", "-", self.task).strip("-")
        asked = (slug(f"{name}={text_of(value)}") for name, value in self.asked(spec).items())
        name = "-".join((self.algo, task, *asked, str(self.options.seed)))
        if len(name) > LONGEST_NAME:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            name = f"{name[:LONGEST_NAME]}-{digest}-{self.options.seed}"
        return Path("runs") / name

    def asked(self, spec: TaskSpec) -> dict[str, Any]:
        """Limits, preset and fields that are not the default and change what is learned."""
        module = load_algorithm(self.algo)
        found: dict[str, Any] = {}
        if self.preset != default_preset(module):
            found["preset"] = self.preset
        for cost in spec.costs:
            standard, limit = (
                math.inf if x is None else x for x in (cost.limit, self.limits.get(cost.name))
            )
            if limit != standard:
                found[cost.name] = limit
        options = {name: getattr(self.options, name) for name in ("iterations", "patience")}
        kinds = ((options, RunOptions()), (vars(self.algorithm), module.PRESETS[self.preset]))
        for fields, standards in (*kinds, (vars(self.gym or GymOptions()), GymOptions())):
            found |= {k: v for k, v in fields.items() if v != getattr(standards, k)}
        if self.options.start_from:
            found["start_from"] = Path(self.options.start_from).name
        return found

    def to_json(self) -> Record:
        return {
            "cupola": __version__,
            "format": FORMAT,
            "algo": self.algo,
            "task": self.task,
            "preset": self.preset,
            "limits": self.limits,
            **_plain_options(self.options),
            "algorithm": _plain(self.algorithm),
            **({} if self.gym is None else {"gym": _plain(self.gym)}),
            **({"decay": [list(stretch) for stretch in self.decay]} if self.decay else {}),
            **({"ended": self.ended._asdict()} if self.ended else {}),
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
            known = [name for name in names if name not in LATER or name in record]
            return cls(
                algo=record["algo"],
                task=record["task"],
                preset=record["preset"],
                limits={k: float(v) for k, v in record["limits"].items()},
                options=build(RunOptions, {name: record[name] for name in known}),
                algorithm=build(module.Config, record["algorithm"]),
                gym=build(GymOptions, record["gym"]) if "gym" in record else None,
                decay=_decay_from(record),
                ended=_ending_from(record),
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
            known = [name for own in names for name in own]
            raise of_others(owners(name), name, algo) or unknown("field", name, known)
    options, algorithm, gym = ({k: v for k, v in fields.items() if k in own} for own in names)
    return Settings(
        preset=preset,
        options=build(RunOptions, options),
        algorithm=build(module.Config, _plain(module.PRESETS[preset]) | algorithm),
        gym=build(GymOptions, gym),
    )


def of_others(whose: Sequence[str], shown: str, algo: str) -> CupolaError | None:
    """An error for a field that only other algorithms have: ``whose`` it is."""
    if not whose:
        return None
    return CupolaError(f"{algo} has no {shown}: it belongs to {', '.join(whose)}.")


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


def warn_of_limits(config: RunConfig) -> None:
    """For whoever gave a limit to an algorithm that does not look at it."""
    if not getattr(load_algorithm(config.algo), "CONSTRAINED", True):
        warnings.warn(
            f"{config.algo} ignores limits: costs are measured and shown beside them, and nothing"
            " holds them.",
            CupolaWarning,
            stacklevel=3,
        )


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
        act_bound=spec.act_bound,
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


def _decay_from(record: Record) -> tuple[Decay, ...]:
    """The stretches of a record, the first from the first iteration on, the others later."""
    stretches = tuple(Decay(*stretch) for stretch in record.get("decay", ()))
    since = [stretch.since for stretch in stretches]
    if since and (since[0] != 0 or since != sorted(set(since))):
        raise ValueError("the decay begins in no order")
    if any(not 0 <= begin <= start < end for start, begin, end in stretches):
        raise ValueError("the decay ends before it begins")
    if stretches and stretches[-1].end < record["iterations"]:
        raise ValueError("the decay ends before the iterations do")
    return stretches


def _ending_from(record: Record) -> Ending | None:
    if "ended" not in record:
        return None
    ended = Ending(**record["ended"])
    if ended.iteration > record["iterations"]:
        raise ValueError("the run ended after its iterations")
    return ended


def _plain_options(options: RunOptions) -> dict[str, Any]:
    record = _plain(options)
    for name in LATER:
        if record[name] == getattr(RunOptions, name):
            del record[name]
    return record


def _plain(config: Any) -> dict[str, Any]:
    """The fields of a config as JSON can hold them."""
    record = dataclasses.asdict(config)
    return {k: "inf" if isinstance(v, float) and math.isinf(v) else v for k, v in record.items()}
