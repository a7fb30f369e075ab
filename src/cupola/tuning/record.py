"""tuning.json: what a study was asked for, and its trials.

The check value finds damage. It does not protect from somebody who computes it anew.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.files import Folder
from cupola.runs.journal import chained
from cupola.runs.schema import Record
from cupola.sweeps.directory import json_value
from cupola.sweeps.pruning import Level
from cupola.tuning.trials import STATES, Outcome, Trial
from cupola.version import __version__

FILE = "tuning.json"


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


def write(folder: Folder, known: Known) -> None:
    record = {
        "cupola": __version__,
        "name": known.name,
        "trials_wanted": known.wanted,
        "asked": known.asked,
        "trials": [record_of(trial) for trial in known.trials],
        "importances": known.importances,
    }
    record = json_value(record)
    schema.write_record(folder, FILE, record | {"check": digest(record)})
