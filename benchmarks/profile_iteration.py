"""Where the time of a training iteration goes, by stage.

    python benchmarks/profile_iteration.py PointGoal1 HopperSpeed [--cores 1] [--envs 20] \
        [--iterations 10] [--functions 15] [--out benchmarks/results/profile.json]

Every stage is waited for (`block_until_ready`) and has the time that it took itself, without the
stages within it; the stages of the main thread add up to the iteration. With several cores other
threads work beside it, in a column of their own. A wrapper around a call costs some microseconds.

`rollout: physics` is the time in compiled rollouts, less the time of further rollouts in which
MuJoCo's functions are replaced by one that does nothing; those are `policy, observation`. `Python
events` are ends of episodes and new goals, which need the interpreter lock. `rollout: rest` is its
arrays, episodes, rewards of robots, and, with several cores, waiting for the other threads.

The figures are medians over iterations, all with whole updates as `cupola bench` has them.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import pstats
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import measuring

WARM_UP = 2
JITTED = {
    "make_samples": "samples",
    "improve": "improvement",
    "descend_loss": "improvement",
    "project": "projection",
    "fit_critics": "critics",
    "make_prediction": "prediction",
}
"""Compiled functions whose stage has another name."""
PHYSICS, POLICY = "rollout: physics", "rollout: policy, observation"
EVENTS, ROLLOUT = "rollout: Python events", "rollout: rest"


class Stopwatch:
    """Seconds by stage, in the main thread and in others."""

    def __init__(self) -> None:
        self._local, self._lock = threading.local(), threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.main: dict[str, float] = defaultdict(float)
        self.beside: dict[str, float] = defaultdict(float)

    def timed(self, stage: str, function: Callable[..., Any], wait: bool = True) -> Any:
        """The function, whose time counts to a stage, but for stages within it."""

        def call(*args: Any, **named: Any) -> Any:
            inner = self._local.__dict__.setdefault("inner", [0.0])
            inner.append(0.0)
            began = time.perf_counter()
            try:
                result = function(*args, **named)
                return jax.block_until_ready(result) if wait else result
            finally:
                took = time.perf_counter() - began
                own = took - inner.pop()
                inner[-1] += took
                is_main = threading.current_thread() is threading.main_thread()
                with self._lock:
                    (self.main if is_main else self.beside)[stage] += own

        return call


@contextmanager
def watched(watch: Stopwatch) -> Iterator[None]:
    """Within it, what is made and called is timed."""
    jit = jax.jit

    def named_jit(function: Any, **options: Any) -> Any:
        inner = function
        while isinstance(inner, partial):
            inner = inner.func
        return watch.timed(JITTED.get(inner.__name__, inner.__name__), jit(function, **options))

    replaced: list[tuple[Any, str, Any]] = [(jax, "jit", named_jit)]
    library = native.library()
    for owner, name, stage in (
        (distributions, "unit_noise", "noise"),
        (trainer, "collect", ROLLOUT),
        (trainer.Trainer, "_check_finite", "checks"),
        (trainer.Trainer, "_check_moments", "checks"),
        (update, "shuffles", "orders, memory"),
        (update, "critic_schedule", "orders, memory"),
        (update, "remembered", "orders, memory"),
        (critics.Background, "result", "critics"),
        (library, "robot_play", "compiled"),
        (library, "world_play", "compiled"),
    ):
        if owner is not None:
            timed = watch.timed(stage, getattr(owner, name), wait=stage != "compiled")
            replaced.append((owner, name, timed))
    share_out = engine.NativeEngine.share_out

    def shared(self: Any, play: Callable[..., int], steps: int) -> None:
        share_out(self, watch.timed(EVENTS, play, wait=False), steps)

    replaced.append((engine.NativeEngine, "share_out", shared))
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, function in replaced:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def without_physics(made: Any) -> None:
    """Let the engines of a trainer do nothing; it can no longer train."""
    nothing = ctypes.cast(engine._mujoco().mj_version, ctypes.c_void_p).value  # type: ignore[union-attr]
    for collector in made.collectors:
        collector.task._engine.physics.fill(step=nothing, step2=nothing, forward=nothing)


def profile(task: str, given: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = whole_updates(given.algo)
    fields |= {"iterations": WARM_UP + 3 * given.iterations, "threads": given.cores}
    if given.batch_size:
        fields["batch_size"] = given.batch_size
    if given.envs:
        fields["num_envs"] = given.envs
    settings = settings_from(given.algo, None, fields)
    factory = find_task(task, threads=settings.options.engine_threads)
    config = run_config(given.algo, factory.spec, None, settings)
    watch = Stopwatch()
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    walls = []
    with watched(watch):
        made = trainer.Trainer(config, factory)
        iterate = watch.timed("rest", made.iterate)
        for i in range(WARM_UP + given.iterations):
            watch.clear()
            began = time.perf_counter()
            records = iterate()
            if i >= WARM_UP:
                walls.append(time.perf_counter() - began)
                rounds.append((watch.main, watch.beside))
        watch.clear()
    # Unwatched, but for compiled functions that were made above.
    functions = top_functions(made.iterate, given) if given.functions else []
    saving = checkpoint_seconds(made, config, records)
    main, beside = (median_of([pair[side] for pair in rounds]) for side in (0, 1))
    split = compiled_without_physics(made, watch, given.iterations)
    made.close()
    for side, seconds in ((main, "main"), (beside, "beside")):
        whole = side.pop("compiled", 0.0)
        if whole:
            rest = min(whole, split[seconds])
            side[PHYSICS], side[POLICY] = whole - rest, rest
    return {
        "task": task,
        "algorithm": config.algo,
        "cores": given.cores,
        "batch_size": config.algorithm.batch_size,
        "num_envs": config.algorithm.num_envs,
        "iteration_seconds": statistics.median(walls),
        "main": main,
        "beside": beside,
        "checkpoint_seconds": saving,
        "checkpoint_every": config.options.checkpoint_every,
        "functions": functions,
    }


def median_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Of each stage, over iterations."""
    stages = {stage for each in rounds for stage in each}
    return {stage: statistics.median(each.get(stage, 0.0) for each in rounds) for stage in stages}


