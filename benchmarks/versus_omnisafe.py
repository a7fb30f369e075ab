"""Set algorithms of cupola beside OmniSafe 0.5's: environment steps a second of whole trainings.

    python benchmarks/versus_omnisafe.py --omnisafe-python PYTHON3.10 [--algos cup ppo_lag cpo] \
        [--tasks HopperSpeed PointGoal1 ...] [--repeats 3] [--envs 1 5] [--threads 1 2] \
        [--out FILE.json]

Both sides do the same work: 5000 steps an iteration; for CUP 10 + 10 epochs of minibatches of 64 on
them (cupola's preset `paper`), for PPO-L 10, with no early stop; for CPO 10 iterations of conjugate
gradients and 80 value iterations on all of them. CUP is measured with its default too.
A round measures cupola (`cupola bench`) and then OmniSafe (`omnisafe_peer.py`) with so many
environments and PyTorch threads, never two at once. The rounds follow each other
in one run, so that both sides share the machine's noise. A speed-up is cupola's median over the
rounds divided by that of OmniSafe's best configuration.

Leave the machine otherwise idle: beside other work, PyTorch's two threads spin while they wait for
each other, and one update was seen to take thirty times as long.

OmniSafe needs its own Python 3.10 environment, because Safety-Gymnasium 1.0 pins packages that
newer Pythons cannot install. PyTorch 1.12.1 is the last release whose default Linux wheel needs no
separate CUDA packages; in two paired runs (5 environments, 1 thread) it was no slower than 2.13:

    python3.10 -m venv omnisafe-env
    omnisafe-env/bin/pip install torch==1.12.1
    omnisafe-env/bin/pip install omnisafe==0.5.0 safety-gymnasium==1.0.0 "numpy<2"

and then `--omnisafe-python omnisafe-env/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import textwrap
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
SAME_WORK = "cupola, the same update"
DEFAULT = "cupola, its default"
PEERS = {"cup": "CUP", "ppo_lag": "PPOLag", "cpo": "CPO"}
TASKS = ["HopperSpeed", "PointGoal1", "CarGoal1", "HumanoidSpeed"]
SAFETY_GYM = [
    f"{agent}{errand}{level}"
    for agent, errand, level in product(("Point", "Car"), ("Goal", "Button"), range(3))
]
MEASURED = ("steps_per_second", "rollout_seconds", "update_seconds")

Measurement = dict[str, Any]


class BenchmarkError(Exception):
    """A measurement that could not be taken; the message is one sentence for the user."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Set cupola beside OmniSafe 0.5.")
    parser.add_argument(
        "--omnisafe-python", required=True, help="the interpreter of OmniSafe's environment"
    )
    parser.add_argument("--algos", nargs="+", choices=PEERS, default=["cup", "ppo_lag"])
    parser.add_argument("--tasks", nargs="+", default=TASKS, help="speed or Safety Gym tasks")
    parser.add_argument("--envs", nargs="+", type=int, default=[1, 5], help="OmniSafe's")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="PyTorch's")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--iterations", type=int, default=3, help="OmniSafe's, timed, in a round")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "versus_omnisafe.json")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error("--repeats must be at least 1")
    if arguments.iterations < 1:
        parser.error("--iterations must be at least 1")
    for task in arguments.tasks:
        if not task.endswith("Speed") and task not in SAFETY_GYM:
            parser.error(f"{task} is no speed or Safety Gym task, such as HopperSpeed, PointGoal1")
    return arguments


def peer_task(task: str) -> str:
    """The Safety-Gymnasium task that is the same, or has the robot of cupola's speed task."""
    if task in SAFETY_GYM:
        return f"Safety{task}-v0"
    return f"Safety{task.removesuffix('Speed')}Velocity-v1"


