"""An experiment file: algorithms x tasks x seeds x any field, as a list of cells.

    iterations = 500
    algorithms = ["cup", { name = "cup-integral", algorithm = "cup", multiplier = "integral" }]
    tasks = ["HopperSpeed", "SwimmerSpeed"]
    seeds = 5                                    # 0 to 4, or a list

    [shared]                                     # for all cells
    checkpoint_every = 25

    [grid]                                       # crossed with all the rest
    limit = [10, 15, 20]

    [[override]]                                 # for some cells
    where = { algorithm = "cup", task = "HopperSpeed" }
    set = { delta = 0.01 }

A field is one of `RunOptions` or of the algorithm's `Config`, or `preset`, or `limit`; for tasks of
the form gym:ID or env:package.module:function also one of `GymOptions`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from cupola.algos import load_algorithm
from cupola.config import RunOptions
from cupola.errors import CupolaError, unknown
from cupola.gym.options import GymOptions
from cupola.naming import slug
from cupola.runs.files import read_file
from cupola.sweeps.cells import SPECIAL_FIELDS, Cell, Experiment, Fields, cell_name

MAX_FILE = 2**20
"""Bytes of an experiment file."""
MAX_DOTS = 100
"""In what could be a dotted key."""
MAX_CELLS = 100_000
"""Cells of a sweep."""
KEYS = (
    *("name", "iterations", "algorithms", "tasks", "seeds", "evaluation_episodes"),
    *("shared", "grid", "override", "resources"),
)
DEFAULTS: Fields = {"threads": 1, "keep_checkpoints": 1}
"""One core per cell; one checkpoint: finished cells look the same however often they stopped."""


class Variant(NamedTuple):
    """An algorithm with fields of its own."""

    label: str
    algo: str
    fields: Fields


def read(path: Path) -> Experiment:
    """The experiment of a TOML file; a sentence that names the file where something is wrong."""
    record = contents(path)
    try:
        return parse(record, slug(path.stem))
    except CupolaError as error:
        raise CupolaError(f"{path}: {error}") from None


def contents(path: Path) -> Fields:
    """What a TOML file holds."""
    try:
        return tomllib.loads(checked_text(path))
    except UnicodeDecodeError:
        raise CupolaError(f"cannot read the experiment file {path} (not a text file).") from None
    except (ValueError, RecursionError) as error:
        raise CupolaError(f"{path} is not valid TOML: {error}.") from None


def checked_text(path: Path) -> str:
    """The text of a file that is not too much for tomllib: long keys take it the square of time."""
    data = read_file(path, MAX_FILE)
    for part in re.split(rb"[\n,=\[\]{}]", data.translate(None, b" \t")):
        if part.count(b".") > MAX_DOTS:
            raise ValueError("a key has too many dots")
    return data.decode()


def parse(record: Fields, default_name: str) -> Experiment:
    """An experiment from the file's contents."""
    for key in record:
        if key not in KEYS:
            raise unknown("key", key, KEYS)
    for key in ("algorithms", "tasks", "seeds"):
        if key not in record:
            raise CupolaError(f"the key {key!r} is missing: write for example {EXAMPLES[key]}.")
    name = record.get("name", default_name)
    if not isinstance(name, str) or not name or slug(name) != name:
        raise CupolaError(f"name must be a word of letters, digits, '-' and '_', not {name!r}.")
    shared = table(record, "shared")
    if "iterations" in record:
        shared = {"iterations": record["iterations"], **shared}
    grid = {key: listed(value, f"grid.{key}") for key, value in table(record, "grid").items()}
    variants = [variant(entry) for entry in listed(record["algorithms"], "algorithms")]
    check_fields(variants, (*shared, *grid))
    tasks = listed(record["tasks"], "tasks")
    for task in tasks:
        if not isinstance(task, str):
            raise CupolaError(f"tasks must be names, not {task!r}.")
    chosen = seeds(record["seeds"])
    if math.prod(map(len, (variants, tasks, chosen, *grid.values()))) > MAX_CELLS:
        raise CupolaError(f"there are more than {MAX_CELLS} cells: list fewer in one sweep.")
    cells = [
        make_cell(one, task, seed, dict(zip(grid, values, strict=True)), shared)
        for one, task, *values, seed in product(variants, tasks, *grid.values(), chosen)
    ]
    cells = override(cells, listed(record.get("override", []), "override", may_be_empty=True))
    refuse_duplicates(cells)
    for cell in cells:
        try:
            cell.resolve()
        except CupolaError as error:
            raise CupolaError(f"cell {cell.name}: {error}") from None
        except (TypeError, ValueError) as error:
            raise CupolaError(f"cell {cell.name}: a value is of the wrong kind: {error}.") from None
    episodes = record.get("evaluation_episodes", 20)
    if not isinstance(episodes, int) or isinstance(episodes, bool) or episodes < 1:
        raise CupolaError(f"evaluation_episodes must be a number of at least 1, not {episodes!r}.")
    return Experiment(name, tuple(cells), episodes, resources(table(record, "resources")))


EXAMPLES = {
    "algorithms": 'algorithms = ["cup", "ppo_lag"]',
    "tasks": 'tasks = ["HopperSpeed"]',
    "seeds": "seeds = 5",
}


def table(record: Fields, key: str) -> Fields:
    value = record.get(key, {})
    if not isinstance(value, dict):
        raise CupolaError(
            f"{key!r} must be a table: write [{key}] and one field per line below it."
        )
    return value