def compiled_without_physics(made: Any, watch: Stopwatch, count: int) -> dict[str, float]:
    """Seconds in compiled rollouts that simulate nothing, by side."""
    if not isinstance(getattr(made.collectors[0].task, "_engine", None), engine.NativeEngine):
        return {"main": 0.0, "beside": 0.0}
    without_physics(made)
    config, seen = made.config.algorithm, []
    shape = (config.batch_size // config.num_envs, config.num_envs, made.spec.act_size)
    noise = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with watched(watch):
        for _ in range(count):
            watch.clear()
            rollout.collect(made.collectors, made._actor(), noise, made.threads > 1)
            seen.append((watch.main["compiled"], watch.beside["compiled"]))
    main, beside = (statistics.median(column) for column in zip(*seen, strict=True))
    return {"main": main, "beside": beside}


def checkpoint_seconds(made: Any, config: Any, records: Any) -> float:
    """Of the line in the files of metrics, and of a checkpoint."""
    took = []
    with (
        tempfile.TemporaryDirectory() as folder,
        RunDirectory.create(Path(folder) / "run", config.to_json()) as run,
    ):
        run.rewind(0, config.options.keep_checkpoints)
        for i in range(5):
            began = time.perf_counter()
            run.log(*records)
            run.checkpoint(i + 1, made.save(), config.options.keep_checkpoints)
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def top_functions(iterate: Callable[[], Any], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Functions of the main thread with the most time of their own, a line each."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(given.iterations):
        iterate()
    profiler.disable()
    table: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    rows = [
        {
            "function": f"{Path(file).name}:{line} {name}" if line else name,
            "calls": calls // given.iterations,
            "own_seconds": own / given.iterations,
            "seconds": whole / given.iterations,
        }
        for (file, line, name), (_, calls, own, whole, _) in table.items()
    ]
    return sorted(rows, key=lambda row: -row["own_seconds"])[: given.functions]


def show(result: dict[str, Any]) -> None:
    whole = result["iteration_seconds"]
    print(
        f"\n{result['task']}: an iteration of {result['batch_size']} steps, {result['num_envs']}"
        f" environments, {result['cores']} core(s)"
    )
    print(f"{'stage':<30}{'main thread s':>14}{'share':>8}{'other threads s':>17}")
    main, beside = result["main"], result["beside"]
    for stage in sorted({*main, *beside}, key=lambda s: -main.get(s, 0.0) - beside.get(s, 0.0)):
        own, others = main.get(stage, 0.0), beside.get(stage, 0.0)
        print(f"{stage:<30}{own:>14.4f}{100 * own / whole:>7.1f}%{others:>17.4f}")
    print(f"{'iteration':<30}{whole:>14.4f}")
    often = result["checkpoint_every"]
    print(f"a checkpoint, every {often} iterations: {result['checkpoint_seconds']:.4f} s")
    for row in result["functions"]:
        print(f"{row['own_seconds']:>10.4f} s{row['calls']:>9} calls  {row['function']}")


def main() -> None:
    given = arguments()
    results = {}
    for task in given.tasks:
        results[task] = profile(task, given)
        show(results[task])
    measuring.keep({**measuring.provenance(given.note), "tasks": results}, given.out)


def arguments() -> argparse.Namespace:
    parser = measuring.parser_of(__doc__)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--algo", default="cup")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--envs", type=int, default=0, help="default: the preset's")
    parser.add_argument("--batch-size", type=int, default=0, help="default: the preset's")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--functions", type=int, default=0, help="so many, by cProfile")
    return parser.parse_args()


if __name__ == "__main__":
    asked = arguments()
    measuring.use_cores(asked.cores)  # before JAX is imported

import jax  # noqa: E402
import numpy as np  # noqa: E402

from cupola import native, rollout, trainer  # noqa: E402
from cupola.algos import update  # noqa: E402
from cupola.bench import whole_updates  # noqa: E402
from cupola.config import run_config, settings_from  # noqa: E402
from cupola.core import critics, distributions  # noqa: E402
from cupola.runs.directory import RunDirectory  # noqa: E402
from cupola.task_source import find_task  # noqa: E402
from cupola.tasks import engine  # noqa: E402

if __name__ == "__main__":
    main()
