"""How much two jobs of a sweep get done beside one: total steps a second, each job on its own core.

    python benchmarks/sweep_jobs.py --rounds 3 --out benchmarks/results/sweep-jobs.json

A round is a sweep of one cell with one job, then one of as many cells as jobs. The speed of a cell
is the median over its iterations, so compilation does not count; that of a sweep is the sum over
its cells.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from cupola.reports.results import load

FILE = """
iterations = {iterations}
algorithms = ["cup"]
tasks = ["{task}"]
seeds = {cells}
evaluation_episodes = 1
"""


def speed(task: str, iterations: int, jobs: int) -> float:
    """Steps a second of a sweep of ``jobs`` cells at a time."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "sweep.toml"), Path(folder, "sweep")
        file.write_text(FILE.format(iterations=iterations, task=task, cells=jobs))
        command = [sys.executable, "-m", "cupola", "sweep", str(file), "--out", str(out)]
        subprocess.run([*command, "--jobs", str(jobs)], check=True, stdout=subprocess.DEVNULL)
        return sum(run.steps_per_second for run in load(out).runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="HopperSpeed")
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    one, many = [], []
    for _ in range(args.rounds):
        one.append(speed(args.task, args.iterations, 1))
        many.append(speed(args.task, args.iterations, args.jobs))
    result = {
        "task": args.task,
        "cores": len(os.sched_getaffinity(0)),
        "jobs": args.jobs,
        "steps_per_second_one_job": one,
        "steps_per_second_all_jobs": many,
        "ratio": float(np.median(many) / np.median(one)),
        "load_average": os.getloadavg(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
