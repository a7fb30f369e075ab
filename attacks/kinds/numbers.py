"""Environments that give NaN, 1e30, wrong shapes, exceptions, or hang and kill their process."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from random import Random

from attacks.places import Place
from attacks.programs import Victim, fork, python_path, slowly
from attacks.subjects import TINY
from attacks.verdicts import check_manners, require
from attacks.worlds import DEEDS, MISDEEDS, NUMBERS, ORDER

SHARE, SECONDS, WARM, COUNTS = 5.0, 120.0, False, "attack"

DEADLY = ("abort", "kill")
STOPS = ("exit", "exit 0", "raise base", "interrupt")
"""What ends a process that an environment runs in is allowed to end the training, if it says so."""


def attack(random: Random, place: Place) -> None:
    numbers = [f"{where} {name}" for where in ("obs", "reward", "cost") for name in NUMBERS]
    what = random.choice((*numbers, *MISDEEDS, *DEEDS, *DEEDS, "reset", "reset alone"))
    workers = 2 if random.random() < 0.25 or (what in DEADLY and random.random() < 0.8) else 0
    order = {"what": what, "at": random.choice((0, 1, 25, 40, 60))}
    run = place.work / "run"
    command = [
        *("train", "ppo_lag", "env:attacks.worlds:Hostile", *TINY, "--max-episode-steps", "15"),
        *("--iterations", "6", "--checkpoint-every", "1", "--sinks", "--workers", str(workers)),
        *("--out", str(run)),
    ]
    os.environ[ORDER] = json.dumps(order)
    os.environ["PYTHONPATH"] = python_path()
    victim = fork(command, place.work)
    shown = f"{what} at step {order['at']}, {workers} workers"
    if what == "hang":
        end_hanging(victim, run, shown, at_start=order["at"] < 20)
        return
    outcome = victim.wait(60)
    in_training = workers == 0 or order["at"] <= 1  # which tries it for a few steps
    if in_training and (what in DEADLY or what in STOPS):
        require("Traceback" not in outcome.err, f"{shown}: traceback")
        return
    check_manners(outcome, shown)
    if outcome.code == 0:
        check_finite(run, shown)


def end_hanging(victim: Victim, run: Path, shown: str, at_start: bool) -> None:
    """Two times Ctrl-C end a training whose environment never answers."""
    time.sleep(slowly(6.0))
    require(victim.poll() is None, f"{shown}: it did not hang")
    victim.send(signal.SIGINT)
    time.sleep(slowly(0.5))
    if not at_start:
        require(victim.poll() is None, f"{shown}: one Ctrl-C ended it")
    victim.send(signal.SIGINT)
    outcome = victim.wait(20)
    require("Traceback" not in outcome.err, f"{shown}: traceback after Ctrl-C")
    require(outcome.code in (130, -signal.SIGINT), f"{shown}: exit code {outcome.code}")


def check_finite(run: Path, shown: str) -> None:
    """A run that ended well has finite numbers: in its metrics, its networks and its moments."""
    import numpy as np
    from safetensors.numpy import load_file

    for line in (run / "metrics.jsonl").read_text().splitlines():
        require("NaN" not in line and "Infinity" not in line, f"{shown}: metrics are not finite")
    newest = sorted((run / "checkpoints").glob("*.safetensors"))[-1]
    for name, array in load_file(newest).items():
        if name.startswith(("learner.", "moments")):
            require(np.isfinite(array).all(), f"{shown}: it ended well, but {name} is not finite")
