"""Several processes at once on one run or sweep: one works, the others say so, no line is lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from attacks.kinds.mutants import SWEEP, sweep_of
from attacks.places import Place
from attacks.programs import Victim, fork, program
from attacks.subjects import GRID, HOPPER, REGULATOR, check_resumes, check_same, reference, stopped
from attacks.verdicts import check_manners, require

SHARE, SECONDS, WARM, COUNTS = 6.0, 200.0, False, "attack"


def attack(random: Random, place: Place) -> None:
    scenarios = (two_resumes, two_resumes, train_and_read, two_trainings, two_sweeps, sweep_resume)
    random.choice(scenarios)(random, place)


def two_resumes(random: Random, place: Place) -> None:
    subject = random.choice((REGULATOR, GRID, HOPPER))
    whole = reference(place.library, subject)
    run = place.work / "run"
    shutil.copytree(stopped(place.library, subject, subject.every + 1), run)
    finish(staggered(random, 2, lambda: fork(["resume", str(run)], place.work)))
    check_resumes(subject, run, whole)


def two_trainings(random: Random, place: Place) -> None:
    subject = random.choice((REGULATOR, GRID))
    whole, run = reference(place.library, subject), place.work / "run"
    finish(staggered(random, 2, lambda: fork(subject.command(run), place.work)))
    check_resumes(subject, run, whole)


def train_and_read(random: Random, place: Place) -> None:
    """Reports and comparisons while the run grows."""
    subject = random.choice((REGULATOR, GRID))
    whole, run = reference(place.library, subject), place.work / "run"
    victim = fork(subject.command(run), place.work)
    page = str(place.work / "page.html")
    while victim.poll() is None:
        reader = random.choice((["compare", str(run)], ["report", str(run), "--out", page]))
        check_manners(fork(reader, place.work).wait(), f"{reader[0]} during a training")
    check_manners(victim.wait(), "train")
    check_same(run, whole)


def two_sweeps(random: Random, place: Place) -> None:
    file, out = sweep_file(place), place.work / "sweep"
    command = ["sweep", str(file), "--out", str(out)]
    victims = staggered(random, 2, lambda: program(command, place.work))
    finish(victims)
    require(any(victim.code == 0 for victim in victims), "neither sweep ended well")
    check_sweep(place)


def sweep_resume(random: Random, place: Place) -> None:
    """A cell is resumed by hand while its sweep is at work."""
    file, out = sweep_file(place), place.work / "sweep"
    command = ["sweep", str(file), "--out", str(out)]
    sweep = program(command, place.work)
    cell = out / "ppo_lag-ProbeQuadratic-0"
    while sweep.poll() is None and not (cell / "config.json").exists():
        time.sleep(0.01)
    finish([sweep, *staggered(random, 2, lambda: fork(["resume", str(cell)], place.work))])
    if sweep.code:  # a resume by hand held the cell: the same command goes on
        outcome = check_manners(program(command, place.work).wait(120), "sweep")
        require(outcome.code == 0, f"the sweep does not go on: {outcome.sentence}")
    check_sweep(place)


def sweep_file(place: Place) -> Path:
    sweep_of(place.library)
    file = place.work / "toy.toml"
    file.write_text(SWEEP)
    return file


def check_sweep(place: Place) -> None:
    whole = sweep_of(place.library)
    for cell in sorted(path.parent for path in whole.glob("*/config.json")):
        check_same(place.work / "sweep" / cell.name, cell)


def staggered(random: Random, count: int, start: Callable[[], Victim]) -> list[Victim]:
    """So many at once, or almost at once."""
    victims = []
    for _ in range(count):
        victims.append(start())
        time.sleep(random.choice((0.0, random.uniform(0, 0.8))))
    return victims


def finish(victims: list[Victim]) -> None:
    for victim in victims:
        check_manners(victim.wait(120), "one of several")
