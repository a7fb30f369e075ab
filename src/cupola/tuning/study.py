"""The file of a study: like an experiment file, of one algorithm and one task, with a space.

algorithm = "cup"
task = "HopperSpeed"
seeds = 3                     # of every trial
iterations = 200
trials = 40

[shared]                      # for all trials
batch_size = 5000

[space]                       # what is searched
learning_rate = { low = 1e-5, high = 1e-2, log = true }
improvement = ["clip", "focops"]
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupola.checks import check
from cupola.config import settings_from
from cupola.errors import CupolaError, unknown
from cupola.naming import slug
from cupola.sweeps import grid
from cupola.sweeps.cells import Cell, Experiment, Fields, cell_name
from cupola.sweeps.directory import NOT_COMPARED
from cupola.sweeps.pruning import Level
from cupola.tuning import space
from cupola.tuning.space import Choice, Range, Space

KEYS = (
    *("name", "algorithm", "task", "seeds", "iterations", "trials", "at_once", "pruning"),
    *("evaluation_episodes", "shared", "space"),
)
NOT_SHARED = ("iterations", *NOT_COMPARED)
"""Fields of a cell that stand elsewhere, or that a study may change on the way."""
EXAMPLES = {
    "algorithm": 'algorithm = "cup"',
    "task": 'task = "HopperSpeed"',
    "seeds": "seeds = 3",
    "trials": "trials = 25",
    "space": space.EXAMPLE,
}


@dataclass(frozen=True)
class Study:
    """A parsed and checked file."""

    base: Experiment
    """A cell for every seed, without the values of a trial."""
    space: Space
    trials: int
    at_once: int
    """Trials that are chosen together, and trained side by side."""
    pruning: bool

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def asked(self) -> Fields:
        """What must not change while the study goes on."""
        first = self.base.cells[0]
        return {
            "algorithm": first.algo,
            "task": first.task,
            "seeds": [cell.seed for cell in self.base.cells],
            "iterations": first.iterations,
            "at_once": self.at_once,
            "pruning": self.pruning,
            "evaluation_episodes": self.base.evaluation_episodes,
            "shared": {k: v for k, v in first.fields.items() if k not in NOT_SHARED},
            "space": {field: recorded(found) for field, found in self.space.items()},
        }

    def cells(self, number: int, values: Fields, bars: tuple[Level, ...]) -> list[Cell]:
        """The cells of a trial, one per seed."""
        point = {"trial": number}
        return [
            dataclasses.replace(
                cell,
                name=cell_name(cell.label, cell.task, point, cell.seed),
                point=point,
                fields=grid.checked(cell.fields | values),
                bars=bars,
            )
            for cell in self.base.cells
        ]

    def own_values(self) -> Fields | None:
        """What the fields of the space are without it; None where the space does not hold that."""
        arguments = self.base.cells[0].arguments()
        preset, _ = arguments.pop("preset"), arguments.pop("limits")
        settings = settings_from(self.base.cells[0].algo, preset, arguments)
        found = vars(settings.options) | vars(settings.algorithm) | {"preset": settings.preset}
        values = {field: plain(found[field]) for field in self.space}
        return values if self.holds(values) else None

    def holds(self, values: Fields) -> bool:
        """Whether these are values of a trial."""
        return values.keys() == self.space.keys() and all(
            self.space[field].holds(value) for field, value in values.items()
        )


def plain(value: Any) -> Any:
    """As a file holds it."""
    return list(value) if isinstance(value, tuple) else value


def recorded(found: Range | Choice) -> Any:
    if isinstance(found, Choice):
        return list(found.options)
    return {"low": found.low, "high": found.high, "log": found.log}


def read(path: Path) -> Study:
    """The study of a TOML file; a sentence that names the file where something is wrong."""
    record = grid.contents(path)
    try:
        return parse(record, slug(path.stem))
    except CupolaError as error:
        raise CupolaError(f"{path}: {error}") from None


def parse(record: Fields, default_name: str) -> Study:
    for key in record:
        if key not in KEYS:
            raise unknown("key of a study", key, KEYS)
    for key, example in EXAMPLES.items():
        check(key in record, f"the key {key!r} is missing: write for example {example}.")
    for key in ("algorithm", "task"):
        check(isinstance(record[key], str), f"{key} must be one name, not {record[key]!r}.")
    trials, at_once = (
        whole(record.get(key, 1), key, grid.MAX_CELLS) for key in ("trials", "at_once")
    )
    pruning = record.get("pruning", True)
    check(isinstance(pruning, bool), f"pruning must be true or false, not {pruning!r}.")
    apart = ("algorithm", "task", "trials", "at_once", "pruning", "space")
    experiment = {key: value for key, value in record.items() if key not in apart}
    experiment |= {"algorithms": [record["algorithm"]], "tasks": [record["task"]]}
    base = grid.parse(experiment, default_name)
    check(
        trials * len(base.cells) <= grid.MAX_CELLS,
        f"there are more than {grid.MAX_CELLS} runs: ask for fewer trials or seeds.",
    )
    found = space.parse(grid.table(record, "space"), base.cells[0].algo)
    study = Study(base, found, trials, at_once, pruning)
    for field, one in study.space.items():
        for value in one.samples:
            check_value(study, field, value)
    return study


def whole(value: Any, key: str, most: int) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
    check(fits, f"{key} must be a whole number from 1 to {most}, not {value!r}.")
    return value


def check_value(study: Study, field: str, value: Any) -> None:
    """Refuse what the field does not take, all others as they are without the space."""
    if isinstance(value, float) and not math.isfinite(value):
        raise CupolaError(f"space.{field}: {value} is not finite.")
    try:
        study.cells(0, {field: value}, ())[0].resolve()
    except CupolaError as error:
        raise CupolaError(f"space.{field}: {error}") from None
    except (TypeError, ValueError) as error:
        raise CupolaError(f"space.{field}: {value!r} is of the wrong kind: {error}.") from None
