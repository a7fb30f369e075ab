"""How time and memory of a training iteration grow, each with one setting.

    python benchmarks/cost_growth.py [--only batch_size costs] [--iterations 5] \
        [--out benchmarks/results/cost-growth.json] [--figure docs/performance/cost-growth.png]

Batch size, network width and environments on PointGoal1; the number of costs and of observations on
a made-up task whose environments do next to nothing. Every point is a process of its own, so that
the peak of memory is its own; `idle` is what a process has before it makes a trainer. Seconds are
medians of iterations with whole updates, as `cupola bench` has them. `--quick` takes tiny sizes,
to show that it runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import measuring

TASK, MADE_UP = "PointGoal1", "MadeUp"
WARM_UP = 2
SWEEPS: dict[str, tuple[int, ...]] = {
    "batch_size": (5000, 10000, 20000, 50000, 100000, 200000),
    "costs": (1, 2, 4, 8),
    "width": (64, 128, 256, 512),
    "observation": (8, 32, 128, 512),
    "num_envs": (20, 64, 128, 256, 512),
}
QUICK = {
    "batch_size": (500, 1000),
    "costs": (1, 8),
    "width": (8, 16),
    "observation": (8, 16),
    "num_envs": (20, 50),
}
ENVS_BATCH = 10240
"""Which all numbers of environments divide."""


def point(sweep: str, value: int, quick: bool) -> dict[str, Any]:
    """What a process measures."""
    made_up = sweep in ("costs", "observation")
    chosen: dict[str, Any] = {"num_envs": 20, "costs": 1, "observation": 32, "width": 64}
    chosen["batch_size"] = ENVS_BATCH if sweep == "num_envs" else 10000
    if quick:
        chosen["batch_size"] = 1000
    chosen[sweep] = value
    return {"sweep": sweep, "value": value, "task": MADE_UP if made_up else TASK, **chosen}


# --- a point, in a process of its own


def measure(what: dict[str, Any], iterations: int) -> dict[str, Any]:
    import resource
    import statistics

    import jax

    from cupola.bench import whole_updates
    from cupola.compilation import warm_up_cache
    from cupola.config import require_limits, run_config, settings_from
    from cupola.task_source import find_task
    from cupola.trainer import Trainer

    def peak() -> float:
        """Megabytes."""
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6

    warm_up_cache()
    fields = whole_updates("cup") | {name: what[name] for name in ("batch_size", "num_envs")}
    fields |= {"hidden": (what["width"],) * 2, "iterations": WARM_UP + iterations}
    settings = settings_from("cup", None, fields)
    made_up = what["task"] == MADE_UP
    source = task_of(what["observation"], what["costs"]) if made_up else what["task"]
    factory = find_task(source, threads=settings.options.engine_threads)
    config = run_config("cup", factory.spec, None, settings)
    require_limits(config, factory.spec)
    idle = peak()
    trainer = Trainer(config, factory)
    timings = [trainer.iterate()[1] for _ in range(WARM_UP + iterations)][WARM_UP:]
    trainer.close()
    seconds = {
        name: statistics.median(each[name] for each in timings)
        for name in ("rollout_seconds", "update_seconds")
    }
    sizes = {"policy": trainer.learner.policy, "critics": trainer.learner.critics}
    parameters = sum(leaf.size for leaf in jax.tree.leaves(sizes))
    return what | seconds | {"peak_mb": peak(), "idle_mb": idle, "parameters": int(parameters)}


def task_of(observation: int, costs: int) -> Any:
    """A task whose states fade towards the actions; its costs are alike."""
    import numpy as np

    from cupola.tasks.base import Clock, State, Task, TaskFactory, TaskSpec
    from cupola.types import Cost, Step

    names = tuple(f"cost{k}" for k in range(costs))
    spec = TaskSpec(
        MADE_UP, observation, 2, tuple(Cost(name, 10.0, True) for name in names), time_limit=500
    )

    class Fading(Task):
        def __init__(self, num_envs: int, costs: tuple[str, ...]) -> None:
            self.spec, self.num_envs, self.costs = spec, num_envs, costs
            self._obs = np.zeros((num_envs, observation))
            self._clock = Clock(num_envs, spec.time_limit)

        def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
            self._clock.start(seed, stagger)
            self._obs = np.ones_like(self._obs)
            return self._obs

        def step(self, actions: np.ndarray) -> Step:
            after = 0.9 * self._obs + 0.1 * np.resize(actions.T, self._obs.T.shape).T
            terminated = np.zeros(self.num_envs, bool)
            truncated = self._clock.tick(terminated)
            self._clock.begin(truncated.nonzero()[0])
            self._obs = np.where(truncated[:, None], 1.0, after)
            each = np.sum(actions**2, axis=1)[:, None] * np.ones(len(self.costs))
            return Step(self._obs, after, -after[:, 0], each, terminated, truncated)

        def save(self) -> State:
            return {"obs": self._obs, **self._clock.save()}

        def restore(self, state: State) -> np.ndarray:
            self._obs = state["obs"].copy()
            self._clock.restore(state)
            return self._obs

    return TaskFactory(spec, Fading)


# --- the command


def growth(points: list[dict[str, Any]]) -> dict[str, float]:
    """How many times larger the last point is than the first: size, time, memory.

    The size of a network is that of its parameters, and memory is what came on top of `idle`.
    """
    first, last = points[0], points[-1]
    size = "parameters" if first["sweep"] == "width" else "value"

    def seconds(each: dict[str, Any]) -> float:
        return each["rollout_seconds"] + each["update_seconds"]

    def memory(each: dict[str, Any]) -> float:
        return each["peak_mb"] - each["idle_mb"]

    return {
        "size": last[size] / first[size],
        "seconds": seconds(last) / seconds(first),
        "memory": memory(last) / memory(first),
        # The steepest part: 1 is linear growth, above it is worse.
        "worst_step": max(seconds(b) / seconds(a) * a[size] / b[size] for a, b in pairwise(points)),
    }


def show(sweep: str, points: list[dict[str, Any]]) -> None:
    print(f"\n{sweep:>12}{'rollout s':>11}{'update s':>10}{'peak MB':>9}")
    for each in points:
        seconds = f"{each['rollout_seconds']:>11.3f}{each['update_seconds']:>10.3f}"
        print(f"{each['value']:>12}{seconds}{each['peak_mb']:>9.0f}")
    print("  last over first: " + ", ".join(f"{k} {v:.2f}" for k, v in growth(points).items()))


def draw(sweeps: dict[str, list[dict[str, Any]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(sweeps), figsize=(3 * len(sweeps), 5), squeeze=False)
    for (above, below), (sweep, points) in zip(axes.T, sweeps.items(), strict=True):
        values = [each["value"] for each in points]
        for name, label in (("rollout_seconds", "rollout"), ("update_seconds", "update")):
            above.plot(values, [each[name] for each in points], "o-", label=label)
        below.plot(values, [each["peak_mb"] for each in points], "o-", color="C2", label="peak")
        below.axhline(points[0]["idle_mb"], linestyle=":", color="grey", label="idle")
        above.set_title(f"{sweep} ({points[0]['task']})", fontsize=9)
        for axis in (above, below):
            axis.set_xscale("log")
            axis.set_xticks(values, values, rotation=45, fontsize=7)
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("seconds an iteration")
    axes[1, 0].set_ylabel("MB")
    axes[0, 0].legend(fontsize=7)
    axes[1, 0].legend(fontsize=7)
    measuring.keep_figure(figure, path)


def main() -> None:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(SWEEPS), default=tuple(SWEEPS))
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--figure", type=Path, help="PNG")
    given = parser.parse_args()
    report = measuring.provenance(given.note)
    sweeps: dict[str, list[dict[str, Any]]] = {}
    iterations = 1 if given.quick else given.iterations
    for sweep in given.only:
        sweeps[sweep] = []
        for value in (QUICK if given.quick else SWEEPS)[sweep]:
            asked = json.dumps(point(sweep, value, given.quick))
            command = [sys.executable, __file__, "--point", asked, str(iterations)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            sweeps[sweep].append(json.loads(done.stdout))
        show(sweep, sweeps[sweep])
        found = {name: growth(points) for name, points in sweeps.items()}
        measuring.keep({**report, "growth": found, "sweeps": sweeps}, given.out)
    if given.figure:
        draw(sweeps, given.figure)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--point"]:
        print(json.dumps(measure(json.loads(sys.argv[2]), int(sys.argv[3]))))
    else:
        main()
