"""Set the two engines beside each other: environment steps per second.

    python benchmarks/engines.py [--tasks HopperSpeed PointGoal1] [--envs 20] [--rounds 5] \
        [--note TEXT] [--out benchmarks/results/engines.json]

A round measures both engines one after the other, under random actions:

- `batch`: whole steps of one batch of environments, physics on all cores;
- `halves`: whole steps of two halves of the environments in a thread each, as a training collects
  them: with the plain engine the two also share Python's interpreter lock.

Figures are medians over the rounds, with the median of the rounds' ratios, and the best rounds,
with their ratio. Where other work disturbs the measurement, look at both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np

from cupola.cores import available_cores
from cupola.tasks import make_task, spec_of
from cupola.tasks.base import Task
from cupola.tasks.engine import ENGINES, VARIABLE

WARM_UP = 20


def make(name: str, envs: int, threads: int, engine: str) -> Task:
    os.environ[VARIABLE] = engine
    costs = tuple(cost.name for cost in spec_of(name).costs)
    task = make_task(name, envs, costs, threads)
    task.reset(0, stagger=True)
    return task


def drive(task: Task, steps: int) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, task.num_envs, task.spec.act_size))
    for action in actions:
        task.step(action)


def steps_per_second(tasks: list[Task], steps: int) -> float:
    """Of ``tasks`` that are stepped side by side, each in a thread of its own."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        list(pool.map(drive, tasks, [WARM_UP] * len(tasks)))
        began = time.perf_counter()
        list(pool.map(drive, tasks, [steps] * len(tasks)))
        return steps * sum(task.num_envs for task in tasks) / (time.perf_counter() - began)


def measure(name: str, engine: str, envs: int, steps: int) -> dict[str, float]:
    cores = available_cores()
    halves = [make(name, envs // 2, max(1, cores // 2), engine) for _ in range(2)]
    return {
        "batch": steps_per_second([make(name, envs, cores, engine)], steps),
        "halves": steps_per_second(halves, steps),
    }


def summarise(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for way in ("batch", "halves"):
        of = {engine: [r[engine][way] for r in rounds] for engine in ENGINES}
        ratios = [n / p for n, p in zip(of["native"], of["plain"], strict=True)]
        found[way] = {
            **{engine: round(median(values)) for engine, values in of.items()},
            "native_over_plain": round(median(ratios), 2),
            **{f"best_{engine}": round(max(values)) for engine, values in of.items()},
            "best_native_over_plain": round(max(of["native"]) / max(of["plain"]), 2),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", default=["HopperSpeed", "PointGoal1"])
    parser.add_argument("--envs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", default="", help="kept with the figures")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in given.tasks}
    for _ in range(given.rounds):
        for name, measured in rounds.items():
            measured.append({e: measure(name, e, given.envs, given.steps) for e in ENGINES})
    command = ["python", "benchmarks/engines.py", "--tasks", *given.tasks]
    command += ["--envs", str(given.envs), "--steps", str(given.steps)]
    report = {
        "command": shlex.join([*command, "--rounds", str(given.rounds)]),
        "note": given.note,
        "cores": available_cores(),
        "platform": f"{platform.system()} {platform.machine()}",
        "load_average": os.getloadavg()[0],
        "versions": {package: version(package) for package in ("mujoco", "numpy")},
        "summary": {name: summarise(measured) for name, measured in rounds.items()},
        "rounds": rounds,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
