"""Set cupola's Safety Gym beside Safety-Gymnasium 1.0.0: environment steps a second.

    python benchmarks/versus_safety_gymnasium.py --peer-python PYTHON3.10 \
        [--tasks PointGoal1 CarGoal1 PointButton1 CarButton1] [--envs 32] [--rounds 5] \
        [--out benchmarks/results/versus_safety_gymnasium.json]

A round measures, one after the other and under random actions,

- `peer`: Safety-Gymnasium, one environment in one process, as it comes;
- `physics`: the batch engine alone, stepping the same model with all cores, gremlins led along
  their circles, no observation, reward or cost;
- `task`: whole steps of one batch of environments, physics on all cores;
- `crews`: whole steps of two halves side by side, as a training collects them.

Episodes begin staggered, so that resets are spread evenly and counted. Rounds alternate so that all
share the machine's noise; the figures are medians over the rounds, ratios within a round.

Safety-Gymnasium needs its own Python 3.10, because it pins packages that newer Pythons cannot
install:

    python3.10 -m venv peer-env
    peer-env/bin/pip install safety-gymnasium==1.0.0 "numpy<2"

and then `--peer-python peer-env/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cupola.cores import available_cores
from cupola.errors import CupolaError
from cupola.tasks import make_task
from cupola.tasks.base import Task

HERE = Path(__file__).resolve().parent
TASKS = ("PointGoal1", "CarGoal1", "PointButton1", "CarButton1")
WARM_UP = 20


def drive(task: Task, actions: np.ndarray, step: Callable[[Task, np.ndarray], object]) -> float:
    """Seconds that ``actions`` [T, N, 2] take."""
    began = time.perf_counter()
    for action in actions:
        step(task, action)
    return time.perf_counter() - began


def prepare(name: str, envs: int, threads: int, rng: np.random.Generator) -> Task:
    """A task in full swing."""
    task = make_task(name, envs, ("cost",), threads)
    task.reset(0, stagger=True)
    drive(task, rng.uniform(-1, 1, (WARM_UP, envs, 2)), Task.step)
    return task


def measure_task(name: str, envs: int, steps: int, cores: int, seed: int) -> dict[str, float]:
    """Steps a second of the engine alone, of one batch, and of two halves side by side."""
    rng = np.random.default_rng(seed)
    halves = [envs - envs // 2, envs // 2]
    bare = prepare(name, envs, cores, rng)
    whole = prepare(name, envs, cores, rng)
    crews = [prepare(name, size, max(1, cores // 2), rng) for size in halves]
    found = {}
    found["physics"] = drive(
        bare, rng.uniform(-1, 1, (steps, envs, 2)), lambda t, a: t.step_engine(a)
    )
    found["task"] = drive(whole, rng.uniform(-1, 1, (steps, envs, 2)), lambda t, a: t.step(a))
    actions = [rng.uniform(-1, 1, (steps, size, 2)) for size in halves]
    with ThreadPoolExecutor(2) as pool:
        began = time.perf_counter()
        jobs = [
            pool.submit(drive, crew, mine, lambda t, a: t.step(a))
            for crew, mine in zip(crews, actions, strict=True)
        ]
        for job in jobs:
            job.result()
        found["crews"] = time.perf_counter() - began
    return {kind: steps * envs / seconds for kind, seconds in found.items()}


def measure_peer(python: str, name: str, steps: int) -> dict[str, Any]:
    script = str(HERE / "safety_gymnasium_peer.py")
    # -E: cupola's PYTHONPATH is not for the other interpreter.
    command = [python, "-E", script, "--task", f"Safety{name}-v0", "--steps", str(steps)]
    try:
        child = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CupolaError(f"cannot run {python} ({error.strerror}).") from error
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CupolaError(f"Safety-Gymnasium failed with exit code {child.returncode} ({last}).")
    result: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return result


def summarise(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Medians of the speeds, and of the ratios within a round."""
    speeds = {kind: median(row[kind] for row in rounds) for kind in rounds[0]}
    best = [max(row["task"], row["crews"]) for row in rounds]
    pairs = list(zip(rounds, best, strict=True))
    return speeds | {
        "task_over_peer": median(row["task"] / row["peer"] for row in rounds),
        "crews_over_peer": median(row["crews"] / row["peer"] for row in rounds),
        "best_over_peer": median(speed / row["peer"] for row, speed in pairs),
        "task_over_physics": median(row["task"] / row["physics"] for row in rounds),
        "crews_over_physics": median(row["crews"] / row["physics"] for row in rounds),
        "best_over_physics": median(speed / row["physics"] for row, speed in pairs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Set cupola beside Safety-Gymnasium.")
    parser.add_argument("--peer-python", required=True, help="Safety-Gymnasium's interpreter")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--envs", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300, help="of each batch, in a round")
    parser.add_argument("--peer-steps", type=int, default=1000, help="of the peer, in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if min(arguments.steps, arguments.peer_steps, arguments.rounds) < 1 or arguments.envs < 2:
        parser.error("--steps, --peer-steps and --rounds must be at least 1, --envs at least 2")
    cores = available_cores()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.tasks}
    peer: dict[str, Any] = {}
    try:
        for index in range(arguments.rounds):
            for name in arguments.tasks:
                peer = measure_peer(arguments.peer_python, name, arguments.peer_steps)
                row = {"peer": peer["steps_per_second"]}
                row |= measure_task(name, arguments.envs, arguments.steps, cores, index)
                rounds[name].append(row)
                speeds = ", ".join(f"{kind} {speed:,.0f}" for kind, speed in row.items())
                print(f"round {index + 1}: {name}: {speeds} steps/s", file=sys.stderr, flush=True)
    except CupolaError as error:
        print(error, file=sys.stderr)
        return 1
    command = [
        *("python", "benchmarks/versus_safety_gymnasium.py", "--peer-python", "PYTHON3.10"),
        *("--tasks", *arguments.tasks, "--envs", str(arguments.envs)),
        *("--steps", str(arguments.steps), "--peer-steps", str(arguments.peer_steps)),
        *("--rounds", str(arguments.rounds)),
    ]
    report = {
        "command": shlex.join(command),
        "cores": cores,
        "platform": f"{platform.system()} {platform.machine()}",
        "load_average": os.getloadavg()[0],
        "versions": {package: version(package) for package in ("mujoco", "numpy")},
        "peer": {key: peer[key] for key in ("python", "versions")},
        "medians": {name: summarise(rows) for name, rows in rounds.items()},
        "rounds": rounds,
    }
    text = json.dumps(report, indent=2)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
