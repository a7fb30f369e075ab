"""`cupola bench`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from tyro.conf import Positional

from cupola.commands.parsing import OptionalPath, parse
from cupola.commands.writing import check_place, write_new
from cupola.compilation import warm_up_cache
from cupola.display import Terminal
from cupola.errors import CupolaError


@dataclass(frozen=True)
class BenchArgs:
    """Time whole training iterations and, in the same run, the physics alone."""

    task: Positional[str]
    algo: str = "cup"
    iterations: int = 20
    threads: int = 0
    """Cores to use; 0 means all."""
    out: OptionalPath = None
    """JSON file for the figures."""


def run(args: Sequence[str]) -> None:
    parsed = parse(BenchArgs, args, "bench")
    from cupola.bench import bench

    if parsed.iterations < 1:
        raise CupolaError(f"iterations must be at least 1, not {parsed.iterations}.")
    if parsed.out:
        check_place(parsed.out)
    warm_up_cache()
    result = bench(
        parsed.task, algo=parsed.algo, iterations=parsed.iterations, threads=parsed.threads
    )
    Terminal().print(bench_table(result))
    if parsed.out:
        write_new(parsed.out, (json.dumps(result, indent=1) + "\n").encode())


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
    table.add_row("training / ceiling", f"{100 * result['ratio']:.0f} %", "")
    table.add_row("  of standing robots", f"{100 * result['standing_ratio']:.0f} %", "")
    return table
