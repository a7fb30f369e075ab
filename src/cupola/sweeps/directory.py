"""A sweep on disk.

sweep.json          what was asked for: every cell with its fields
sweep.lock          held while a sweep runs here
NAME/               the run directory of a cell; result.json in it says that the cell is finished
failures/NAME.json  why a cell failed
logs/NAME.log       what its worker printed
locks/NAME          held by the worker of a cell
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from cupola.errors import CupolaError, in_words
from cupola.runs.checkpoints import write_atomically
from cupola.runs.directory import FORMAT, RunDirectory, reaching
from cupola.sweeps.cells import Cell, Experiment
from cupola.version import __version__

LOCK_SECONDS = 20.0
"""How long to wait for a lock: what holds it may be dying."""
NOT_COMPARED = ("cupola", "format", "threads", "checkpoint_every", "keep_checkpoints", "sinks")
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
        self.cells = {cell.name: cell for cell in experiment.cells}

    @classmethod
    def open(cls, path: Path) -> SweepDirectory:
        """The sweep that a directory holds."""
        manifest = path / "sweep.json"
        with reaching(path):
            if not manifest.is_file():
                raise CupolaError(f"{path} does not hold a sweep: it has no sweep.json.")
        try:
            record = json.loads(manifest.read_text())
            cells = tuple(Cell(**cell) for cell in record["cells"])
            return cls(
                path,
                Experiment(
                    record["name"], cells, record["evaluation_episodes"], record["resources"]
                ),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CupolaError(f"{manifest} is damaged ({error!r}).") from None

    @classmethod
    def refuse_foreign(cls, path: Path, experiment: Experiment) -> None:
        """Raise unless ``path`` is new, empty, or holds an earlier state of this sweep."""
        with reaching(path):
            if path.exists() and not path.is_dir():
                raise CupolaError(f"{path} is a file: choose a directory with --out.")
            if (path / "sweep.json").is_file():
                name = cls.open(path).experiment.name
                if name != experiment.name:
                    raise CupolaError(
                        f"{path} holds the sweep {name!r}, not {experiment.name!r}: choose another"
                        " directory with --out."
                    )
                return
            # A sweep that crashed before its cells were written leaves nothing of value.
            found = {file.name for file in path.iterdir()} if path.is_dir() else set()
            if found - {"sweep.lock", ".sweep.json.tmp"}:
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
            "cells": [dataclasses.asdict(cell) for cell in experiment.cells],
        }
        with writing(self.path):
            for folder in ("failures", "logs", "locks"):
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            write_json(self.path / "sweep.json", record)

    def run_path(self, name: str) -> Path:
        return self.path / name

    def log_path(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def lock_path(self, name: str) -> Path:
        return self.path / "locks" / name

    def result(self, name: str) -> dict[str, Any] | None:
        """Evaluations and versions of a finished cell."""
        return read_json(self.run_path(name) / "result.json")

    def status(self, name: str) -> CellStatus:
        result = self.result(name)
        if result and result.get("episodes") == self.experiment.evaluation_episodes:
            return CellStatus("finished")
        failure = read_json(self.failure_path(name))
        if failure:
            return CellStatus("failed", str(failure.get("reason", "no reason was recorded")))
        begun = (self.run_path(name) / "config.json").exists()
        return CellStatus("interrupted" if begun else "waiting")

    def failure_path(self, name: str) -> Path:
        return self.path / "failures" / f"{name}.json"

    def record_failure(self, name: str, reason: str) -> None:
        write_json(self.failure_path(name), {"reason": reason})

    def forget_failure(self, name: str) -> None:
        self.failure_path(name).unlink(missing_ok=True)

    def changes(self, cell: Cell) -> list[str]:
        """What differs between a cell and the run that its directory holds."""
        if not (self.run_path(cell.name) / "config.json").is_file():
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
                run = self.run_path(name)
                for file in run.iterdir():
                    if file.is_dir():
                        shutil.rmtree(file)
                    elif file.name != "config.json":
                        file.unlink()
                shutil.rmtree(run)

    def unlisted(self) -> list[str]:
        """Runs in the directory that the experiment does not list."""
        return sorted(
            file.parent.name
            for file in self.path.glob("*/config.json")
            if file.parent.name not in self.cells
        )


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`field old -> new` for all that two configs do not share and that matters."""
    pairs = [(old, new), (old.get("algorithm", {}), new["algorithm"])]
    return [
        f"{field} {a.get(field)} -> {b.get(field)}"
        for a, b in pairs
        for field in dict.fromkeys((*a, *b))
        if field not in (*NOT_COMPARED, "algorithm") and a.get(field) != b.get(field)
    ]


@contextmanager
def locked(path: Path, complaint: str, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a file; it goes with the process, however that ends."""
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise CupolaError(complaint) from None
                time.sleep(0.05)
        yield


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn a failed write into a sentence."""
    return in_words(f"cannot write to {path}")


def write_json(path: Path, record: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(json_value(record), indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """An object from a file; None where there is none, or none whole."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def json_value(value: Any) -> Any:
    """The value as strict JSON can hold it: infinity as the word, what is not a number as null."""
    if isinstance(value, dict):
        return {key: json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
