"""`cupola train`: the fields of the algorithm, of the run and of the environment as options."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from cupola.commands.parsing import option_value, parse, program
from cupola.compilation import warm_up_cache
from cupola.display import ProgressDisplay, Terminal, state_of, summary_of
from cupola.errors import CupolaError, unknown

if TYPE_CHECKING:
    from cupola.training import Run


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


def parse_train(args: Sequence[str]) -> Any:
    """Arguments of `cupola train`, whose fields depend on the algorithm and the preset."""
    from cupola import algos
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions

    asks_help = "--help" in args or "-h" in args
    positional = [a for a in args[:1] if not a.startswith("-")]
    if not positional and not asks_help:
        raise CupolaError(
            "say what to train: cupola train ALGO TASK, for example 'cupola train cup HopperSpeed'"
            " (see 'cupola list')."
        )
    module = algos.load_algorithm(positional[0] if positional else "cup")
    standard = algos.default_preset(module)
    preset = option_value(args, "--preset") or standard
    if preset not in module.PRESETS:
        raise unknown("preset", preset, module.PRESETS)
    kind = dataclasses.make_dataclass(
        "Train",
        [
            ("algo", Annotated[Positional[str], arg(metavar="ALGO", help="See 'cupola list'.")]),
            (
                "task",
                Annotated[
                    Positional[str],
                    arg(metavar="TASK", help="See 'cupola list'; or gym:ID, a Gymnasium id."),
                ],
            ),
            (
                "limit",
                Annotated[
                    UseAppendAction[tuple[str, ...]],
                    arg(metavar="X|NAME=X", help="Limit of the task's cost, or of a named one."),
                ],
                (),
            ),
            (
                "out",
                Annotated[
                    Path | None,
                    arg(help="Directory of the run; default runs/ and what is asked for."),
                ],
                None,
            ),
            (
                "preset",
                Annotated[str, arg(help=f"One of {', '.join(module.PRESETS)}.")],
                standard,
            ),
            ("options", Annotated[RunOptions, arg(name="")], RunOptions()),
            ("algorithm", Annotated[module.Config, arg(name="")], module.PRESETS[preset]),
            ("gym", Annotated[GymOptions, arg(name="")], GymOptions()),
        ],
        frozen=True,
    )
    algo = positional[0] if positional else "a policy"
    explain = functools.partial(explain_option, algo=algo)
    return parse(kind, args, "train", f"Train {algo}.", explain)


def explain_option(option: str, algo: str) -> CupolaError | None:
    """An error for an option that other algorithms have."""
    from cupola.config import of_others

    return of_others(option[2:].replace("-", "_"), option, algo)


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
