"""`cupola train`: the fields of the algorithm, of the run and of the environment as options."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tyro.conf import Positional, UseAppendAction, arg

from cupola.commands.options import gathered, groups, made, names_of_fields
from cupola.commands.parsing import (
    OptionalPath,
    option_names,
    option_value,
    parse,
    program,
    refuse_unknown_options,
)
from cupola.compilation import warm_up_cache
from cupola.display import ProgressDisplay, Terminal, state_of, summary_of
from cupola.errors import CupolaError, unknown

if TYPE_CHECKING:
    from cupola.algos.config import OnPolicyConfig
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions
    from cupola.training import Run

ALGO = Annotated[Positional[str], arg(metavar="ALGO", help="See 'cupola list'.")]
TASK = Annotated[
    Positional[str],
    arg(
        metavar="TASK",
        help="See 'cupola list'; or gym:ID, or env:package.module:function (Gymnasium).",
    ),
]
LIMIT = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(metavar="X|NAME=X", help="Limit of the task's cost, or of a named one."),
]
OUT = Annotated[
    OptionalPath, arg(help="Directory of the run; default runs/ and what is asked for.")
]


COMMON = ("limit", "out", "preset")
"""The options beside the groups."""


class Asked(NamedTuple):
    """What `cupola train` was asked for."""

    algo: str
    task: str
    limit: tuple[str, ...]
    out: Path | None
    preset: str
    options: RunOptions
    algorithm: OnPolicyConfig
    gym: GymOptions


def run(args: Sequence[str]) -> None:
    asked = parse_train(args)
    from cupola.config import Settings, run_config, warn_of_limits
    from cupola.task_source import find_task
    from cupola.training import start

    settings = Settings(asked.preset, asked.options, asked.algorithm, asked.gym)
    limits, threads = parse_limits(asked.limit), asked.options.engine_threads
    factory = find_task(asked.task, gym=asked.gym, limits=limits, threads=threads)
    config = run_config(asked.algo, factory.spec, limits, settings)
    if limits is not None:
        warn_of_limits(config)
    console = Terminal()
    warm_up_cache()
    with ProgressDisplay(console) as progress:
        run = start(config, factory, asked.out, watcher=progress)
    conclude(console, run)


def parse_train(args: Sequence[str]) -> Asked:
    """Arguments of `cupola train`, whose fields depend on the algorithm and the preset."""
    from cupola import algos, tasks
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions, is_foreign

    if not args or args[0].startswith("-"):
        if "--help" in args or "-h" in args:
            show_common_help()
        raise CupolaError(
            "say what to train: cupola train ALGO TASK, for example 'cupola train cup HopperSpeed'"
            " (see 'cupola list')."
        )
    algo, rest = args[0], args[1:]
    # What is wrong with names and options is said at once: the module of an algorithm loads JAX.
    presets = algos.presets(algo)
    preset = option_value(rest, "--preset") or presets[0]
    if preset not in presets:
        raise unknown("preset", preset, presets)
    if rest and not rest[0].startswith("-") and not is_foreign(rest[0]):
        tasks.spec_of(rest[0])
    if fields := names_of_fields(algo):
        own = {*COMMON, *option_names(RunOptions), *option_names(GymOptions)}
        explain = functools.partial(explain_option, algo=algo)
        refuse_unknown_options(fields | own, rest, f"train {algo}", explain)
    return parse_options(algo, preset, rest)


def parse_options(algo: str, preset: str, args: Sequence[str]) -> Asked:
    """The task and the options of an algorithm."""
    from cupola import algos
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions

    module = algos.load_algorithm(algo)
    kind = arguments(algo, preset)
    explain = functools.partial(explain_option, algo=algo)
    parsed: Any = parse(kind, args, f"train {algo}", explain=explain)
    nested = [v for v in vars(parsed).values() if dataclasses.is_dataclass(v)]
    options, algorithm, gym = (
        gathered(kind, nested) for kind in (RunOptions, module.Config, GymOptions)
    )
    return Asked(algo, parsed.task, parsed.limit, parsed.out, preset, options, algorithm, gym)


def arguments(algo: str, preset: str) -> type:
    """The arguments of `cupola train ALGO` as a dataclass."""
    from cupola import algos
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions

    module = algos.load_algorithm(algo)
    presets, standard = ", ".join(module.PRESETS), algos.default_preset(module)
    preset_option = Annotated[str, arg(metavar="NAME", help=f"One of {presets}.")]
    own = module.__name__.rpartition(".")[2]
    nested = groups(RunOptions(), module.PRESETS[preset], GymOptions(), own=own)
    fields: list[Any] = [
        ("task", TASK),
        ("limit", LIMIT, ()),
        ("out", OUT, None),
        ("preset", preset_option, standard),
        *nested,
    ]
    return made("Train", fields, (module.__doc__ or "").partition("\n")[0])


def show_common_help() -> None:
    """The help of `cupola train` where no algorithm is named; ends the program."""
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions

    nested = groups(RunOptions(), GymOptions())
    fields: list[Any] = [("algo", ALGO), ("task", TASK), ("limit", LIMIT, ()), ("out", OUT, None)]
    kind = dataclasses.make_dataclass("Train", [*fields, *nested], frozen=True)
    text = (
        "Train a policy: cupola train cup HopperSpeed. These options are the same for all"
        " algorithms. Each has more of its own, and presets of them: cupola train cup --help."
    )
    parse(kind, ["--help"], "train", text)


def explain_option(option: str, algo: str) -> CupolaError | None:
    """An error for an option that other algorithms have."""
    from cupola import algos
    from cupola.config import of_others

    field = option[2:].replace("-", "_")
    whose = [name for name in algos.names() if field in (names_of_fields(name) or ())]
    return of_others(whose, option, algo)


def parse_limits(texts: Sequence[str]) -> float | dict[str, float] | None:
    """`82.7`, or `speed=80` any number of times."""
    if not texts:
        return None
    named: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            limit = float(value)
        except ValueError:
            raise CupolaError(
                f"--limit takes a number or NAME=number, for example --limit 25, not {text!r}."
            ) from None
        if not equals and len(texts) == 1:
            return limit
        if not equals or name in named:
            raise CupolaError("several limits need one name each, for example --limit speed=80.")
        named[name] = limit
    return named


def conclude(console: Terminal, run: Run) -> None:
    """The closing table and the next commands; exit code 130 where the run was stopped."""
    from cupola.gym.consent import effects_of_sinks
    from cupola.task_source import effects_of_run

    if run.metrics:
        console.print(summary_of(run))
    effects = effects_of_run(run.config)
    if not run.finished:
        trust = " --trust" if effects or effects_of_sinks(run.config.options.sinks) else ""
        next_command = f"{program()} resume {run.path}{trust}"
        console.print(f"stopped; continue with: {next_command}", soft_wrap=True)
        sys.exit(130)
    ended = run.config.ended
    if state := state_of(run):
        console.print(state, soft_wrap=True)
    elif ended:
        asked = run.config.options.iterations
        console.print(
            f"ended at iteration {ended.iteration} of {asked}: {ended.reason}.", soft_wrap=True
        )
    console.print("next:")
    trust = " --trust" if effects else ""
    which = " --checkpoint best" if run.best else ""
    console.print(f"  {program()} eval {run.path}{trust} --episodes 20{which}", soft_wrap=True)
    if "tensorboard" in run.config.options.sinks:
        look = f"tensorboard --logdir {run.path}  (pip install tensorboard)"
        console.print(f"  {look}", soft_wrap=True)
