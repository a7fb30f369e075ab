"""Ctrl-C, termination, a closed terminal, dead pipes; then resume: the same, bit for bit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

from attacks.kinds.kills import lines_of, wait_for_lines
from attacks.places import Place
from attacks.programs import fork
from attacks.subjects import SUBJECTS, check_resumes, reference
from attacks.verdicts import check_manners, require

SHARE, SECONDS, WARM, COUNTS = 6.0, 120.0, False, "attack"

ONE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def attack(random: Random, place: Place) -> None:
    subject = random.choice(SUBJECTS)
    whole, run = reference(place.library, subject), place.work / "run"
    twice, dead = random.random() < 0.25, random.random() < 0.4
    number = random.choice(ONE)
    reader, writer = os.pipe()
    victim = fork(subject.command(run), place.work, stdout=writer if dead else None)
    os.close(writer)
    lines = random.randint(1, subject.iterations - 1)
    try:
        wait_for_lines(victim, run, lines)
    finally:
        os.close(reader)
    time.sleep(random.uniform(0, 0.03))
    victim.send(number)
    if twice:
        time.sleep(random.choice((0.0, random.uniform(0, 0.05))))
        victim.send(number)
    outcome = victim.wait()
    what = (
        f"{signal.Signals(number).name}{' twice' if twice else ''}{', dead pipe' if dead else ''}"
    )
    done = lines_of(run) == subject.iterations and outcome.code == -number
    if done:
        pass  # it came after the training, which then needs no time to stop
    elif not dead:
        at_once = twice and outcome.code == -number
        if not at_once:
            check_manners(outcome, what)
            require(outcome.code in (0, 130), f"{what}: exit code {outcome.code}")
    elif not twice:
        # Nobody reads what it says: 130, 0 if it was done already, or 1 for the dead pipe.
        require(outcome.code in (0, 1, 130), f"{what}: exit code {outcome.code}")
    if not twice:
        check_saved(run, what)
    check_resumes(subject, run, whole)


def check_saved(run: Path, what: str) -> None:
    """The iteration at hand was finished, and all of it is in a checkpoint."""
    names = sorted(path.stem for path in (run / "checkpoints").glob("*.safetensors"))
    newest, logged = int(names[-1]) if names else 0, lines_of(run)
    require(newest == logged, f"{what}: checkpoint {newest} at iteration {logged}")
