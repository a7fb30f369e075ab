"""`cupola sweep`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cupola.commands.parsing import FilePath, OptionalPath, OptionalText, parse, program
from cupola.display import Terminal
from cupola.errors import CupolaError

if TYPE_CHECKING:
    from cupola.sweeps.directory import SweepDirectory
    from cupola.sweeps.loop import Pool


@dataclass(frozen=True)
class SweepArgs:
    """Train all cells of an experiment file; stop at any time and start again to go on."""

    file: FilePath
    """The experiment, a TOML file (docs/experiments.md)."""
    out: OptionalPath = None
    """Directory of the sweep; default runs/NAME."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or tasks of a Ray cluster."""
    jobs: int = 0
    """Cells at a time; 0 means as many as there are cores for."""
    address: OptionalText = None
    """Address of the Ray cluster; without it Ray uses this machine."""
    retrain_changed: bool = False
    """Throw away and train anew the cells whose settings have changed."""
    trust: bool = False
    """Import code that the file names, and use its services (docs/security.md)."""


def run(args: Sequence[str]) -> None:
    sweep(parse(SweepArgs, args, "sweep"))


def sweep(args: SweepArgs) -> None:
    """Exit code 1 where a cell failed, 130 where the sweep was stopped."""
    if args.address and args.engine != "ray":
        raise CupolaError("--address is for a Ray cluster: add --engine ray.")
    from cupola.cores import available_cores
    from cupola.gym.consent import require_consent
    from cupola.signals import stop_requests
    from cupola.sweeps import grid
    from cupola.sweeps.directory import SweepDirectory
    from cupola.sweeps.loop import work
    from cupola.sweeps.watch import SweepDisplay

    experiment = grid.read(args.file)
    require_consent(args.trust, str(args.file), experiment.effects())
    path = args.out or Path("runs") / experiment.name
    SweepDirectory.refuse_foreign(path, experiment)
    directory, console = SweepDirectory(path, experiment), Terminal()
    display = SweepDisplay(console, directory, args.jobs or available_cores())
    with (
        contextlib.closing(make_pool(directory, args)) as pool,
        stop_requests() as stopping,
        directory.lock(),
    ):
        directory.settle_changes(args.retrain_changed)
        directory.write()
        if unlisted := directory.unlisted():
            console.print(f"{len(unlisted)} runs in {path} are not in the file: left alone.")
        with display:
            statuses = work(directory, pool, display, stopping)
    console.print(display.table(statuses))
    failed = [name for name, status in statuses.items() if status.state == "failed"]
    if any(status.state in ("waiting", "interrupted") for status in statuses.values()):
        console.print("stopped; go on with the same command.")
        sys.exit(130)
    if display.has_results(statuses):
        console.print(f"next: {program()} report {path}", soft_wrap=True)
    if failed:
        first = statuses[failed[0]].reason.rstrip(".")
        raise CupolaError(
            f"{len(failed)} of {len(statuses)} cells failed; {failed[0]}: {first}. The same"
            " command tries them again."
        )


def make_pool(directory: SweepDirectory, args: SweepArgs) -> Pool:
    if args.engine == "ray":
        from cupola.sweeps.ray_engine import RayPool

        return RayPool(directory, args.jobs, args.address, trust=args.trust)
    from cupola.sweeps.local_engine import LocalPool

    return LocalPool(directory, args.jobs, trust=args.trust)
