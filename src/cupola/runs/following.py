"""Reading the files of a run that may still be training: what was read is not read again."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection

import numpy as np

from cupola.errors import CupolaError
from cupola.runs import checkpoints, schema
from cupola.runs.directory import CHECKED_SINCE, LOCK
from cupola.runs.files import MAX_LINE, Folder, Stamp
from cupola.runs.journal import Journal, verified
from cupola.runs.lock import is_held
from cupola.runs.schema import Record

PIECE_BYTES = 2 * MAX_LINE
"""Read at a time: at least one whole line."""
MOST_LINES = 1_000_000
"""Of a journal that is followed: its columns are kept in memory."""
MOST_COSTS = 32

METRICS = ("steps", "return")
PER_COST = ("cost", "cost_error", "nu")
EVALUATIONS = ("eval_sampled", "eval_deterministic")
"""Of runs that have evaluations: the return and each cost of both."""
TIMINGS = ("rollout_seconds", "update_seconds")


class JournalFollower:
    """Some columns of a journal, with as many lines as have been read."""

    def __init__(
        self, folder: Folder, name: str, kind: schema.Table, wanted: Collection[str], gaps: bool
    ) -> None:
        self._folder, self._name, self._kind, self._gaps = folder, name, kind, gaps
        self._wanted = tuple(wanted)
        self._begin()

    def _begin(self) -> None:
        self._stamp: Stamp | None = None
        self._position = 0
        self._check = ""
        self._columns = {key: array("d") for key in self._wanted}
        self.count = 0
        self.iteration = 0
        """Of the last line; 0 before the first."""
        self.fault = ""
        """What is wrong with the next line, in a sentence."""

    def read_on(self, checked: bool) -> bool:
        """Read the next piece of the file; whether there may be more of it.

        A file that was replaced, as a resumed run does, or cut short is read anew.
        """
        now = self._folder.stamp(self._name)
        if now == self._stamp and (self.fault or (now and self._position == now.size)):
            return False
        replaced = now is None or not now.is_same_file(self._stamp) or now.size < self._position
        if self._stamp is not None and (replaced or self.fault):
            self._begin()
        data, self._stamp = self._folder.piece(self._name, self._position, PIECE_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.split(b"\n")[:-1]:
            try:
                self._take(line + b"\n", checked)
            except ValueError as error:
                self.fault = f"line {self.count + 1} of {self._folder.path / self._name} {error}."
                return False
        if not whole and len(data) > MAX_LINE:
            self.fault = f"{self._folder.path / self._name} has a line that is too long."
        return len(data) == PIECE_BYTES and not self.fault

    def _take(self, line: bytes, checked: bool) -> None:
        if self.count >= MOST_LINES or len(line) > MAX_LINE:
            raise ValueError("is more than can be shown")
        before = self._check if checked else None
        record, self._check = verified(line, self._kind, before, self.iteration, self._gaps)
        for key, values in self._columns.items():
            value = record.get(key)
            values.append(math.nan if value is None else value)
        self._position += len(line)
        self.count += 1
        self.iteration = record["iteration"]

    def column(self, key: str) -> np.ndarray:
        """One key of all lines so far, [T]; NaN where it is null or missing."""
        return np.array(self._columns[key])

    def last(self, key: str) -> float:
        values = self._columns[key]
        return values[-1] if values else math.nan


class RunFollower:
    """Config, metrics and timings of a run; a `CupolaError` where they are damaged."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._stamp: Stamp | None = None
        self.config: Record = {}
        self.metrics: JournalFollower
        self.timings: JournalFollower

    def read_config(self) -> None:
        """Begin, and begin again where config.json is another one."""
        stamp = self.folder.stamp("config.json")
        if stamp is not None and stamp == self._stamp:
            return
        config = schema.read_record(self.folder, "config.json", schema.CONFIG)
        if config is None:
            raise CupolaError(f"{self.folder.path} does not hold a run: it has no config.json.")
        if len(config["limits"]) > MOST_COSTS:
            raise CupolaError(f"{self.folder.path} limits more than {MOST_COSTS} costs.")
        self._stamp, self.config = stamp, config
        costs = config["limits"]
        keys = [*METRICS, *(f"{kind}/{cost}" for cost in costs for kind in PER_COST)]
        if config.get("evaluate_every"):
            of_each = ("return", *(f"cost/{cost}" for cost in costs))
            keys += [f"{kind}/{name}" for kind in EVALUATIONS for name in of_each]
        self.metrics = JournalFollower(self.folder, "metrics.jsonl", schema.METRICS, keys, False)
        self.timings = JournalFollower(self.folder, "timings.jsonl", schema.TIMINGS, TIMINGS, True)

    def glance(self) -> Record | None:
        """The last line of the metrics, before all of them are read; it is not checked."""
        lines = Journal(self.folder, "metrics.jsonl", schema.METRICS).tail(1)
        return lines[0] if lines else None

    def read_on(self) -> bool:
        """Read a piece of what is new; whether there may be more."""
        saved = checkpoints.iterations(self.folder / "checkpoints")  # first: the run may go on
        checked = self.config.get("format", 1) >= CHECKED_SINCE
        more = [journal.read_on(checked) for journal in (self.metrics, self.timings)]
        for journal in (self.metrics, self.timings):
            if journal.fault:
                raise CupolaError(journal.fault)
        if checked and saved and saved[-1] > self.metrics.count and not more[0]:
            raise CupolaError(
                f"{self.folder.path / 'metrics.jsonl'} ends at iteration {self.metrics.count}, but"
                f" there is a checkpoint of iteration {saved[-1]}: lines are missing."
            )
        return any(more)

    def is_training(self) -> bool:
        """Whether a process is at work on the run."""
        return is_held(self.folder, LOCK)