def listed(value: Any, key: str, may_be_empty: bool = False) -> list[Any]:
    if not isinstance(value, list):
        raise CupolaError(f"{key} must be a list, for example [{value!r}].")
    if not value and not may_be_empty:
        raise CupolaError(f"the grid is empty: {key} lists nothing.")
    return value


def seeds(value: Any) -> list[int]:
    """`5` means 0 to 4."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = list(range(min(value, MAX_CELLS + 1)))
    found = listed(value, "seeds")
    for seed in found:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise CupolaError(f"seeds must be whole numbers, not {seed!r}.")
    return found


def resources(record: Fields) -> dict[str, float]:
    for name, amount in record.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
            raise CupolaError(f"resources.{name} must be a number of at least 0, not {amount!r}.")
    return {name: float(amount) for name, amount in record.items()}


def variant(entry: Any) -> Variant:
    """An algorithm's name, or a table with its name, perhaps a label, and fields of its own."""
    if isinstance(entry, str):
        entry = {"algorithm": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("algorithm"), str):
        raise CupolaError(
            'an algorithm is a name or a table like { name = "cup-integral", algorithm = "cup",'
            f' multiplier = "integral" }}, not {entry!r}.'
        )
    algo = load_algorithm(entry["algorithm"]).__name__.rpartition(".")[2]
    label = entry.get("name", algo)
    if not isinstance(label, str) or not label:
        raise CupolaError(f"the name of an algorithm must be a word, not {label!r}.")
    return Variant(label, algo, {k: v for k, v in entry.items() if k not in ("name", "algorithm")})


def field_names(algo: str) -> list[str]:
    kinds = (RunOptions, load_algorithm(algo).Config, GymOptions)
    names = [field.name for kind in kinds for field in dataclasses.fields(kind)]
    return [*SPECIAL_FIELDS, *(name for name in names if name != "seed")]


def check_fields(variants: Iterable[Variant], shared: Iterable[str]) -> None:
    """Refuse fields that an algorithm does not have, suggesting the nearest that it has."""
    variants = list(variants)
    known = {name for one in variants for name in field_names(one.algo)}
    for field in (*shared, *(field for one in variants for field in one.fields)):
        if field == "seed":
            raise CupolaError("seeds are listed at the top of the file: write seeds = [0, 1].")
        if field not in known:
            raise unknown("field", field, known)
    for one in variants:
        for field in (*shared, *one.fields):
            if field not in field_names(one.algo):
                raise CupolaError(
                    f"{one.algo} has no field {field!r}: set it for the others alone, with"
                    " [[override]] or beside their name, or give them a file of their own."
                )


def make_cell(one: Variant, task: str, seed: int, point: Fields, shared: Fields) -> Cell:
    name = cell_name(one.label, task, point, seed)
    fields = DEFAULTS | shared | one.fields | point
    return Cell(name, one.label, task, seed, point, one.algo, checked(fields))


def override(cells: list[Cell], entries: list[Any]) -> list[Cell]:
    """The cells with the fields of every [[override]] that they match."""
    for entry in entries:
        if not isinstance(entry, dict):
            raise CupolaError("an override is a table with 'where' and 'set'.")
        for key in entry:
            if key not in ("where", "set"):
                raise unknown("key of an override", key, ("where", "set"))
        where, values = table(entry, "where"), table(entry, "set")
        conditions = ("algorithm", "task", "seed", *cells[0].point)
        for key in where:
            if key not in conditions:
                raise unknown("condition of an override", key, conditions)
        matching = [matches(cell, where) for cell in cells]
        if not any(matching):
            raise CupolaError(f"an override matches no cell: where = {where}.")
        chosen = [c for c, match in zip(cells, matching, strict=True) if match]
        check_fields([Variant(cell.label, cell.algo, values) for cell in chosen], ())
        cells = [
            dataclasses.replace(cell, fields=checked(cell.fields | values)) if match else cell
            for cell, match in zip(cells, matching, strict=True)
        ]
    return cells


def matches(cell: Cell, where: Fields) -> bool:
    """A condition is a value, or a list of values any of which will do."""
    facts = {**cell.point, "algorithm": cell.label, "task": cell.task, "seed": cell.seed}
    return all(
        facts[key] == wanted or (isinstance(wanted, list) and facts[key] in wanted)
        for key, wanted in where.items()
    )


def checked(fields: Fields) -> Fields:
    """Values that `resolve` would not refuse by itself; paths as every machine can find them."""
    if "preset" in fields and not isinstance(fields["preset"], str):
        raise CupolaError(f"preset must be a name, not {fields['preset']!r}.")
    if "limit" in fields:
        limit = fields["limit"]
        for value in limit.values() if isinstance(limit, dict) else [limit]:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise CupolaError(
                    f"limit must be a number or a table like {{ speed = 80 }}, not {limit!r}."
                )
    start = fields.get("start_from")
    if start and isinstance(start, str):
        fields = fields | {"start_from": os.path.abspath(start)}
    return fields


def refuse_duplicates(cells: list[Cell]) -> None:
    found: set[str] = set()
    for cell in cells:
        # Not all file systems tell capitals apart.
        if cell.name.lower() in found:
            raise CupolaError(
                f"two cells are called {cell.name}: list every algorithm, task, seed and value"
                ' once, and tell variants apart with { name = "...", algorithm = "..." }.'
            )
        found.add(cell.name.lower())
