"""`cupola bench`."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

from rich.table import Table
from tyro.conf import FlagCreatePairsOff, Positional, arg

from cupola.commands.parsing import OptionalPath, OptionalText, parse
from cupola.commands.writing import check_place, write_new
from cupola.compilation import warm_up_cache
from cupola.cores import available_cores
from cupola.display import Terminal
from cupola.errors import CupolaError


@dataclass(frozen=True)
class BenchArgs:
    """Time whole training iterations and, in the same run, the physics alone."""

    task: Annotated[Positional[str], arg(metavar="TASK", help_behavior_hint="")] = ""
    """See 'cupola list'."""
    all: Annotated[bool, FlagCreatePairsOff] = False
    """Every family of tasks, in one table."""
    algo: str = "cup"
    preset: OptionalText = None
    """One of the algorithm's; without it its default."""
    iterations: int = 20
    repeat: int = 1
    """So many benches in a row, of which medians are shown."""
    threads: int = 0
    """Cores to use; 0 means all."""
    out: OptionalPath = None
    """JSON file for the figures."""


def run(args: Sequence[str]) -> None:
    parsed = parse(BenchArgs, args, "bench")
    if parsed.all == bool(parsed.task):
        raise CupolaError(
            "name a task, for example 'cupola bench HopperSpeed', or write --all"
            f"{', not both' if parsed.all else ''}."
        )
    for name in ("iterations", "repeat"):
        if getattr(parsed, name) < 1:
            raise CupolaError(f"{name} must be at least 1, not {getattr(parsed, name)}.")
    if parsed.out:
        check_place(parsed.out)
    from cupola.bench import FAMILIES, bench_often

    warm_up_cache()
    console = Terminal()
    results: list[dict[str, Any]] = []
    for task in FAMILIES if parsed.all else (parsed.task,):
        results.append(
            bench_often(
                task,
                parsed.repeat,
                algo=parsed.algo,
                preset=parsed.preset,
                iterations=parsed.iterations,
                threads=parsed.threads,
            )
        )
        if parsed.all:
            console.print(f"{task}: {share(results[-1]['ratio'])} of the physics ceiling")
        if parsed.out:  # after every task: the next ones may be interrupted
            written = report(parsed, args, results) if parsed.all else results[0]
            write_new(parsed.out, (json.dumps(written, indent=1) + "\n").encode())
    console.print(overview(results) if parsed.all else bench_table(results[0]))


def report(parsed: BenchArgs, args: Sequence[str], results: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--all --out` writes."""
    machine = f"{platform.system()} {platform.machine()}"
    return {
        "command": shlex.join(["cupola", "bench", *args]),
        "platform": machine,
        "cores": available_cores(),
        "versions": {name: version(name) for name in ("cupola", "jax", "mujoco", "numpy")},
        "repeat": parsed.repeat,
        "tasks": {result["task"]: result for result in results},
    }


def share(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


def overview(results: list[dict[str, Any]]) -> Table:
    first = results[0]
    often = len(first.get("repeats", ()))
    medians = f", medians of {often}" if often else ""
    table = Table(
        title=f"whole iterations of {first['algorithm']}, {first['threads']} thread(s){medians}"
    )
    for name in ("task", "steps/s", "physics", "training / physics", "of standing", "rollout s",
                 "update s"):  # fmt: skip
        table.add_column(name, justify="left" if name == "task" else "right")
    for result in results:
        table.add_row(
            result["task"],
            *(f"{result[name]:,.0f}" for name in ("steps_per_second", "physics_steps_per_second")),
            *(share(result[name]) for name in ("ratio", "standing_ratio")),
            *(f"{result[name]:.3f}" for name in ("rollout_seconds", "update_seconds")),
        )
    return table


def bench_table(result: dict[str, Any]) -> Table:
    what = f"{result['task']}: whole iterations of {result['algorithm']}"
    table = Table(title=f"{what}, {result['threads']} thread(s)")
    table.add_column("")
    table.add_column("steps/s", justify="right")
    table.add_column("seconds per iteration", justify="right")
    whole = result["rollout_seconds"] + result["update_seconds"]
    rows = (
        ("training", result["steps_per_second"], whole),
        ("  rollout", None, result["rollout_seconds"]),
        ("  update", None, result["update_seconds"]),
        ("physics ceiling", result["physics_steps_per_second"], result["physics_seconds"]),
        ("  of standing robots", None, result["standing_seconds"]),
    )
    for label, speed, seconds in rows:
        table.add_row(label, "" if speed is None else f"{speed:,.0f}", f"{seconds:.3f}")
    table.add_row("training / ceiling", share(result["ratio"]), "")
    table.add_row("  of standing robots", share(result["standing_ratio"]), "")
    return table
