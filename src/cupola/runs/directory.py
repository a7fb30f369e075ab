"""One run, one directory:

config.json       what was asked for, resolved; enough to begin again
metrics.jsonl     one line per iteration, nothing in it depends on the clock
timings.jsonl     one line per iteration: seconds of the rollout and the update, steps/s
checkpoints/      the last few, NNNNNNNN.safetensors

The sinks (`cupola.runs.sinks`) add files of their own.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cupola.errors import CupolaError, in_words
from cupola.runs import checkpoints

Record = dict[str, Any]

FORMAT = 3
"""Of config.json and the names in checkpoints; raised by 1 when old runs can no longer be read."""


class RunDirectory:
    """The files of a run. Every failure to write becomes a `CupolaError` that says what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.config_file = path / "config.json"
        self.metrics_file = path / "metrics.jsonl"
        self.timings_file = path / "timings.jsonl"
        self._files: dict[Path, Any] = {}

    @classmethod
    def refuse_occupied(cls, path: Path) -> None:
        """Raise unless a new run can live in ``path``."""
        with reaching(path):
            if cls(path).config_file.exists():
                raise CupolaError(
                    f"{path} already holds a run: continue it with 'cupola resume {path}'"
                    " or choose another directory with --out."
                )
            if path.exists() and not path.is_dir():
                raise CupolaError(f"{path} is a file: choose a directory with --out.")
            # A run that crashed before its config was written leaves nothing of value.
            found = {file.name for file in path.iterdir()} if path.is_dir() else set()
            if found - {".config.json.tmp"}:
                raise CupolaError(
                    f"{path} is not empty: choose a new or empty directory with --out."
                )

    @classmethod
    def create(cls, path: Path, config: Record) -> RunDirectory:
        cls.refuse_occupied(path)
        run, is_new = cls(path), not path.exists()
        with run.writing():
            try:
                path.mkdir(parents=True, exist_ok=True)
                text = json.dumps(config, indent=2) + "\n"
                checkpoints.write_atomically(run.config_file, text.encode())
            except OSError:
                if is_new:
                    shutil.rmtree(path, ignore_errors=True)
                raise
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        run = cls(path)
        with reaching(path):
            if not path.exists():
                raise CupolaError(f"there is no directory {path}.")
            if not run.config_file.is_file():
                raise CupolaError(f"{path} does not hold a run: it has no config.json.")
        return run

    @classmethod
    def open_to_load(cls, path: Path) -> RunDirectory:
        """A run whose checkpoints this version can read; reports read older ones with `open`."""
        run = cls.open(path)
        config = run.config()
        found = config.get("format", 1)
        if not isinstance(found, int):
            raise CupolaError(f"{run.config_file} is damaged: its format is {found!r}.")
        if found != FORMAT:
            version, age = config.get("cupola", "?"), "a newer" if found > FORMAT else "an older"
            raise CupolaError(
                f"{path} was written by cupola {version} in {age} format ({found}; this version"
                f" reads {FORMAT}): use it with the version that wrote it, or train again."
            )
        return run

    def config(self) -> Record:
        try:
            config = json.loads(self.config_file.read_text())
            if not isinstance(config, dict):
                raise ValueError("not an object")
        except (OSError, ValueError) as error:
            raise CupolaError(f"{self.config_file} cannot be read ({error}).") from None
        return config

    def metrics(self) -> list[Record]:
        return _read_lines(self.metrics_file)

    def timings(self) -> list[Record]:
        return _read_lines(self.timings_file)

    def newest_checkpoint(self, without: str = "") -> tuple[int, checkpoints.Arrays]:
        """The newest readable checkpoint, with a warning for each newer one that is damaged.

        Where there is none, ``without`` is the error; or it is iteration 0 and no arrays, the
        beginning.
        """
        iteration, arrays, damaged = checkpoints.newest(self.checkpoints)
        if without and not arrays:
            raise CupolaError(without)
        for sentence in damaged:
            warnings.warn(f"{sentence} Going back to iteration {iteration}.", stacklevel=3)
        return iteration, arrays

    def last_good(self) -> str:
        """Where the training can go on after it failed, in words."""
        saved = checkpoints.iterations(self.checkpoints)
        if not saved:
            return "no checkpoint had been written yet."
        return f"the last good checkpoint is {checkpoints.path_of(self.checkpoints, saved[-1])}."

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn a failed write into a sentence."""
        try:
            yield
        except OSError as error:
            saved = checkpoints.iterations(self.checkpoints)
            state = (
                f"the run is safe up to iteration {saved[-1]}: make room or give access,"
                f" then 'cupola resume {self.path}'."
                if saved
                else "nothing was saved: choose another directory with --out."
            )
            reason = error.strerror or str(error)
            raise CupolaError(f"cannot write to {self.path} ({reason}); {state}") from None

    def rewind(self, iteration: int) -> None:
        """Forget what was logged after ``iteration``, so that it can be logged again."""
        with self.writing():
            self.checkpoints.mkdir(exist_ok=True)
            for file in (self.metrics_file, self.timings_file):
                if file.exists():
                    lines = file.read_bytes().splitlines(keepends=True)[:iteration]
                    checkpoints.write_atomically(file, b"".join(lines))
            for newer in checkpoints.iterations(self.checkpoints):
                if newer > iteration:
                    checkpoints.path_of(self.checkpoints, newer).unlink()

    def log(self, metrics: Record, timings: Record) -> None:
        with self.writing():
            self._append(self.metrics_file, metrics)
            self._append(self.timings_file, timings)

    def checkpoint(self, iteration: int, arrays: checkpoints.Arrays, keep: int) -> None:
        with self.writing():
            for file in self._files.values():
                os.fsync(file.fileno())
            checkpoints.write(self.checkpoints, iteration, arrays, keep)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def _append(self, path: Path, record: Record) -> None:
        if path not in self._files:
            # Unbuffered: a line is in the file or the write fails, and closing cannot fail.
            self._files[path] = path.open("ab", buffering=0)
        checkpoints.append(self._files[path], (json.dumps(record) + "\n").encode())


def column(records: list[Record], key: str) -> np.ndarray:
    """One key of all lines, [T]; NaN where it is null or missing."""
    values = (record.get(key) for record in records)
    return np.array([math.nan if value is None else float(value) for value in values])


def open_checkpoint(path: Path) -> tuple[RunDirectory, int, checkpoints.Arrays]:
    """A run's newest readable checkpoint, or the one whose file ``path`` is."""
    if path.suffix == checkpoints.SUFFIX:
        return RunDirectory.open_to_load(path.parent.parent), *checkpoints.read(path)
    run = RunDirectory.open_to_load(path)
    none = f"{path} has no readable checkpoint: continue it with 'cupola resume {path}'."
    return run, *run.newest_checkpoint(none)


def reaching(path: Path) -> AbstractContextManager[None]:
    """Turn a path that the system refuses into a sentence."""
    return in_words(f"cannot reach {path}")


def _read_lines(path: Path) -> list[Record]:
    """The whole lines of a file; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records
