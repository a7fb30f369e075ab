"""Steps a second of whole CUP iterations, beside the physics ceiling of the same run."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from cupola.algos import cup
from cupola.config import resolve
from cupola.tasks import make_task, spec_of
from cupola.tasks.base import Task
from cupola.training import Trainer

WARM_UP = 2


def bench(task: str, *, iterations: int = 10, threads: int = 0, **fields: Any) -> dict[str, Any]:
    """Time CUP's preset `paper` without early stopping; nothing is written to disk.

    Training iterations and stretches of bare physics alternate, so that a noisy machine disturbs
    both alike; all figures are medians.
    """
    spec, total = spec_of(task), iterations + WARM_UP
    # A price that is not zero and hardly moves: every iteration runs all epochs of the projection.
    fixed = {"delta": float("inf"), "nu_init": 1e-3, "dual_lr": 1e-12}
    fields = {**fixed, "iterations": total, "threads": threads, **fields}
    config = resolve("cup", spec, "paper", None, fields)
    trainer = Trainer(config)
    algorithm = config.algorithm
    bare = make_task(task, algorithm.num_envs, tuple(config.limits), trainer.threads)
    physics, rollout, update = [], [], []
    for i in range(total):
        seconds = physics_seconds(bare, algorithm.batch_size)
        _, timings = trainer.iterate()
        if i >= WARM_UP:
            physics.append(seconds)
            rollout.append(timings["rollout_seconds"])
            update.append(timings["update_seconds"])
    whole = [a + b for a, b in zip(rollout, update, strict=True)]
    speed = algorithm.batch_size / statistics.median(whole)
    ceiling = algorithm.batch_size / statistics.median(physics)
    return {
        "task": task,
        "steps_per_second": speed,
        "physics_steps_per_second": ceiling,
        "ratio": speed / ceiling,
        "rollout_seconds": statistics.median(rollout),
        "update_seconds": statistics.median(update),
        "physics_seconds": statistics.median(physics),
        "threads": trainer.threads,
        "num_envs": algorithm.num_envs,
        "batch_size": algorithm.batch_size,
        "minibatch_size": algorithm.minibatch_size,
        "epochs": [cup.Config.epochs, cup.Config.epochs],
        "iterations": iterations,
    }


def physics_seconds(task: Task, steps: int, restart_every: int = 25) -> float:
    """Seconds that the engine alone needs for ``steps`` environment steps of random actions.

    Fallen robots are cheaper or dearer than standing ones, so all are put back on their feet
    every ``restart_every`` steps, outside the timed stretches.
    """
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (restart_every, task.num_envs, task.spec.act_size))
    total, left = 0.0, steps // task.num_envs
    while left > 0:
        task.reset(int(rng.integers(2**31)))
        stretch = min(left, restart_every)
        began = time.perf_counter()
        for action in actions[:stretch]:
            task.physics(action)
        total += time.perf_counter() - began
        left -= stretch
    return total
