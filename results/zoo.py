"""`python -m results zoo`: the best feasible seed of each task becomes a policy of the zoo."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cupola import zoo
from cupola.cores import available_cores
from cupola.errors import CupolaError
from cupola.evaluation import Evaluation, evaluate
from cupola.gym.options import is_foreign
from cupola.policy import Policy, load
from cupola.reports import merge
from cupola.reports.results import RunResult
from cupola.runs import checkpoints
from cupola.runs.checkpoints import Checkpoint
from cupola.runs.directory import FORMAT
from cupola.runs.files import Folder
from cupola.version import __version__


def fill(sources: list[Path], episodes: int, seed: int, home: Path = zoo.HOME) -> Iterator[str]:
    """Of each task the best seed that is also feasible on fresh episodes; a sentence for each."""
    found, _ = merge.merge([merge.load(path) for path in sources])
    for task in found.tasks:
        seeds = [run for run in found.runs if run.task == task and run.finished and run.config]
        feasible = sorted((r for r in seeds if r.feasible), key=lambda r: -r.final("return"))
        if not feasible:
            yield f"{task}: none of {len(seeds)} finished runs is feasible."
        for run in feasible:
            policy = load(path_of(run, sources))
            results = [
                evaluate(
                    policy,
                    episodes=episodes,
                    deterministic=deterministic,
                    seed=seed,
                    threads=available_cores(),
                )
                for deterministic in (False, True)
            ]
            above = [name for name, c in results[0].costs.items() if c.value.mean > c.limit]
            if above:
                yield f"{run.name}: {', '.join(above)} is above its limit on fresh episodes."
                continue
            if task in known(home) and better(home / task, results[0]):
                yield f"{home / task} is kept: its return is higher than that of {run.name}."
                break
            entry = write(home / task, policy, run, [one.seed for one in seeds], results, seed)
            yield f"{entry}: seed {run.seed}, return {results[0].returns.mean:.4g}."
            break


def known(home: Path) -> list[str]:
    return [path.parent.name for path in home.glob(f"*/{zoo.CARD}")]


def better(entry: Path, result: Evaluation) -> bool:
    """Whether a policy that is there has a higher return on fresh episodes."""
    card = zoo.read_card(entry)
    return card["evaluation"]["sampled"]["return"]["mean"] > result.returns.mean


def path_of(run: RunResult, sources: list[Path]) -> Path:
    """The directory of a run: a cell of a sweep is called as the cell, any other by its path."""
    places = (Path(run.name), *(source / run.name for source in sources))
    for place in places:
        if (place / "config.json").exists():
            return place
    raise CupolaError(f"there is no run directory of {run.name}: the zoo needs its policy.")


def write(
    path: Path,
    policy: Policy,
    run: RunResult,
    seeds: list[int],
    results: list[Evaluation],
    seed: int,
) -> Path:
    """A run directory with nothing but the policy, and its card; in place of an earlier one."""
    config = policy.config
    if is_foreign(config.task):
        raise CupolaError(f"{config.task} is no task of cupola: its policy would need your code.")
    record = config.to_json() | {"cupola": run.config.get("cupola", __version__), "start_from": ""}
    assert record["format"] == FORMAT
    arrays = {
        **checkpoints.flatten("learner.policy", policy.network),
        **checkpoints.flatten("moments", policy.moments),
        "inputs": policy.inputs,
        "obs_size": np.array(policy.obs_size),
    }
    folder = Folder(path, "checkpoints")
    folder.make()
    for name in folder.names():
        folder.remove(name)
    checkpoints.write(folder, Checkpoint(policy.iteration, arrays), keep=1)
    (file,) = folder.names()
    sampled, deterministic = (result.summary() for result in results)
    card = {
        "task": config.task,
        "algorithm": config.algo,
        "preset": config.preset,
        "cupola": record["cupola"],
        "seed": run.seed,
        "seeds": sorted(set(seeds)),
        "iteration": policy.iteration,
        "steps": int(run.curves["steps"][-1]),
        "limits": config.limits,
        "training": {
            "return": run.final("return"),
            "costs": {cost: run.final(f"cost/{cost}") for cost in run.costs},
        },
        "evaluation": {
            "episodes": results[0].episodes,
            "seed": seed,
            "sampled": sampled,
            "deterministic": deterministic,
        },
        "sha256": hashlib.sha256((path / "checkpoints" / file).read_bytes()).hexdigest(),
    }
    Folder(path).write("config.json", (json.dumps(record, indent=1) + "\n").encode())
    Folder(path).write(zoo.CARD, (json.dumps(card, indent=1) + "\n").encode())
    return path
