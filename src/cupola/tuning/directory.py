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

from cupola.errors import CupolaError
from cupola.runs.directory import reaching
from cupola.runs.files import Folder, is_stale
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory, json_value, writing
from cupola.tuning import record
from cupola.tuning.best import best_file
from cupola.tuning.record import Known
from cupola.tuning.study import Study
from cupola.tuning.trials import Trial, best

BEST_FILE = "best.toml"


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
            known = record.read(self.path) if record.FILE in found else None
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
                what = f"trial {trial.number} is not in the space"
                raise CupolaError(f"{self.path / record.FILE} is damaged ({what}).")
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
        study = self.study
        known = Known(study.name, study.trials, study.asked, tuple(self.trials), self.importances)
        with writing(self.path):
            self.folder.make()
            record.write(self.folder, known)
            found = best(self.trials)
            if found:
                self.folder.write(BEST_FILE, best_file(self.study, found).encode())
        self.sweep().write()
