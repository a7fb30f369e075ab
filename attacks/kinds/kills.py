"""kill -9 at a random moment of a training, then resume: the same, bit for bit."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from random import Random

from attacks.places import Place
from attacks.programs import PATIENCE, Victim, fork, program, slowly
from attacks.subjects import SUBJECTS, check_resumes, reference, start_resume
from attacks.verdicts import Failed, check_manners, require

SHARE, SECONDS, WARM, COUNTS = 8.0, 120.0, False, "kill"


def prepare(library: Path) -> None:
    for subject in SUBJECTS:  # other kinds use them as well
        reference(library, subject)


def attack(random: Random, place: Place) -> None:
    subject = random.choice(SUBJECTS)
    whole, run = reference(place.library, subject), place.work / "run"
    real = random.random() < 0.1
    victim = (program if real else fork)(subject.command(run), place.work)
    kill_at(random, victim, run, random.randrange(subject.iterations))
    if random.random() < 0.3 and (run / "config.json").exists():
        victim = start_resume(run)  # and while it resumes
        kill_at(random, victim, run, random.randrange(subject.iterations))
    check_resumes(subject, run, whole)


def kill_at(random: Random, victim: Victim, run: Path, lines: int) -> None:
    """Kill a training when it has written so many lines, and a moment later."""
    wait_for_lines(victim, run, lines)
    time.sleep(random.uniform(0, 0.05 if lines else 1.0))
    victim.send(signal.SIGKILL)
    outcome = victim.wait()
    if outcome.code != -signal.SIGKILL:
        check_manners(outcome)
        require(outcome.code == 0, f"it ended before it was killed: {outcome.sentence}")


def wait_for_lines(victim: Victim, run: Path, count: int) -> None:
    deadline = time.monotonic() + slowly(PATIENCE)
    while lines_of(run) < count and victim.poll() is None:
        if time.monotonic() > deadline:
            raise Failed("the training makes no progress")
        time.sleep(0.002)


def lines_of(run: Path) -> int:
    try:
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0