def contenders(algo: str, task: str, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The command of each measurement, still without its output file."""
    bench = [sys.executable, "-m", "cupola", "bench", task, "--algo", algo]
    commands = {SAME_WORK: [*bench, "--preset", "paper"]}
    if algo == "cup":
        commands[DEFAULT] = bench
    for envs, threads in product(arguments.envs, arguments.threads):
        # -E: cupola's PYTHONPATH is not for the other interpreter.
        commands[f"omnisafe, envs {envs}, threads {threads}"] = [
            *(arguments.omnisafe_python, "-E", str(HERE / "omnisafe_peer.py")),
            *("--algo", PEERS[algo]),
            *("--task", peer_task(task), "--iterations", str(arguments.iterations)),
            *("--envs", str(envs), "--threads", str(threads)),
        ]
    return commands


def run(name: str, command: list[str]) -> None:
    try:
        child = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchmarkError(f"{name}: cannot run {command[0]} ({error.strerror}).") from error
    if child.returncode != 0:
        complaint = child.stderr.strip().splitlines() or ["it said nothing"]
        last = textwrap.shorten(complaint[-1], 300)
        raise BenchmarkError(f"{name}: failed with exit code {child.returncode} ({last}).")


def check_omnisafe(python: str) -> None:
    """Refuse a wrong interpreter before anything is measured."""
    run("omnisafe", [python, "-E", "-c", "import importlib.metadata as m; m.version('omnisafe')"])


def measure(name: str, command: list[str]) -> Measurement:
    """Run one child and return the JSON object that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        run(name, [*command, "--out", str(out)])
        return read_measurement(name, out)


def read_measurement(name: str, path: Path) -> Measurement:
    try:
        result: Measurement = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise BenchmarkError(f"{name}: ended well but wrote no JSON.") from error
    missing = [key for key in MEASURED if key not in result]
    if missing:
        raise BenchmarkError(f"{name}: its JSON has no {', '.join(missing)}.")
    return result


def measure_rounds(commands: dict[str, list[str]], repeats: int) -> dict[str, list[Measurement]]:
    """Every contender once a round, one after the other."""
    results: dict[str, list[Measurement]] = {name: [] for name in commands}
    for index in range(repeats):
        for name, command in commands.items():
            result = measure(name, command)
            results[name].append(result)
            speed = f"{result['steps_per_second']:,.0f} steps/s"
            print(f"round {index + 1} of {repeats}: {name}: {speed}", flush=True)
    return results


def package_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in ("cupola", "jax", "mujoco"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


def compare(algo: str, task: str, results: dict[str, list[Measurement]]) -> Measurement:
    medians = {
        name: {key: median(result[key] for result in measured) for key in MEASURED}
        for name, measured in results.items()
    }
    speeds = {name: row["steps_per_second"] for name, row in medians.items()}
    ours = {name: speeds.pop(name) for name in (SAME_WORK, DEFAULT) if name in speeds}
    best = max(speeds, key=speeds.__getitem__)
    return {
        "algorithm": algo,
        "task": task,
        "peer_task": peer_task(task),
        "speedup": {name: speed / speeds[best] for name, speed in ours.items()},
        "best_omnisafe": best,
        "medians": medians,
        "measurements": results,
    }


def write(results: list[Measurement], arguments: argparse.Namespace) -> None:
    # The interpreter's path and the output's stay out: results are for other machines too.
    command = ["python", "benchmarks/versus_omnisafe.py", "--omnisafe-python", "PYTHON3.10"]
    for name in ("algos", "tasks", "envs", "threads"):
        command += [f"--{name}", *map(str, getattr(arguments, name))]
    for name in ("repeats", "iterations"):
        command += [f"--{name}", str(getattr(arguments, name))]
    report = {
        "command": shlex.join(command),
        "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": package_versions(),
        "results": results,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")


def format_table(result: Measurement) -> str:
    width = max(map(len, result["medians"]))
    title = f"{result['algorithm']}, {result['task']}"
    lines = [f"{title:<{width}}  {'steps/s':>9}  {'rollout s':>9}  {'update s':>9}"]
    for name, row in result["medians"].items():
        speed, rollout, update = (row[key] for key in MEASURED)
        lines.append(f"{name:<{width}}  {speed:>9,.0f}  {rollout:>9.3f}  {update:>9.3f}")
    for name, speedup in result["speedup"].items():
        lines.append(f"{name}: {speedup:.1f} times the best ({result['best_omnisafe']})")
    return "\n".join(lines)


def main() -> int:
    arguments = parse_arguments()
    results = []
    try:
        check_omnisafe(arguments.omnisafe_python)
        for algo, task in product(arguments.algos, arguments.tasks):
            rounds = measure_rounds(contenders(algo, task, arguments), arguments.repeats)
            results.append(compare(algo, task, rounds))
            print(format_table(results[-1]), flush=True)
            write(results, arguments)  # after each: the next ones may be interrupted
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
