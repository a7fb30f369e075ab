"""A study on disk: the directory of a sweep whose cells are the runs of its trials, and

tuning.json   what was asked for, and every trial with its outcome
best.toml     the best feasible settings so far, for `cupola sweep`

tuning.json is replaced whole whenever a trial is chosen or has ended, before its cells are written:
a kill at any moment leaves a study that can go on.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.directory import reaching
from cupola.runs.files import Folder, is_stale
from cupola.runs.journal import chained
from cupola.runs.schema import Record
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory, json_value, writing
from cupola.sweeps.pruning import Level
from cupola.tuning.best import best_file
from cupola.tuning.study import Study
from cupola.tuning.trials import STATES, Outcome, Trial, best
from cupola.version import __version__

FILE, BEST_FILE = "tuning.json", "best.toml"


@dataclasses.dataclass(frozen=True)
class Known:
    """What tuning.json holds."""

    name: str
    wanted: int
    """Trials."""
    asked: Record
    trials: tuple[Trial, ...]
    importances: dict[str, float]


def read(path: Path) -> Known | None:
    """The study in a directory; None where there is none, a sentence where it is damaged."""
    record = schema.read_record(Folder(path), FILE, schema.TUNING)
    if record is None:
        return None
    damaged = CupolaError(f"{path / FILE} is damaged: put back an earlier copy, or begin anew.")
    if record.pop("check") != digest(record):
        raise damaged
    try:
        trials = [trial_from(number, one) for number, one in enumerate(record["trials"])]
    except (TypeError, ValueError):
        raise damaged from None
    return Known(
        record["name"],
        record["trials_wanted"],
        record["asked"],
        tuple(trials),
        record["importances"],
    )


def digest(record: Record) -> str:
    """Finds damage, not forgery."""
    return chained("", json.dumps(record, sort_keys=True).encode())


def trial_from(number: int, record: Record) -> Trial:
    outcome = record.get("outcome")
    if outcome:
        if outcome["state"] not in STATES:
            raise ValueError(outcome["state"])
        if outcome["costs"].keys() != outcome["limits"].keys():
            raise ValueError("costs without limits")
        if outcome["mean_return"] is None and outcome["state"] != "failed":
            raise ValueError("no return")
        outcome = Outcome(**(outcome | {"levels": levels_from(outcome["levels"])}))
    return Trial(number, record["values"], levels_from(record["bars"]), outcome)


def levels_from(records: list[Record]) -> tuple[Level, ...]:
    return tuple(Level(**one) for one in records)


def record_of(trial: Trial) -> Record:
    record: dict[str, Any] = dataclasses.asdict(trial)
    del record["number"]
    if trial.outcome is None:
        del record["outcome"]
    return record


class StudyDirectory:
    """The files of a study."""

    def __init__(self, path: Path, study: Study) -> None:
        self.path, self.study = path, study
        self.folder = Folder(path)
        self.trials: list[Trial] = []
        self.importances: dict[str, float] = {}

    def open(self) -> None:
        """Take up the trials that the directory holds; refuse those of another study."""
        with reaching(self.path):
            if self.path.exists() and not self.path.is_dir():
                raise CupolaError(f"{self.path} is a file: choose a directory with --out.")
            found = self.folder.names() if self.path.exists() else []
            known = read(self.path) if FILE in found else None
        if known:
            self._take_up(known)
        elif any(name != "sweep.lock" and not is_stale(name) for name in found):
            raise CupolaError(
                f"{self.path} is not empty and holds no study: choose another directory with --out."
            )

    def _take_up(self, known: Known) -> None:
        study, asked = self.study, json.loads(json.dumps(json_value(self.study.asked)))
        changed = [key for key in asked if known.asked.get(key) != asked[key]]
        if known.name != study.name or changed:
            difference = f"with another {', '.join(changed)}" if changed else f"as {known.name!r}"
            raise CupolaError(
                f"{self.path} holds a study that was begun {difference}: choose another directory"
                " with --out, or put the file back as it was."
            )
        for trial in known.trials:
            if not study.holds(trial.values):
                raise CupolaError(
                    f"{self.path / FILE} is damaged (trial {trial.number} is not in the space)."
                )
        self.trials, self.importances = list(known.trials), known.importances

    def sweep(self, trials: list[Trial] | None = None) -> SweepDirectory:
        """The runs of these trials, or of all, as a sweep."""
        chosen = self.trials if trials is None else trials
        cells = tuple(cell for trial in chosen for cell in self.cells(trial))
        return SweepDirectory(self.path, dataclasses.replace(self.study.base, cells=cells))

    def cells(self, trial: Trial) -> list[Cell]:
        return self.study.cells(trial.number, trial.values, trial.bars)

    def write(self) -> None:
        """Write down all that is known; the cells last."""
        record = {
            "cupola": __version__,
            "name": self.study.name,
            "trials_wanted": self.study.trials,
            "asked": self.study.asked,
            "trials": [record_of(trial) for trial in self.trials],
            "importances": self.importances,
        }
        record = json.loads(json.dumps(json_value(record)))
        with writing(self.path):
            self.folder.make()
            schema.write_record(self.folder, FILE, record | {"check": digest(record)})
            found = best(self.trials)
            if found:
                self.folder.write(BEST_FILE, best_file(self.study, found).encode())
        self.sweep().write()
