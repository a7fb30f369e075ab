"""kill -9 of a training with two environment workers, or of a worker, then resume."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from random import Random

from attacks.kinds.kills import wait_for_lines
from attacks.places import Place
from attacks.programs import fork, python_path
from attacks.subjects import TINY, Subject, check_resumes, reference
from attacks.verdicts import check_manners, require

SHARE, SECONDS, WARM, COUNTS = 5.0, 200.0, False, "kill"

OPTIONS = (*TINY, "--workers", "2", "--max-episode-steps", "15")
POINT = Subject("point", "ppo_lag", "env:attacks.worlds:Point", 40, 4, OPTIONS)


def attack(random: Random, place: Place) -> None:
    os.environ["PYTHONPATH"] = python_path()
    whole, run = reference(place.library, POINT), place.work / "run"
    victim = fork(POINT.command(run), place.work)
    wait_for_lines(victim, run, random.randint(1, POINT.iterations - 8))
    time.sleep(random.uniform(0, 0.05))
    target = random.choice((victim.pid, *children(victim.pid)))
    alone = target != victim.pid
    require(victim.poll() is None, "it ended before it was killed")
    os.kill(target, signal.SIGKILL)
    outcome = victim.wait()
    if alone:
        check_manners(outcome, "a worker was killed")
        told = outcome.code == 1 and "worker process" in outcome.err
        require(told, f"a worker was killed: exit code {outcome.code}, {outcome.sentence}")
    check_resumes(POINT, run, whole, trust=True)


def children(pid: int) -> list[int]:
    """The processes that a process has started (Linux)."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended
            found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(set(found))
