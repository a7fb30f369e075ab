"""What whole CUP trainings take of a machine: share of the ceiling, two at once, memory, start.

    python benchmarks/whole_runs.py [--task HopperSpeed] [--repeats 5] [--out FILE.json]

`cupola bench TASK` several times in a row; two of it at once with one core each, beside one with
two; and short trainings, for the peak memory and the seconds until their first iteration is done.
Run it on an idle machine, and a second time for a start with a warm compilation cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CUPOLA = (sys.executable, "-m", "cupola")


def bench(task: str, out: Path, *more: str) -> dict[str, Any]:
    command = [*CUPOLA, "bench", task, "--out", str(out), *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def training(task: str, out: Path, iterations: int) -> dict[str, float]:
    """Peak memory, and seconds until the first line of metrics is there."""
    began, metrics = time.perf_counter(), out / "metrics.jsonl"
    command = [*CUPOLA, "train", "cup", task, "--iterations", str(iterations), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (metrics.exists() and metrics.stat().st_size):
        if process.poll() is not None:
            raise SystemExit(f"the training of {task} ended before its first iteration")
        time.sleep(0.02)
    first = time.perf_counter() - began
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the training of {task} failed")
    return {"first_iteration_seconds": first, "peak_megabytes": usage.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="HopperSpeed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    task = arguments.task
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        place = Path(folder)
        row = [bench(task, place / "row.json") for _ in range(arguments.repeats)]
        pair = list(pool.map(lambda i: bench(task, place / f"{i}.json", "--threads", "1"), (0, 1)))
        alone = bench(task, place / "alone.json", "--threads", "2")
        trained = training(task, place / "run", 30)
    together = sum(side["steps_per_second"] for side in pair)
    result = {
        "command": f"python benchmarks/whole_runs.py --task {task} --repeats {arguments.repeats}",
        "ratio_median": statistics.median(run["ratio"] for run in row),
        "ratios": [run["ratio"] for run in row],
        "side_by_side_share": together / alone["steps_per_second"],
        **trained,
        "benches": row,
        "side_by_side": pair,
        "alone": alone,
    }
    shown = {key: value for key, value in result.items() if not isinstance(value, list | dict)}
    print(json.dumps(shown, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
