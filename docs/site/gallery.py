"""The films of docs/gallery.md: `python docs/site/gallery.py`, or with the names of some of them.

They are what `cupola render TASK` and `cupola eval zoo:TASK --video FILE` show, the first seconds
of it, so that all of them together stay small: half of the frames, in 224 x 200 pixels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cupola import evaluation, zoo
from cupola.commands import render
from cupola.policy import load
from cupola.task_source import find_task
from cupola.video.encode import encode
from cupola.video.film import Film

FOLDER = Path(__file__).parents[1] / "gallery"
TASKS = (
    *("HopperSpeed", "Walker2dSpeed", "HalfCheetahSpeed", "SwimmerSpeed", "AntSpeed"),
    *("HumanoidSpeed", "AntCircle", "PointGoal1", "PointButton1", "CarGoal2", "TabularGrid"),
    "ProbeRegulator",
)
TRAINED = "trained_"
"""Before the name of a task: its policy of the zoo plays, not random actions."""
SECONDS = 5.0


def film(name: str) -> bytes:
    """One episode or the beginning of it."""
    trained = name.startswith(TRAINED)
    task = find_task(name.removeprefix(TRAINED), pictures=True)
    limits = {cost.name: cost.limit for cost in task.spec.costs if cost.limit is not None}
    envs = task.make(1, tuple(limits))
    if trained:
        policy = load(f"zoo:{name.removeprefix(TRAINED)}")
        steps = evaluation.play(envs, policy, False, np.random.default_rng(0), seed=0)
    else:
        steps = render.play(envs, "random", seed=0)
    shown = Film(limits, render.GAMMA, episodes=1, size=(224, 200))
    for running, step in steps:
        shown.watch(envs, running, step)
        if shown.complete or shown.times[-1] > SECONDS:
            break
    envs.close()
    shown.frames, shown.times = shown.frames[::2], shown.times[::2]
    return encode(shown, ".gif")


if __name__ == "__main__":
    for name in sys.argv[1:] or [*TASKS, *(TRAINED + entry for entry in zoo.names())]:
        (FOLDER / f"{name}.gif").write_bytes(film(name))
        print(name, flush=True)
