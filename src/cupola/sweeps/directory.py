"""A sweep on disk.

sweep.json          what was asked for: every cell with its fields
sweep.lock          held by the sweep that runs here
NAME/               the run directory of a cell; result.json in it says that the cell is finished
failures/NAME.json  why a cell failed
logs/NAME.log       what its worker printed
locks/NAME          held by the worker of a cell
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cupola.errors import CupolaError, in_words
from cupola.naming import slug
from cupola.runs import result, schema
from cupola.runs.directory import FORMAT, LOCK, RunDirectory, reaching
from cupola.runs.files import Folder, is_stale
from cupola.runs.lock import locked
from cupola.runs.schema import Record
from cupola.sweeps.cells import Cell, Experiment
from cupola.sweeps.pruning import Level
from cupola.version import __version__

LOCK_SECONDS = 20.0
"""How long to wait for a lock: what holds it may be dying."""
NOT_COMPARED = (
    *("cupola", "format", "threads", "checkpoint_every", "keep_checkpoints", "sinks"),
    *("evaluate_every", "evaluate_episodes", "ended"),
)
"""What a config holds that does not change the results."""

State = Literal["waiting", "interrupted", "running", "finished", "failed"]


class CellStatus(NamedTuple):
    """The state of a cell, and why it failed if it did."""

    state: State
    reason: str = ""


class SweepDirectory:
    """The files of a sweep."""

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path, self.experiment = path, experiment
        self.folder = Folder(path)
        self.cells = {cell.name: cell for cell in experiment.cells}

    @classmethod
    def open(cls, path: Path) -> SweepDirectory:
        """The sweep that a directory holds."""
        record = schema.read_record(Folder(path), "sweep.json", schema.SWEEP)
        if record is None:
            raise CupolaError(f"{path} does not hold a sweep: it has no sweep.json.")
        try:
            cells = tuple(cell_from(cell) for cell in record["cells"])
        except TypeError as error:
            raise CupolaError(f"{path / 'sweep.json'} is damaged ({error}).") from None
        for cell in cells:
            # The name is that of a folder, which must not lie elsewhere.
            if not cell.name or cell.name != slug(cell.name):
                raise CupolaError(
                    f"{path / 'sweep.json'} is damaged (a cell cannot be called {cell.name!r})."
                )
        episodes, resources = record["evaluation_episodes"], record["resources"]
        return cls(path, Experiment(record["name"], cells, episodes, resources))

    @classmethod
    def refuse_foreign(cls, path: Path, experiment: Experiment) -> None:
        """Raise unless ``path`` is new, empty, or holds an earlier state of this sweep."""
        with reaching(path):
            if path.exists() and not path.is_dir():
                raise CupolaError(f"{path} is a file: choose a directory with --out.")
            found = Folder(path).names() if path.exists() else []
            if "tuning.json" in found:
                raise CupolaError(
                    f"{path} holds a study of 'cupola tune': choose another directory with --out."
                )
            if "sweep.json" in found:
                name = cls.open(path).experiment.name
                if name != experiment.name:
                    raise CupolaError(
                        f"{path} holds the sweep {name!r}, not {experiment.name!r}: choose another"
                        " directory with --out."
                    )
                return
            # A sweep that crashed before its cells were written leaves nothing of value.
            if any(name != "sweep.lock" and not is_stale(name) for name in found):
                raise CupolaError(
                    f"{path} is not empty and holds no sweep: choose another directory with --out."
                )

    def write(self) -> None:
        """Write down what was asked for."""
        experiment = self.experiment
        record = {
            "cupola": __version__,
            "name": experiment.name,
            "evaluation_episodes": experiment.evaluation_episodes,
            "resources": experiment.resources,
            "cells": [record_of(cell) for cell in experiment.cells],
        }
        with writing(self.path):
            self.folder.remove_stale()
            for name in ("failures", "logs", "locks"):
                (self.folder / name).make()
            schema.write_record(self.folder, "sweep.json", json_value(record))

    def run_path(self, name: str) -> Path:
        return self.path / name

    def log_path(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only sweep that runs here."""
        with ExitStack() as held:
            with writing(self.path):
                self.folder.make()
                what = f"the sweep {self.path}"
                held.enter_context(locked(self.folder, "sweep.lock", what, seconds=2.0))
            yield

    def lock_cell(self, name: str) -> AbstractContextManager[None]:
        """Be the only worker of a cell."""
        with writing(self.path):
            (self.folder / "locks").make()
        return locked(self.folder / "locks", name, f"the cell {name}", LOCK_SECONDS)

    def result(self, name: str) -> Record | None:
        """Evaluations and versions of a finished cell."""
        return result.read(self.folder / name)

    def write_result(self, name: str, record: Record) -> None:
        with writing(self.path):
            result.write(self.folder / name, json_value(record))

    def status(self, name: str) -> CellStatus:
        try:
            found = self.result(name)
        except CupolaError:  # it can be evaluated again
            found = None
        if found and found["episodes"] == self.experiment.evaluation_episodes:
            return CellStatus("finished")
        try:
            failures = self.folder / "failures"
            failure = schema.read_record(failures, f"{name}.json", schema.FAILURE)
        except CupolaError as error:
            failure = {"reason": str(error)}
        if failure:
            return CellStatus("failed", failure["reason"])
        return CellStatus("interrupted" if self.has_begun(name) else "waiting")

    def has_begun(self, name: str) -> bool:
        """Whether a cell has a run; a link in its place is refused."""
        return (self.folder / name).has("config.json")

    def record_failure(self, name: str, reason: str) -> None:
        shown = "".join(c if c.isprintable() else " " for c in reason)[: schema.MAX_TEXT]
        schema.write_record(self.folder / "failures", f"{name}.json", {"reason": shown})

    def forget_failure(self, name: str) -> None:
        (self.folder / "failures").remove(f"{name}.json")

    def changes(self, cell: Cell) -> list[str]:
        """What differs between a cell and the run that its directory holds."""
        if not self.has_begun(cell.name):
            return []
        wanted = cell.resolve()
        if wanted is None:
            return []
        held = RunDirectory.open(self.run_path(cell.name)).config()
        if held.get("format") != FORMAT and self.status(cell.name).state != "finished":
            return ["it is of another version, which cannot be continued"]
        return differences(held, json.loads(json.dumps(wanted.to_json())))

    def settle_changes(self, retrain: bool) -> None:
        """Refuse cells that were trained with other settings, or throw their runs away."""
        changed = {cell.name: self.changes(cell) for cell in self.experiment.cells}
        changed = {name: changes for name, changes in changed.items() if changes}
        if changed and not retrain:
            name, changes = next(iter(changed.items()))
            others = f", and {len(changed) - 1} more cells changed" if len(changed) > 1 else ""
            raise CupolaError(
                f"the cell {name} was trained with other settings ({', '.join(changes)}){others}:"
                " add --retrain-changed to train anew what changed, or choose another --out."
            )
        with writing(self.path):
            for name in changed:
                # The config goes last: a half-removed run must still be seen as changed.
                with RunDirectory(self.run_path(name)) as run:
                    run.lock()
                    for file in run.path.iterdir():
                        if file.is_dir() and not file.is_symlink():
                            shutil.rmtree(file)
                        elif file.name not in ("config.json", LOCK):
                            file.unlink()
                    (run.path / "config.json").unlink()
                # A lock that is held cannot be removed on Windows.
                (run.path / LOCK).unlink()
                run.path.rmdir()

    def unlisted(self) -> list[str]:
        """Runs in the directory that the experiment does not list."""
        return sorted(
            file.parent.name
            for file in self.path.glob("*/config.json")
            if file.parent.name not in self.cells
        )


def record_of(cell: Cell) -> Record:
    """A cell as sweep.json holds it."""
    record = dataclasses.asdict(cell)
    return record if cell.bars else {key: part for key, part in record.items() if key != "bars"}


def cell_from(record: Record) -> Cell:
    bars = tuple(Level(**bar) for bar in record.get("bars", ()))
    return Cell(**(record | {"bars": bars}))


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`field old -> new` for all that two configs do not share and that matters."""
    pairs = [(old, new), (old["algorithm"], new["algorithm"])]
    return [
        f"{field} {a.get(field)} -> {b.get(field)}"
        for a, b in pairs
        for field in dict.fromkeys((*a, *b))
        if field not in (*NOT_COMPARED, "algorithm") and a.get(field) != b.get(field)
    ]


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn a failed write into a sentence."""
    return in_words(f"cannot write to {path}")


def json_value(value: Any) -> Any:
    """The value as strict JSON can hold it: infinity as the word, what is not a number as null."""
    if isinstance(value, dict):
        return {key: json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
