"""Runs and sweeps below a directory, found without following a link."""

from __future__ import annotations

from typing import NamedTuple

from cupola.errors import CupolaError
from cupola.naming import by_numbers
from cupola.runs import schema
from cupola.runs.files import Folder

MOST_FOLDERS = 20_000
MOST_DEPTH = 8


class Found(NamedTuple):
    runs: list[Folder]
    sweeps: list[Folder]
    is_whole: bool
    """Whether there are no more folders than are looked at."""


def find(root: Folder) -> Found:
    """Runs and sweeps, in the order of their names, 9 before 10.

    Nothing is looked for within a run, or in a folder whose name begins with a dot.
    """
    found = Found([], [], True)
    pending, looked_at = [(root, 0)], 0
    while pending:
        folder, depth = pending.pop()
        looked_at += 1
        if looked_at > MOST_FOLDERS:
            return found._replace(is_whole=False)
        try:
            entries = folder.entries()
        except CupolaError:  # not ours to enter
            continue
        if "sweep.json" in entries:
            found.sweeps.append(folder)
        if "config.json" in entries and is_run(folder):
            found.runs.append(folder)
        elif depth < MOST_DEPTH:
            inner = [name for name, is_folder in entries.items() if is_folder]
            inner.sort(key=by_numbers, reverse=True)
            pending += [(folder / name, depth + 1) for name in inner if not name.startswith(".")]
    return found


def is_run(folder: Folder) -> bool:
    """Whether a directory with a config.json is a run, be it a damaged one."""
    if folder.has("metrics.jsonl") or folder.has("checkpoints"):
        return True
    try:
        return schema.read_record(folder, "config.json", schema.CONFIG) is not None
    except CupolaError:  # of some other program
        return False
