"""The films of docs/gallery.md: `python docs/site/gallery.py`, or with the names of some tasks.

They are what `cupola render TASK` shows, the first seconds of it, so that all of them together stay
below 3 MB: half of the frames, in 224 x 200 pixels.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cupola.commands.render import GAMMA, play
from cupola.task_source import find_task
from cupola.video.encode import encode
from cupola.video.film import Film

FOLDER = Path(__file__).parents[1] / "gallery"
TASKS = (
    *("HopperSpeed", "Walker2dSpeed", "HalfCheetahSpeed", "SwimmerSpeed", "AntSpeed"),
    *("HumanoidSpeed", "AntCircle", "PointGoal1", "PointButton1", "CarGoal2", "TabularGrid"),
    "ProbeRegulator",
)
SECONDS = 5.0


def film(name: str) -> bytes:
    """Random actions, one episode or the beginning of it."""
    task = find_task(name, pictures=True)
    limits = {cost.name: cost.limit for cost in task.spec.costs if cost.limit is not None}
    envs = task.make(1, tuple(limits))
    film = Film(limits, GAMMA, episodes=1, size=(224, 200))
    for running, step in play(envs, "random", seed=0):
        film.watch(envs, running, step)
        if film.complete or film.times[-1] > SECONDS:
            break
    envs.close()
    film.frames, film.times = film.frames[::2], film.times[::2]
    return encode(film, ".gif")


if __name__ == "__main__":
    for name in sys.argv[1:] or TASKS:
        (FOLDER / f"{name}.gif").write_bytes(film(name))
        print(name, flush=True)
