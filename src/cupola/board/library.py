"""All runs and sweeps below a directory, found and read on again and again."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from cupola.board.watched import MOST_VIDEO, Json, Watched, identify, video_type
from cupola.errors import CupolaError
from cupola.naming import text_of
from cupola.output import visible
from cupola.reports.results import differing_settings
from cupola.runs import schema
from cupola.runs.files import Folder, Stamp
from cupola.runs.search import MOST_FOLDERS, find
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory

SEARCH_SECONDS = 3.0
MOST_RUNS = 2000
AT_A_TIME = 8
"""Runs that are read before the page is told."""
FEWEST_POINTS, MOST_POINTS, MOST_NUMBERS = 60, 400, 120_000
"""Of a curve, and of all curves in one answer."""


class Library:
    """What the board knows. One thread calls `refresh`, any thread asks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = Folder(path.resolve())
        self._lock = threading.Lock()
        self._runs: dict[str, Watched] = {}
        self._sweeps: dict[str, tuple[Stamp | None, SweepDirectory | None]] = {}
        self._failures: dict[str, dict[str, str]] = {}
        """By sweep and cell."""
        self._series: tuple[list[int], list[str]] = ([], [])
        """Labels of the runs with these configs."""
        self._rows: dict[str, tuple[int, Json]] = {}
        self._order: list[str] = []
        self._groups: list[Json] = []
        self._left_out: dict[str, str] = {}
        self._notes: list[str] = []
        # Beyond all versions of a board that ran before: a page that was open gets everything.
        self._version = time.time_ns() // 10**6
        self._next_search = 0.0

    # --- Reading ---

    def refresh(self) -> bool:
        """Look for runs and read on; whether there is more to read at once."""
        now, changed = time.monotonic(), False
        if now >= self._next_search:
            self._search()
            # Of a large tree seldom: the machine has better things to do.
            self._next_search = time.monotonic() + SEARCH_SECONDS + 20 * (time.monotonic() - now)
            changed = True
        for run in self._runs.values():
            if run.due <= now:
                with run.lock:
                    run.look()
                    if run.is_read:
                        run.read_on()
                    run.tell()
                changed = True
        if changed:
            self._tell()
        # What trains is read first; a few at a time, so that new rows are seen soon.
        behind = [run for run in self._runs.values() if not (run.is_read or run.fault)]
        behind.sort(key=lambda run: not run.is_training)
        for run in behind[:AT_A_TIME]:
            with run.lock:
                run.read_on()
                run.tell()
        if behind:
            self._tell()
        return bool(behind)

    def _search(self) -> None:
        found = find(self._root)
        names = {self._name(folder): folder for folder in found.runs[:MOST_RUNS]}
        for name, folder in names.items():
            if name not in self._runs:
                self._runs[name] = Watched(folder, name)
        for name in self._runs.keys() - names.keys():
            del self._runs[name]
        sweeps = {self._name(folder): folder for folder in found.sweeps}
        for name in self._sweeps.keys() - sweeps.keys():
            del self._sweeps[name]
        faults = {}
        self._failures = {}
        for name, folder in sweeps.items():
            stamp = folder.stamp("sweep.json")
            if name not in self._sweeps or self._sweeps[name][0] != stamp:
                try:
                    self._sweeps[name] = stamp, SweepDirectory.open(folder.path)
                except CupolaError as error:
                    self._sweeps[name] = None, None
                    faults[name] = str(error)
            sweep = self._sweeps[name][1]
            self._failures[name] = read_failures(sweep) if sweep else {}
        notes = []
        if not found.is_whole:
            notes.append(f"only the first {MOST_FOLDERS:,} folders were looked at")
        if len(found.runs) > MOST_RUNS:
            notes.append(f"only the first {MOST_RUNS:,} of {len(found.runs):,} runs are here")
        notes += [f"the sweep {name} is left out: {fault}" for name, fault in faults.items()]
        with self._lock:
            self._version += notes != self._notes
            self._notes = notes

    def _name(self, folder: Folder) -> str:
        return "/".join(folder.inner) or "."

    # --- What the page is told ---

    def _tell(self) -> None:
        """Bring the rows up to date."""
        sound = [run for run in self._runs.values() if run.row and not run.fault]
        faults = {run.name: run.fault for run in self._runs.values() if run.fault}
        rows: dict[str, Json] = {}
        for run, label in zip(sound, self._labels(sound), strict=True):
            rows[run.name] = run.row | {"group": parent(run.name), "series": label}
        groups = [self._tell_sweep(name, sweep, rows) for name, (_, sweep) in self._sweeps.items()]
        for name in dict.fromkeys(row["group"] for row in rows.values()):
            if name not in self._sweeps:
                groups.append({"name": name, "title": self._title(name), "sweep": False})
        for group in groups:
            counts = Counter(r["state"] for r in rows.values() if r["group"] == group["name"])
            group["counts"] = counts | Counter(group.pop("waiting", {}))
        groups.sort(
            key=lambda group: (not group["counts"]["running"], not group["counts"]["failed"])
        )
        with self._lock:
            changed = {
                row["id"]: row
                for row in rows.values()
                if row["id"] not in self._rows or self._rows[row["id"]][1] != row
            }
            order = [row["id"] for row in rows.values()]
            if changed or (order, faults, groups) != (self._order, self._left_out, self._groups):
                self._version += 1
            for key, row in changed.items():
                self._rows[key] = self._version, row
            for key in self._rows.keys() - set(order):
                del self._rows[key]
            self._order, self._left_out, self._groups = order, faults, groups

    def _labels(self, runs: list[Watched]) -> list[str]:
        """What the seeds of a run share, by the settings in which runs of one problem differ."""
        key = [id(run.config) for run in runs]
        if key != self._series[0]:
            points = differing_settings([run.config for run in runs])
            labels = [label_of(r.config["algo"], p) for r, p in zip(runs, points, strict=True)]
            self._series = key, labels
        return self._series[1]

    def _tell_sweep(self, name: str, sweep: SweepDirectory | None, rows: dict[str, Json]) -> Json:
        """A group of rows: the runs of a sweep, and its cells that failed before they began."""
        if sweep is None:
            return {"name": name, "title": self._title(name), "sweep": True}
        failures = self._failures[name]
        waiting = 0
        for cell in sweep.cells.values():
            path = cell.name if name == "." else f"{name}/{cell.name}"
            row = rows.get(path)
            if row is None and cell.name in failures:
                row = rows[path] = failed_row(cell, path)
            if row is None:
                waiting += path not in self._runs
                continue
            row["group"], row["series"] = name, label_of(cell.label, cell.point)
            if cell.name in failures and row["state"] != "running":
                row["state"], row["reason"] = "failed", failures[cell.name]
        title = f"sweep {sweep.experiment.name}"
        return {"name": name, "title": title, "sweep": True, "waiting": {"waiting": waiting}}

    def _title(self, name: str) -> str:
        return self._root.path.name if name == "." else name

    def state(self, since: int) -> Json:
        """All that has changed since a version, and the order of the runs."""
        with self._lock:
            return {
                "version": self._version,
                "directory": visible(str(self.path)),
                "order": self._order,
                "groups": self._groups,
                "rows": [row for version, row in self._rows.values() if version > since],
                "left_out": sorted(self._left_out.items()),
                "notes": self._notes,
            }

    def curves(self, ids: list[str]) -> list[Json]:
        """The curves of some runs; those that are not known, or damaged, are left out."""
        points = max(FEWEST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(1, 4 * len(ids))))
        found = []
        for run in self._chosen(ids):
            with run.lock:
                run.read_all()
                if not run.fault:
                    found.append(run.curves(points))
        return found

    def video(self, key: str) -> tuple[bytes, str] | None:
        """The last video of a run, and its type."""
        for run in self._chosen([key]):
            with run.lock:
                video = run.video
            if video:
                data, kind = run.folder.read(video[0], MOST_VIDEO), video_type(video[0])
                return (data, kind) if data is not None and kind else None
        return None

    def _chosen(self, ids: list[str]) -> list[Watched]:
        known = {run.id: run for run in list(self._runs.values())}
        return [known[key] for key in dict.fromkeys(ids) if key in known]


def parent(name: str) -> str:
    return name.rpartition("/")[0] or "."


def label_of(label: str, point: dict[str, Any]) -> str:
    """What seeds share: the algorithm, and the fields that vary."""
    return " ".join((label, *(f"{k}={text_of(v)}" for k, v in point.items())))


def read_failures(sweep: SweepDirectory) -> dict[str, str]:
    """Why cells failed, by their names."""
    folder, found = sweep.folder / "failures", {}
    try:
        names = folder.names()
    except CupolaError:
        return {}
    for name in names:
        cell = name.removesuffix(".json")
        if cell in sweep.cells:
            try:
                record = schema.read_record(folder, name, schema.FAILURE)
                found[cell] = record["reason"] if record else ""
            except CupolaError as error:
                found[cell] = str(error)
    return found


def failed_row(cell: Cell, name: str) -> Json:
    """The row of a cell that has no run."""
    return {
        "id": identify(name), "name": name, "state": "failed", "reason": "", "algo": cell.algo,
        "task": cell.task, "seed": cell.seed, "done": 0, "asked": None, "read": True,
        "return": None, "costs": [], "speed": None, "left": None, "changed": None, "video": None,
    }  # fmt: skip
