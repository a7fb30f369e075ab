"""Steps per second of whole training iterations, beside the physics ceiling of the same run."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from cupola.algos import load_algorithm
from cupola.config import require_limits, run_config, settings_from
from cupola.task_source import find_task
from cupola.tasks.base import Task
from cupola.trainer import Trainer

WARM_UP = 2
RESTART = 25
FAMILIES = (
    *("PointGoal1", "CarGoal1", "PointButton1", "CarButton1"),
    *("SwimmerSpeed", "HopperSpeed", "AntSpeed", "HumanoidSpeed", "AntCircle"),
)
"""A task or more of every family that is simulated by an engine."""


def bench_often(task: str, repeat: int, **options: Any) -> dict[str, Any]:
    """`bench` so many times in a row: medians of its figures, and all ``repeats``."""
    if repeat == 1:
        return bench(task, **options)
    repeats = [bench(task, **options) for _ in range(repeat)]
    medians = {
        name: statistics.median(each[name] for each in repeats)
        for name, value in repeats[0].items()
        if isinstance(value, float)
    }
    return {**repeats[0], **medians, "repeats": repeats}


def bench(
    task: str,
    *,
    algo: str = "cup",
    preset: str | None = None,
    iterations: int = 20,
    threads: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """Time an algorithm with the settings of a preset; nothing is written to disk.

    CUP is timed with a few other settings: no early stopping, and a Lagrange multiplier that
    starts above zero and hardly moves, so that every iteration takes all epochs of both steps.
    ``fields`` go before all of these.

    Training iterations and stretches of bare physics alternate, so that a noisy machine disturbs
    both alike; all figures are medians. The ceiling is the engine alone under random actions, which
    lets robots fall and lie. Standing ones can be cheaper (Humanoid) and are what training sees, so
    `standing_ratio` compares with robots that are put back on their feet every `RESTART` steps.
    """
    total = iterations + WARM_UP
    fields = {"iterations": total, "threads": threads, **whole_updates(algo), **fields}
    settings = settings_from(algo, preset, fields)
    options, algorithm = settings.options, settings.algorithm
    trained, timed = (
        find_task(task, gym=settings.gym, threads=threads)
        for threads in (options.engine_threads, options.cores)
    )
    config = run_config(algo, trained.spec, None, settings)
    require_limits(config, trained.spec)
    trainer = Trainer(config, trained)
    bare, standing = (timed.make(algorithm.num_envs, tuple(config.limits)) for _ in range(2))
    bare.reset(0)
    rng = np.random.default_rng(0)
    steps = algorithm.batch_size // algorithm.num_envs
    physics, on_feet, rollout, update = [], [], [], []
    for i in range(total):
        lying = physics_seconds(bare, steps, rng)
        upright = 0.0
        for at in range(0, steps, RESTART):
            standing.reset(int(rng.integers(2**31)))
            upright += physics_seconds(standing, min(RESTART, steps - at), rng)
        _, timings = trainer.iterate()
        if i >= WARM_UP:
            physics.append(lying)
            on_feet.append(upright)
            rollout.append(timings["rollout_seconds"])
            update.append(timings["update_seconds"])
    trainer.close()
    whole = [a + b for a, b in zip(rollout, update, strict=True)]
    speed = algorithm.batch_size / statistics.median(whole)
    ceiling = algorithm.batch_size / statistics.median(physics)
    return {
        "task": task,
        "algorithm": config.algo,
        "preset": settings.preset,
        "steps_per_second": speed,
        "physics_steps_per_second": ceiling,
        "ratio": speed / ceiling,
        "standing_ratio": speed * statistics.median(on_feet) / algorithm.batch_size,
        "rollout_seconds": statistics.median(rollout),
        "update_seconds": statistics.median(update),
        "physics_seconds": statistics.median(physics),
        "standing_seconds": statistics.median(on_feet),
        "threads": trainer.threads,
        "iterations": iterations,
        "config": config.to_json()["algorithm"],
    }


def whole_updates(algo: str) -> dict[str, Any]:
    """The fields with which every update takes all epochs of all steps."""
    if not load_algorithm(algo).__name__.endswith(".cup"):
        return {}
    multipliers = {"multiplier": "integral", "nu_init": 1e-3, "multiplier_lr": 1e-12}
    return {"delta": 1e9, **multipliers}  # the KL is looked at all the same


def physics_seconds(task: Task, steps: int, rng: np.random.Generator) -> float:
    """Seconds that the engine alone needs for ``steps`` steps of random actions."""
    actions = rng.uniform(-1, 1, (steps, task.num_envs, task.spec.act_size))
    began = time.perf_counter()
    task.drive(actions)
    return time.perf_counter() - began
