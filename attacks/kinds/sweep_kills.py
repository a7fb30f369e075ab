"""kill -9 of a sweep with two workers, of a worker, or of all, then the same command again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

from attacks.kinds.kills import lines_of
from attacks.kinds.worker_kills import children
from attacks.places import Place
from attacks.programs import PATIENCE, Victim, program, slowly
from attacks.subjects import SHARED, check_same, made_once
from attacks.verdicts import Failed, check_manners, require

SHARE, SECONDS, WARM, COUNTS = 18.0, 300.0, False, "kill"

FILE = f"""\
iterations = 40
algorithms = ["ppo_lag"]
tasks = ["ProbeRegulator"]
seeds = 2
{SHARED}multiplier_lr = 0.1
checkpoint_every = 3
sinks = []
"""
ITERATIONS = 40


def attack(random: Random, place: Place) -> None:
    whole, out = whole_sweep(place.library), place.work / "sweep"
    command = sweep_command(place.work, out)
    sweep = program(command, place.work)
    wait_for(sweep, out, random.randrange(ITERATIONS - 5))
    time.sleep(random.uniform(0, 0.1))
    workers = children(sweep.pid) if sweep.poll() is None else []
    targets = random.choice(([sweep.pid], workers[:1], workers[1:], workers, [*workers, sweep.pid]))
    for pid in targets:
        if sweep.poll() is None and (pid == sweep.pid or pid in children(sweep.pid)):
            os.kill(pid, signal.SIGKILL)
    outcome = sweep.wait(120)
    if sweep.pid not in targets:  # it starts its workers again by itself
        check_manners(outcome, "sweep with a killed worker")
        require(outcome.code == 0, f"a worker was killed: {outcome.sentence}")
    again = check_manners(program(command, place.work).wait(120), "sweep again")
    require(again.code == 0, f"the sweep does not go on: {again.sentence}")
    check_cells(out, whole)


def sweep_command(work: Path, out: Path, *options: str) -> list[str]:
    file = work / "toy.toml"
    file.write_text(FILE)
    return ["sweep", str(file), "--out", str(out), "--jobs", "2", *options]


def whole_sweep(library: Path) -> Path:
    """The sweep that nobody disturbed."""

    def make(path: Path) -> None:
        outcome = program(sweep_command(path.parent, path), path.parent).wait(180)
        require(outcome.code == 0, f"an undisturbed sweep failed: {outcome.err}")

    return made_once(library / "killed-sweep-whole", make)


def wait_for(sweep: Victim, out: Path, lines: int) -> None:
    """Until a cell has written so many lines."""
    deadline = time.monotonic() + slowly(2 * PATIENCE)
    while sweep.poll() is None:
        cells = [path.parent for path in out.glob("*/config.json")]
        if max(map(lines_of, cells), default=-1) >= lines:
            return
        if time.monotonic() > deadline:
            raise Failed("the sweep makes no progress")
        time.sleep(0.01)


def check_cells(out: Path, whole: Path) -> None:
    for cell in sorted(path.parent for path in whole.glob("*/config.json")):
        check_same(out / cell.name, cell)
        ours, theirs = ((path / "result.json").read_bytes() for path in (out / cell.name, cell))
        require(ours == theirs, f"the evaluation of {cell.name} differs")
