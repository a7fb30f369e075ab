"""result.json: the evaluations of a finished cell of a sweep, with a check value.

The check value finds damage. It does not protect from somebody who computes it anew.
"""

from __future__ import annotations

import json

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.files import Folder
from cupola.runs.journal import chained
from cupola.runs.schema import Record

NAME = "result.json"


def read(folder: Folder) -> Record | None:
    """The result in a run's folder; None where there is none, a sentence where it is damaged."""
    record = schema.read_record(folder, NAME, schema.RESULT)
    if record is None:
        return None
    if record.pop("check") != _check(record):
        raise CupolaError(
            f"{folder.path / NAME} is damaged: its check value does not fit, so it was changed;"
            " 'cupola sweep' evaluates the cell again."
        )
    return record


def write(folder: Folder, record: Record) -> None:
    schema.write_record(folder, NAME, record | {"check": _check(record)})


def _check(record: Record) -> str:
    return chained("", json.dumps(record, sort_keys=True).encode())
