"""The cells of an experiment: one run each, with its name and its settings."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cupola.gym.consent import effects_of_function, effects_of_sinks, effects_of_task
from cupola.naming import slug, text_of
from cupola.sweeps.pruning import Level
from cupola.tasks import specs
from cupola.tasks.base import TaskSpec

if TYPE_CHECKING:  # a sweep can be looked at without waiting for JAX
    from cupola.config import RunConfig

Fields = dict[str, Any]

SPECIAL_FIELDS = ("preset", "limit")
"""What a cell can set that is a field of no config."""


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    name: str
    label: str
    """The algorithm, as the file calls it."""
    task: str
    seed: int
    point: Fields
    """The values of the fields that the grid varies."""
    algo: str
    fields: Fields
    """All that is not a default: fields, and perhaps `preset` and `limit`."""
    bars: tuple[Level, ...] = ()
    """The run ends where it does worse."""

    def arguments(self) -> Fields:
        """Keywords of `cupola.train`."""
        fields = {k: v for k, v in self.fields.items() if k not in SPECIAL_FIELDS}
        preset = self.fields.get("preset")
        return {"preset": preset, "limits": self.fields.get("limit"), "seed": self.seed, **fields}

    @property
    def iterations(self) -> int:
        from cupola.config import RunOptions

        return self.fields.get("iterations", RunOptions.iterations)

    def resolve(self) -> RunConfig | None:
        """The checked config; None where the task is not known, which only this cell's run says."""
        from cupola.config import resolve

        arguments = self.arguments()
        preset, limits = arguments.pop("preset"), arguments.pop("limits")
        spec = known_tasks().get(self.task)
        if spec is None:
            resolve(self.algo, TaskSpec(self.task, 1, 1, (), 1), preset, None, arguments)
            return None
        return resolve(self.algo, spec, preset, limits, arguments)


@dataclass(frozen=True)
class Experiment:
    """A parsed and checked experiment file."""

    name: str
    cells: tuple[Cell, ...]
    evaluation_episodes: int = 20
    resources: dict[str, float] = dataclasses.field(default_factory=dict)
    """What a cell needs of a cluster beside cores: `memory_gb`, or names of the cluster's own."""

    def effects(self) -> list[str]:
        """What running the cells does that needs the user's consent."""
        tasks = dict.fromkeys(cell.task for cell in self.cells)
        costs = dict.fromkeys(cell.fields.get("cost", "") for cell in self.cells)
        sinks = dict.fromkeys(s for cell in self.cells for s in cell.fields.get("sinks", ()))
        return [
            *(effect for task in tasks for effect in effects_of_task(task)),
            *(effect for cost in costs for effect in effects_of_function(cost)),
            *effects_of_sinks(sinks),
        ]


@functools.cache
def known_tasks() -> dict[str, TaskSpec]:
    """Looked up once: a grid may have thousands of cells."""
    return specs()


def cell_name(label: str, task: str, point: Fields, seed: int) -> str:
    """The name of a cell, which is also that of its directory."""
    varied = (f"{field}={text_of(value)}" for field, value in point.items())
    return slug("-".join((label, task, *varied, str(seed))))
