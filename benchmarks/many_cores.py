"""How a training iteration grows with the cores: measured on 1 and 2, modelled beyond.

    python benchmarks/many_cores.py [--tasks PointGoal1 HopperSpeed] [--envs 0 100] \
        [--iterations 10] [--out benchmarks/results/many-cores.json] [--figure many-cores.png]

Parts come from `profile_iteration.py` on one and on two cores, and from two processes, a core each,
that do nothing but physics: by how much they slow each other down. The model (docs/performance.md)
plays a rollout's turns through as `share_out` does: threads take an environment's next turn, which
is compiled code and then Python under the one interpreter lock. What else an iteration does takes
as long as on two cores. Two bounds for memory traffic: `near`, each core is as slow as beside one
other, however many there are; `far`, each further one slows all of them down by as much again.

Adding cores stops paying where twice as many make an iteration less than 10 % shorter.
`--quick` shows that it runs, with figures that mean nothing.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import measuring

from cupola.bench import FAMILIES
from cupola.cores import core_ids

CORES = (1, 2, 4, 8, 16, 32, 64, 128)
GAIN = 1.1
UPDATE = ("samples", "orders, memory", "improvement", "projection", "critics", "prediction")
SERIAL = ("noise", "prepare", "checks", "rest")
COMPILED = ("rollout: physics", "rollout: policy, observation")
EVENTS, ROLLOUT = "rollout: Python events", "rollout: rest"


# --- measured parts


def profiled(task: str, cores: int, envs: int, given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile.json"
        command = [sys.executable, str(Path(__file__).with_name("profile_iteration.py")), task]
        command += ["--cores", str(cores), "--iterations", str(given.iterations)]
        command += ["--envs", str(envs), "--batch-size", "400" if given.quick else "0"]
        subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
        result: dict[str, Any] = json.loads(out.read_text())["tasks"][task]
    return result


def physics_rates(task: str, count: int, seconds: float) -> list[float]:
    """Environment steps per second of so many processes at once, each with a core of its own."""
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", task, str(core), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for core in core_ids()[:count]
    ]
    for worker in workers:
        assert worker.stdout
        assert worker.stdout.readline() == "ready\n"
    return [float(worker.communicate("go\n")[0]) for worker in workers]


def work(task: str, core: int, seconds: float) -> None:
    """Be one of these processes."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [core])
    import numpy as np

    from cupola.tasks import make_task, spec_of

    envs = 10
    made = make_task(task, envs, tuple(cost.name for cost in spec_of(task).costs))
    made.reset(0, stagger=True)
    actions = np.random.default_rng(0).uniform(-1, 1, (50, envs, made.spec.act_size))
    for action in actions:
        made.step_engine(action)
    print("ready", flush=True)
    sys.stdin.readline()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for action in actions:
            made.step_engine(action)
        done += len(actions) * envs
    print(done / (time.perf_counter() - began))


def parts_of(one: dict[str, Any], two: dict[str, Any], slowdown: float) -> dict[str, float]:
    """Seconds of an iteration, as the model takes them."""

    def total(profile: dict[str, Any], stages: tuple[str, ...]) -> float:
        return sum(profile["main"].get(stage, 0.0) for stage in stages)

    return {
        "compiled": total(one, COMPILED),
        "events": total(one, (EVENTS,)),
        "rollout_rest": total(one, (ROLLOUT,)),
        "serial": total(one, SERIAL),
        "update_on_1": total(one, UPDATE),
        "update_on_2": total(two, UPDATE),
        "serial_on_2": total(two, SERIAL),
        "slowdown_of_2": slowdown,
    }


# --- the model


def iteration_seconds(
    parts: dict[str, float], cores: int, envs: int, steps: int, far: bool
) -> float:
    if cores == 1:
        names = ("compiled", "events", "rollout_rest", "serial", "update_on_1")
        return sum(parts[name] for name in names)
    slower = parts["slowdown_of_2"] - 1
    compiled = parts["compiled"] * (1 + slower * (cores - 1 if far else 1))
    played = rollout_seconds(compiled, parts["events"], cores, envs, steps)
    return played + parts["rollout_rest"] + parts["serial_on_2"] + parts["update_on_2"]


