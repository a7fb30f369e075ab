"""`cupola render`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from cupola.commands.filming import new_film, write_film
from cupola.commands.parsing import OptionalPath, parse
from cupola.commands.writing import check_new, write_new
from cupola.errors import CupolaError

if TYPE_CHECKING:
    import numpy as np

    from cupola.tasks.base import Task, TaskSpec
    from cupola.types import Step

GAMMA = 0.99
"""Of discounted limits; that of most algorithms."""


@dataclass(frozen=True)
class RenderArgs:
    """Film a task, or draw one picture of it. No screen is needed."""

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """A task of cupola list, or gym:ID."""
    out: OptionalPath = None
    """A film .gif or .mp4 (extra video), or .png, the start of an episode; default TASK.gif."""
    actions: Literal["random", "zero"] = "random"
    episodes: int = 1
    """Side by side, at most 4."""
    seed: int = 0
    width: int = 320
    """Pixels of each picture."""
    height: int = 320
    force: bool = False
    """Replace the file if there is one."""


def run(args: Sequence[str]) -> None:
    parsed = parse(RenderArgs, args, "render")
    from cupola.task_source import find_task
    from cupola.video.encode import SUFFIXES, to_png
    from cupola.video.film import MAX_EPISODES

    path = parsed.out or Path(f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', parsed.task)}.gif")
    size = (parsed.width, parsed.height)
    if path.suffix not in (*SUFFIXES, ".png"):
        raise CupolaError(f"a task is drawn as .gif, .mp4 or .png: not {path}.")
    if not 1 <= parsed.episodes <= MAX_EPISODES:
        raise CupolaError(f"--episodes must be 1 to {MAX_EPISODES}, not {parsed.episodes}.")
    if not 16 <= min(size) <= max(size) <= 4096:
        raise CupolaError(f"--width and --height must be 16 to 4096, not {size[0]} and {size[1]}.")
    check_new(path, parsed.force)
    factory = find_task(parsed.task, pictures=True)
    limits = {cost.name: cost.limit for cost in factory.spec.costs if cost.limit is not None}
    costs = tuple(limits) or tuple(cost.name for cost in factory.spec.costs)
    count = 1 if path.suffix == ".png" else parsed.episodes
    envs = factory.make(count, costs)
    try:
        if path.suffix == ".png":
            envs.reset(parsed.seed)
            picture = to_png(envs.render(0, *size))
            write_new(path, picture)
            print(f"{path}: {size[0]} x {size[1]} pixels")
            return
        film = new_film(path, parsed.force, limits, GAMMA, episodes=count, size=size)
        for running, step in play(envs, parsed.actions, parsed.seed):
            film.watch(envs, running, step)
            if film.complete:
                break
    finally:
        envs.close()
    write_film(film, path)


def play(envs: Task, actions: str, seed: int) -> Iterator[tuple[np.ndarray, Step]]:
    """The first episode of each environment: which of them [N] still run, and the next step."""
    import numpy as np

    rng = np.random.default_rng(seed)
    envs.reset(seed)
    running = np.ones(envs.num_envs, bool)
    while running.any():
        shape = (envs.num_envs, envs.spec.act_size)
        numbers = np.zeros(shape) if actions == "zero" else rng.uniform(-1, 1, shape)
        step = envs.step((reach(envs.spec) * numbers).astype(np.float32))
        yield running, step
        running = running & ~(step.terminated | step.truncated)


def reach(spec: TaskSpec) -> float:
    """How far a random action goes: to the bounds, where there are any."""
    return spec.act_bound if spec.act_bound < 1e6 else 1.0
