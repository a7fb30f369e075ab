"""Steps a second of whole training iterations, beside the physics ceiling of the same run."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from cupola.config import resolve
from cupola.tasks import make_task, spec_of
from cupola.tasks.base import Task
from cupola.training import Trainer

WARM_UP = 2
RESTART = 25


def bench(
    task: str, *, algo: str = "cup", iterations: int = 20, threads: int = 0, **fields: Any
) -> dict[str, Any]:
    """Time an algorithm's preset `paper` without early stopping; nothing is written to disk.

    Training iterations and stretches of bare physics alternate, so that a noisy machine disturbs
    both alike; all figures are medians. The ceiling is the engine alone under random actions, which
    lets robots fall and lie. Standing ones can be cheaper (Humanoid) and are what training sees, so
    `standing_ratio` compares with robots that are put back on their feet every `RESTART` steps.
    """
    spec, total = spec_of(task), iterations + WARM_UP
    # A price that is not zero and hardly moves: every iteration runs all epochs of the projection.
    fixed = {"delta": float("inf"), "dual": "slow", "nu_init": 1e-3, "dual_lr": 1e-12}
    fields = {**(fixed if algo == "cup" else {}), **fields}
    config = resolve(algo, spec, "paper", None, {"iterations": total, "threads": threads, **fields})
    trainer = Trainer(config)
    algorithm = config.algorithm
    bare, standing = (
        make_task(task, algorithm.num_envs, tuple(config.limits), trainer.threads) for _ in range(2)
    )
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
    whole = [a + b for a, b in zip(rollout, update, strict=True)]
    speed = algorithm.batch_size / statistics.median(whole)
    ceiling = algorithm.batch_size / statistics.median(physics)
    return {
        "task": task,
        "algorithm": config.algo,
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


def physics_seconds(task: Task, steps: int, rng: np.random.Generator) -> float:
    """Seconds that the engine alone needs for ``steps`` steps of random actions."""
    actions = rng.uniform(-1, 1, (steps, task.num_envs, task.spec.act_size))
    began = time.perf_counter()
    for action in actions:
        task.step_engine(action)
    return time.perf_counter() - began
