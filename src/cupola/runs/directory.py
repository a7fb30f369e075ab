"""One run, one directory:

config.json       what was asked for, resolved; enough to begin again
metrics.jsonl     one line per iteration, nothing in it depends on the clock
timings.jsonl     one line per iteration: seconds of the rollout and the update, steps/s
checkpoints/      the last few, NNNNNNNN.safetensors
.lock             held by the process that trains

The sinks (`cupola.runs.sinks`) add files of their own.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np

from cupola.errors import CupolaError, CupolaWarning, in_words
from cupola.runs import checkpoints, schema
from cupola.runs.checkpoints import Checkpoint
from cupola.runs.files import Folder, is_stale
from cupola.runs.journal import Journal
from cupola.runs.lock import locked
from cupola.runs.schema import Record

FORMAT = 4
"""Of config.json, lines and checkpoints; raised by 1 when old runs can no longer be read."""
CHECKED_SINCE = 4
"""The first format whose lines have check values."""
UNSAVED = ".nothing-saved-yet"
"""In checkpoints/ until the first one is written: without it and without any, some are lost."""
LOCK = ".lock"
LOCK_SECONDS = 1.0
"""How long to wait for the lock: what holds it may be dying."""


class RunDirectory:
    """The files of a run. Every failure to write becomes a `CupolaError` that says what to do.

    Reading needs no lock. Writing begins with `create` or `lock` and ends with `close`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = Folder(path)
        self.checkpoints = self.folder / "checkpoints"
        self.config_file = path / "config.json"
        self._metrics = Journal(self.folder, "metrics.jsonl", schema.METRICS)
        self._timings = Journal(self.folder, "timings.jsonl", schema.TIMINGS, gaps=True)
        self._lock = ExitStack()

    # --- Opening ---

    @classmethod
    def refuse_occupied(cls, path: Path) -> None:
        """Raise unless a new run can live in ``path``."""
        with reaching(path):
            if path.exists() and not path.is_dir():
                raise CupolaError(f"{path} is a file: choose a directory with --out.")
            found = set(Folder(path).names()) if path.exists() else set()
        if "config.json" in found:
            raise CupolaError(
                f"{path} already holds a run: continue it with 'cupola resume {path}'"
                " or choose another directory with --out (in Python: cupola.resume, out=)."
            )
        # A run that crashed before its config was written leaves nothing of value.
        if any(name != LOCK and not is_stale(name) for name in found):
            raise CupolaError(f"{path} is not empty: choose a new or empty directory with --out.")

    @classmethod
    def create(cls, path: Path, config: Record) -> RunDirectory:
        """A new run, locked."""
        data = encoded(config)
        cls.refuse_occupied(path)
        run, is_new = cls(path), not path.exists()
        with run.writing(), run._lock:
            run.folder.make()
            run.lock()
            cls.refuse_occupied(path)  # another process may have been faster
            try:
                run.folder.write("config.json", data)
            except OSError:
                if is_new:
                    shutil.rmtree(path, ignore_errors=True)
                raise
            run._lock = run._lock.pop_all()  # kept, because nothing failed
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        run = cls(path)
        with reaching(path):
            if not path.exists():
                raise CupolaError(f"there is no directory {path}.")
            if not path.is_dir() or not run.folder.has("config.json"):
                raise CupolaError(f"{path} does not hold a run: it has no config.json.")
        return run

    @classmethod
    def open_to_load(cls, path: Path) -> RunDirectory:
        """A run whose checkpoints this version can read; reports read older ones with `open`."""
        run = cls.open(path)
        config = run.config()
        found = config.get("format", 1)
        if found != FORMAT:
            version, age = config.get("cupola", "?"), "a newer" if found > FORMAT else "an older"
            raise CupolaError(
                f"{path} was written by cupola {version} in {age} format ({found}; this version"
                f" reads {FORMAT}): use it with the version that wrote it, or train again."
            )
        return run

    # --- Reading ---

    def config(self) -> Record:
        record = schema.read_record(self.folder, "config.json", schema.CONFIG)
        if record is None:
            raise CupolaError(f"{self.path} does not hold a run: it has no config.json.")
        return record

    def metrics(self) -> list[Record]:
        """All lines; a sentence where one is damaged or missing."""
        saved = checkpoints.iterations(self.checkpoints)  # first: the run may be going on
        checked = self._is_checked()
        records = self._metrics.records(checked)
        if checked and saved and saved[-1] > len(records):
            raise CupolaError(
                f"{self._metrics.path} ends at iteration {len(records)}, but there is a checkpoint"
                f" of iteration {saved[-1]}: lines are missing."
            )
        return records

    def timings(self) -> list[Record]:
        return self._timings.records(self._is_checked())

    def latest(self) -> tuple[list[Record], list[Record]]:
        """The last lines of metrics and timings, for a quick look while the run goes on."""
        return self._metrics.tail(), self._timings.tail()

    def _is_checked(self) -> bool:
        return self.config().get("format", 1) >= CHECKED_SINCE

    def newest_checkpoint(self, without: str) -> Checkpoint:
        """The newest readable checkpoint; ``without`` is the error where there is none.

        A warning for each newer one that is damaged.
        """
        found, faults = checkpoints.newest(self.checkpoints)
        if found is None:
            raise CupolaError(without)
        self._warn_of(faults, found.iteration)
        return found

    def last_good(self) -> str:
        """Where the training can go on after it failed, in words."""
        saved = checkpoints.iterations(self.checkpoints)
        if not saved:
            return "no checkpoint had been written yet."
        path = self.checkpoints.path / checkpoints.name_of(saved[-1])
        return f"the last good checkpoint is {path}."

    # --- Going on ---

    def recover(self, iterations: int) -> Checkpoint | None:
        """What a resumed training goes on from: the newest checkpoint whose metrics are whole.

        None is the beginning, where there is nothing to lose. A warning for each newer checkpoint
        that is passed over. Where work would be lost, the error says so.
        """
        metrics = self._metrics.read()
        done, faults = len(metrics.records), []
        for iteration in reversed(checkpoints.iterations(self.checkpoints)):
            try:
                found = checkpoints.read(self.checkpoints, checkpoints.name_of(iteration))
            except CupolaError as error:
                faults.append(str(error))
                continue
            if iteration > iterations:
                raise self._refusal(
                    f"{self.config_file} asks for {iterations} iterations, and {iteration} are done"
                )
            if iteration <= done and metrics.checks[iteration] == found.metrics:
                self._warn_of(faults, iteration)
                return found
            faults.append(
                metrics.fault
                if metrics.fault and iteration > done
                else f"{self._metrics.path} does not fit the checkpoint of iteration {iteration}."
            )
        if faults:
            raise self._refusal(f"{faults[0].rstrip('.')}, and no older checkpoint helps")
        if (done or metrics.fault) and not self.checkpoints.has(UNSAVED):
            self._warn_of([], 0)
            raise self._refusal(f"{self.path} has {done} iterations of metrics and no checkpoint")
        return None

    def _refusal(self, reason: str) -> CupolaError:
        return CupolaError(
            f"{reason}: to throw the run's work away and begin again at iteration 1, write"
            f" 'cupola resume {self.path} --restart' (restart=True in Python)."
        )

    def _warn_of(self, faults: list[str], iteration: int) -> None:
        for fault in dict.fromkeys(faults):
            warnings.warn(
                f"{fault} Going back to iteration {iteration}.", CupolaWarning, stacklevel=4
            )
        for name in checkpoints.misnamed(self.checkpoints):
            warnings.warn(
                f"{self.checkpoints.path / name} is not called as a checkpoint is, for example"
                f" {checkpoints.name_of(10)}: it is left alone.",
                CupolaWarning,
                stacklevel=4,
            )

    # --- Writing ---

    def lock(self) -> None:
        """Be the only one who writes, until `close` or the end of the process.

        A directory that is renamed meanwhile stays the run's; one that gets its name is not.
        """
        with self.writing():
            self._lock.enter_context(self.folder.held())
            self._lock.enter_context(locked(self.folder, LOCK, str(self.path), LOCK_SECONDS))
            for folder in (self.folder, self.checkpoints):
                folder.remove_stale()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn a failed write into a sentence."""
        try:
            yield
        except OSError as error:
            saved = []
            with suppress(CupolaError):
                saved = checkpoints.iterations(self.checkpoints)
            state = (
                f"the run is safe up to iteration {saved[-1]}: make room or give access,"
                f" then 'cupola resume {self.path}'."
                if saved
                else "nothing was saved: choose another directory with --out."
            )
            reason = error.strerror or str(error)
            raise CupolaError(f"cannot write to {self.path} ({reason}); {state}") from None

    def rewind(self, iteration: int, keep: int) -> None:
        """Forget what was logged after ``iteration``, so that it can be logged again.

        Of the checkpoints the last ``keep`` up to there remain, also where a kill came between
        writing one and forgetting the oldest.
        """
        with self.writing():
            self.checkpoints.make()
            if iteration == 0:
                self.checkpoints.write(UNSAVED, b"")
            for newer in checkpoints.iterations(self.checkpoints):
                if newer > iteration:
                    self.checkpoints.remove(checkpoints.name_of(newer))
            if iteration > 0:
                checkpoints.forget_old(self.checkpoints, keep)
                self.checkpoints.remove(UNSAVED)
            self._metrics.rewind(iteration)
            fault = self._timings.rewind(iteration)
        if fault:
            warnings.warn(
                f"{fault} The timings from there on are dropped.", CupolaWarning, stacklevel=3
            )

    def rewrite_config(self, config: Record) -> None:
        """Replace the config of a run that is locked."""
        with self.writing():
            self.folder.write("config.json", encoded(config))

    def log(self, metrics: Record, timings: Record) -> None:
        with self.writing():
            self._metrics.append(metrics)
            self._timings.append(timings)

    def checkpoint(self, iteration: int, arrays: checkpoints.Arrays, keep: int) -> None:
        with self.writing():
            self._metrics.sync()
            self._timings.sync()
            found = Checkpoint(iteration, arrays, self._metrics.check)
            checkpoints.write(self.checkpoints, found, keep)
            self.checkpoints.remove(UNSAVED)

    def close(self) -> None:
        self._metrics.close()
        self._timings.close()
        self._lock.close()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def column(records: list[Record], key: str) -> np.ndarray:
    """One key of all lines, [T]; NaN where it is null or missing."""
    values = (record.get(key) for record in records)
    return np.array([math.nan if value is None else float(value) for value in values])


def encoded(config: Record) -> bytes:
    """A config as its file holds it."""
    data = (json.dumps(config, indent=2) + "\n").encode()
    try:
        schema.parse(data, schema.CONFIG)
    except ValueError as error:
        raise CupolaError(f"this config could not be read again ({error}).") from None
    return data


def open_checkpoint(path: Path, iteration: int | None = None) -> tuple[RunDirectory, Checkpoint]:
    """A run's newest readable checkpoint, that of an iteration, or the one whose file this is."""
    if path.suffix == checkpoints.SUFFIX:
        run = RunDirectory.open_to_load(path.parent.parent)
        found = checkpoints.read(run.folder / path.parent.name, path.name)
        if iteration not in (None, found.iteration):
            raise CupolaError(f"{path} is the checkpoint of iteration {found.iteration} already.")
        return run, found
    run = RunDirectory.open_to_load(path)
    if iteration is None:
        none = f"{path} has no readable checkpoint: continue it with 'cupola resume {path}'."
        return run, run.newest_checkpoint(none)
    kept = checkpoints.iterations(run.checkpoints)
    if iteration not in kept:
        raise CupolaError(
            f"{path} keeps no checkpoint of iteration {iteration}: choose from"
            f" {', '.join(['best', 'last', *map(str, kept)])}."
        )
    return run, checkpoints.read(run.checkpoints, checkpoints.name_of(iteration))


def reaching(path: Path) -> AbstractContextManager[None]:
    """Turn a path that the system refuses into a sentence."""
    return in_words(f"cannot reach {path}")
