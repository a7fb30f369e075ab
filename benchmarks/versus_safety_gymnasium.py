"""Set cupola's Safety Gym beside Safety-Gymnasium 1.0.0: environment steps a second.

    python benchmarks/versus_safety_gymnasium.py --peer-python PYTHON3.10 \
        [--tasks PointGoal1 CarGoal1 PointButton1 CarButton1] [--envs 64] [--rounds 5] \
        [--out benchmarks/results/versus_safety_gymnasium.json]

A round measures, one after the other and under random actions,

- `peer`: Safety-Gymnasium, one environment in one process, as it comes;
- `physics`: cupola's engine alone, stepping the same model with all cores, gremlins led along
  their circles, no observation, reward or cost, and no step waits for another one;
- `make_vec`: whole steps of `gymnasium.make_vec` with its default of all cores.

Resets of ended episodes are counted. Rounds alternate so that all share the machine's noise; the
figures are medians over the rounds, ratios within a round.

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
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import numpy as np

from cupola.cores import available_cores
from cupola.errors import CupolaError
from cupola.tasks import make_task

HERE = Path(__file__).resolve().parent
TASKS = ("PointGoal1", "CarGoal1", "PointButton1", "CarButton1")
WARM_UP = 20


def measure_task(name: str, envs: int, steps: int, seed: int) -> dict[str, float]:
    """Steps a second of the engine alone and of Gymnasium's vector environment."""
    rng = np.random.default_rng(seed)
    bare = make_task(name, envs, ("cost",), 0)
    bare.reset(seed)
    whole = gymnasium.make_vec(f"cupola/{name}-v0", envs)
    whole.reset(seed=seed)
    found = {}
    for count in (WARM_UP, steps):
        actions = rng.uniform(-1, 1, (count, envs, 2))
        began = time.perf_counter()
        bare.drive(actions)
        found["physics"] = count * envs / (time.perf_counter() - began)
        began = time.perf_counter()
        for action in actions:
            whole.step(action)
        found["make_vec"] = count * envs / (time.perf_counter() - began)
    whole.close()
    bare.close()
    return found


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
    return speeds | {
        f"over_{kind}": median(row["make_vec"] / row[kind] for row in rounds)
        for kind in ("peer", "physics")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Set cupola beside Safety-Gymnasium.")
    parser.add_argument("--peer-python", required=True, help="Safety-Gymnasium's interpreter")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300, help="of each batch, in a round")
    parser.add_argument("--peer-steps", type=int, default=1000, help="of the peer, in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if min(arguments.steps, arguments.peer_steps, arguments.rounds, arguments.envs) < 1:
        parser.error("--steps, --peer-steps, --rounds and --envs must be at least 1")
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in arguments.tasks}
    peer: dict[str, Any] = {}
    try:
        for index in range(arguments.rounds):
            for name in arguments.tasks:
                peer = measure_peer(arguments.peer_python, name, arguments.peer_steps)
                row = {"peer": peer["steps_per_second"]}
                row |= measure_task(name, arguments.envs, arguments.steps, index)
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
        "cores": available_cores(),
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
