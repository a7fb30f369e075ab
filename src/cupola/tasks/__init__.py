"""The tasks: one file or folder per family, and this folder is the registry.

A file of this folder is a family if it has `TASKS`, the specs by name, and
`make(name, num_envs, costs, threads) -> Task`. It may have `ALIASES`, other names of its tasks.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from cupola.errors import CupolaError, unknown
from cupola.tasks.base import Task, TaskSpec

_NOT_FAMILIES = {
    *("actor", "base", "canvas", "diagrams", "engine", "observation", "opengl", "playing"),
    *("robot_picture", "robot_player"),
}


def _families() -> list[ModuleType]:
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return [
        importlib.import_module(f"{__name__}.{name}")
        for name in sorted(found)
        if name not in _NOT_FAMILIES
    ]


def families() -> dict[str, list[TaskSpec]]:
    """The specs of each family's tasks, by what the family is."""
    return {
        (family.__doc__ or "").partition("\n")[0]: list(family.TASKS.values())
        for family in _families()
    }


def specs() -> dict[str, TaskSpec]:
    """Every task's spec, by name."""
    return {name: spec for family in _families() for name, spec in family.TASKS.items()}


def aliases() -> dict[str, str]:
    """Other names of tasks, with the task's own name for each."""
    return {k: v for family in _families() for k, v in getattr(family, "ALIASES", {}).items()}


def spec_of(name: str) -> TaskSpec:
    """The spec of a task, by its own name or an alias."""
    known, others = specs(), aliases()
    own = others.get(name, name)
    if own not in known:
        raise unknown("task", name, {**known, **others})
    return known[own]


def make_task(name: str, num_envs: int, costs: tuple[str, ...], threads: int = 1) -> Task:
    """``num_envs`` environments of a task that measure the named costs, on ``threads`` threads."""
    spec = spec_of(name)
    name, available = spec.name, [cost.name for cost in spec.costs]
    for cost in costs:
        if cost not in available:
            raise unknown(f"cost of {name}", cost, available)
    for family in _families():
        if name in family.TASKS:
            return family.make(name, num_envs, costs, threads)
    raise CupolaError(f"no family makes the task {name!r}.")