def rollout_seconds(compiled: float, events: float, cores: int, envs: int, steps: int) -> float:
    """Until the last of ``envs`` has taken ``steps`` steps, which together take so many seconds.

    Two halves of the environments have half of the threads each (rollout.py), a thread takes the
    environment that has waited longest for its next turn (engine.py), and the events at the end of
    a turn need the lock that all threads share.
    """
    threads = max(1, cores // 2)
    turn = steps if threads == 1 else max(16, steps // 8)
    halves = [deque([(i, 0) for i in range(half, envs, 2)]) for half in (0, 1)]
    # What happens next: when, the thread, its half, the turn that it is in, compiled or not.
    agenda: list[tuple[float, int, int, tuple[int, int] | None, bool]] = [
        (0.0, number, number % 2, None, False) for number in range(2 * threads)
    ]
    free, end = 0.0, 0.0  # when the lock is free, when all is done
    while agenda:
        now, number, half, at, in_compiled = heapq.heappop(agenda)
        end = max(end, now)
        if at and in_compiled:
            free = max(now, free) + events / envs * min(turn, steps - at[1]) / steps
            heapq.heappush(agenda, (free, number, half, at, False))
            continue
        if at and at[1] + turn < steps:
            halves[half].append((at[0], at[1] + turn))
        if halves[half]:
            taken = halves[half].popleft()
            share = min(turn, steps - taken[1]) / steps / envs
            heapq.heappush(agenda, (now + compiled * share, number, half, taken, True))
    return end


def modelled(parts: dict[str, float], envs: int, steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, far in (("near", False), ("far", True)):
        seconds = [iteration_seconds(parts, cores, envs, steps, far) for cores in CORES]
        pays = [before / after >= GAIN for before, after in itertools.pairwise(seconds)]
        stops = CORES[pays.index(False)] if False in pays else None
        found[name] = {"seconds": dict(zip(CORES, seconds, strict=True)), "stops_at": stops}
    return found


# --- the command


def measure(task: str, envs: int, given: argparse.Namespace) -> dict[str, Any]:
    one, two = (profiled(task, cores, envs, given) for cores in (1, 2))
    alone = physics_rates(task, 1, given.seconds)[0]
    together = physics_rates(task, 2, given.seconds)
    parts = parts_of(one, two, max(1.0, 2 * alone / sum(together)))
    count = one["num_envs"]
    return {
        "task": task,
        "num_envs": count,
        "batch_size": one["batch_size"],
        "parts": parts,
        "physics_microseconds_per_step": 1e6 * one["main"][COMPILED[0]] / one["batch_size"],
        "physics_rates": {"alone": alone, "together": together},
        "measured": {"1": one["iteration_seconds"], "2": two["iteration_seconds"]},
        "model": modelled(parts, count, one["batch_size"] // count),
    }


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['task']}, {result['num_envs']} environments")
    for name, model in result["model"].items():
        line = "  ".join(f"{cores}: {s:.3f}" for cores, s in model["seconds"].items())
        print(f"  {name:<5} {line}   stops paying at {model['stops_at'] or 'more'}")
    print("  measured " + "  ".join(f"{c}: {s:.3f}" for c, s in result["measured"].items()))


def draw(results: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(results))
    rows = -(-len(results) // columns)
    size = (4 * columns, 3 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    for axis, result in zip(axes.flat, results, strict=False):
        base = result["model"]["near"]["seconds"]
        speeds = {
            name: [base[1] / seconds for seconds in model["seconds"].values()]
            for name, model in result["model"].items()
        }
        axis.fill_between(CORES, speeds["far"], speeds["near"], alpha=0.3)
        axis.plot(CORES, speeds["near"], label="model: near")
        axis.plot(CORES, speeds["far"], label="model: far")
        measured = [result["measured"]["1"] / s for s in result["measured"].values()]
        axis.plot([1, 2], measured, "o", color="black", label="measured")
        axis.plot(CORES, CORES, ":", color="grey", label="ideal")
        axis.set(xscale="log", yscale="log", xlabel="cores", ylabel="times as fast as one core")
        axis.set_xticks(CORES, CORES)
        axis.set_ylim(0.9, 40)
        axis.set_yticks([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16, 32])
        axis.minorticks_off()
        axis.set_title(f"{result['task']}, {result['num_envs']} environments", fontsize=10)
    axes[0, 0].legend(fontsize=8)
    measuring.keep_figure(figure, path)


def main() -> None:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(FAMILIES))
    parser.add_argument("--envs", nargs="+", type=int, default=[0], help="0: the preset's")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="of physics side by side")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--figure", type=Path, help="PNG")
    given = parser.parse_args()
    if given.quick:
        given.iterations, given.seconds = 1, 0.2
    report = measuring.provenance(given.note)
    results = []
    for task in given.tasks:
        for envs in given.envs:
            results.append(measure(task, envs, given))
            show(results[-1])
            measuring.keep({**report, "gain": GAIN, "results": results}, given.out)
    if given.figure:
        draw(results, given.figure)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
