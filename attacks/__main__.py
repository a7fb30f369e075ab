"""`python -m attacks`: the arguments, and what a person sees."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from attacks import campaign, kinds, programs, tables
from attacks.campaign import Tallies, Tally
from attacks.lanes import Result

TELL_SECONDS = 60.0


def main() -> int:
    asked = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the table so far is shown
    os.environ.setdefault(programs.SLOWNESS, str(prepare()))
    found = kinds.load()
    chosen = {name: found[name] for name in asked.only or found}
    library = Path(tempfile.mkdtemp(prefix="cupola-attacks-"))
    os.environ["XDG_CACHE_HOME"] = str(library / "cache")
    for kind in chosen.values():
        getattr(kind, "prepare", lambda _: None)(library)
    console, tallies = Console(), Tallies(Tally)
    plan = (
        campaign.for_tries(chosen, asked.tries, asked.seed)
        if asked.tries
        else campaign.for_minutes(chosen, asked.minutes, asked.seed, tallies)
    )
    began = last = time.monotonic()

    def tell(result: Result, so_far: Tallies) -> None:
        nonlocal last
        if result.failure:
            print(f"FAILED {result.failure}\n    {tables.repeat(result)}", flush=True)
        if time.monotonic() - last > TELL_SECONDS:
            last = time.monotonic()
            tries = sum(tally.tries for tally in so_far.values())
            failed = sum(len(tally.failures) for tally in so_far.values())
            print(f"{(last - began) / 60:.0f} min: {tries:,} tries, {failed} failed", flush=True)

    try:
        campaign.run(chosen, plan, asked.jobs, library, tallies, tell)
    except KeyboardInterrupt:
        print("stopped; the table so far:")
    finally:
        if not os.environ.get("ATTACKS_KEEP"):
            shutil.rmtree(library, ignore_errors=True)
    console.print(tables.screen(chosen, tallies))
    failed = tables.grouped(tallies)
    for result, count in failed:
        print(f"{result.kind} ({count} like it): {result.failure}\n    {tables.repeat(result)}")
    if asked.out:
        facts = {
            "command": "python -m attacks " + " ".join(sys.argv[1:]),
            "seed": asked.seed,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "jobs": asked.jobs,
        }
        tables.write(asked.out, facts, chosen, tallies)
        print(f"written: {asked.out}/attacks.json and attacks.md")
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (5)")
    parser.add_argument("--tries", type=int, help="instead of minutes: so many of every kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="KIND", help="these kinds alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tries at a time")
    parser.add_argument("--out", type=Path, help="folder for attacks.json and attacks.md")
    parser.add_argument("--list", action="store_true", help="show the kinds")
    asked = parser.parse_args()
    names = kinds.load()
    if asked.list:
        for name, kind in names.items():
            print(f"{name:14} {kind.SHARE:4.0f}  {tables.first_line(kind)}")
        sys.exit(0)
    for name in asked.only or ():
        if name not in names:
            parser.error(f"unknown kind {name!r}: choose from {', '.join(names)}.")
    return asked


def prepare() -> float:
    """Import what the forked processes would import one by one; JAX computes nothing here.

    Returns how busy the machine is: seconds that went by for a second of work.
    """
    import importlib

    began = time.monotonic(), time.process_time()

    from cupola.cli import COMMANDS

    for command in COMMANDS:
        importlib.import_module(f"cupola.commands.{command}")
    for name in (
        *("evaluation", "training", "diagnosis.diagnose", "diagnosis.figure", "reports.page"),
        *("reports.compare", "reports.curves", "sweeps.watch", "sweeps.loop", "tasks"),
        *("sweeps.local_engine", "runs.sinks.tensorboard"),
    ):
        importlib.import_module(f"cupola.{name}")
    from cupola.tasks import specs

    specs()
    passed, worked = time.monotonic() - began[0], time.process_time() - began[1]
    return min(20.0, max(1.0, passed / worked))


if __name__ == "__main__":
    sys.exit(main())
