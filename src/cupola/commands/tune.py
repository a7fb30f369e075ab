"""`cupola tune`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cupola.commands.parsing import FilePath, OptionalPath, parse, program
from cupola.display import Terminal


@dataclass(frozen=True)
class TuneArgs:
    """Search for the best feasible settings; stop at any time and start again to go on."""

    file: FilePath
    """The study, a TOML file with a [space] (docs/tuning.md)."""
    out: OptionalPath = None
    """Directory of the study; default runs/NAME."""
    jobs: int = 0
    """Runs at a time; 0 means as many as there are cores for."""
    trust: bool = False
    """Import code that the file names, and use its services (docs/security.md)."""


def run(args: Sequence[str]) -> None:
    tune(parse(TuneArgs, args, "tune"))


def tune(args: TuneArgs) -> None:
    """Exit code 130 where the search was stopped."""
    from cupola.cores import available_cores
    from cupola.gym.consent import require_consent
    from cupola.signals import stop_requests
    from cupola.sweeps.local_engine import LocalPool
    from cupola.tuning import sampler, study
    from cupola.tuning.directory import BEST_FILE, StudyDirectory
    from cupola.tuning.search import search
    from cupola.tuning.trials import best
    from cupola.tuning.watch import SearchDisplay, closing_table

    asked = study.read(args.file)
    require_consent(args.trust, str(args.file), asked.base.effects())
    sampler.load()
    path = args.out or Path("runs") / asked.name
    directory, console = StudyDirectory(path, asked), Terminal()
    directory.open()
    with (
        contextlib.closing(LocalPool(directory.sweep(), args.jobs, trust=args.trust)) as pool,
        stop_requests() as stopping,
        directory.sweep().lock(),
    ):
        directory.open()  # again: another process may have had the lock
        with SearchDisplay(console, directory, args.jobs or available_cores()) as display:
            search(directory, pool, display, stopping)
    console.print(closing_table(directory))
    if stopping.is_set():
        console.print("stopped; go on with the same command.")
        sys.exit(130)
    if best(directory.trials):
        console.print(f"best settings: {path / BEST_FILE}", soft_wrap=True)
        console.print(f"on new seeds: {program()} sweep {path / BEST_FILE}", soft_wrap=True)
    else:
        console.print("no trial held all limits: allow more trials, or another space.")
    console.print(f"next: {program()} report {path}", soft_wrap=True)
