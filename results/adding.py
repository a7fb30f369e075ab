"""`python -m results add`: the finished cells of a sweep among the committed ones."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cupola.errors import CupolaError
from cupola.reports import curves
from cupola.reports.merge import load, merge
from cupola.reports.results import Results, RunResult
from cupola.sweeps.cells import Cell, cell_name
from results.sources import COMMITTED, experiment, read_cells

KINDS = ("sampled", "deterministic")


def add(name: str, sources: list[Path], folder: Path = COMMITTED) -> Iterator[str]:
    """Write curves.csv.gz and cells.csv of an experiment; sentences of what was done.

    ``sources`` are directories with runs and files of curves. A cell that is committed already is
    replaced only by a run, so that cells can come a few at a time, from several machines.
    """
    cells = {cell.name: cell for cell in experiment(name).cells}
    file = folder / name / curves.FILE_NAME
    loaded = [load(path) for path in dict.fromkeys(sources)]
    before = [load(file)] if file.exists() else []
    found, said = merge([*loaded, *before])
    yield from said
    yield from map(str, found.left_out)
    runs = {}
    for run in found.runs:
        key = cell_name(run.label, run.task, run.point, run.seed)
        if run.finished:
            check(run, cells.get(key), name)
            runs[key] = run
    if not runs:
        raise CupolaError("there is no finished cell in it yet.")
    ordered = [runs[key] for key in cells if key in runs]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(curves.encode(Results(name, ordered)))
    rows = {k: v for k, v in read_cells(name, folder).items() if k in runs}
    rows |= {key: row for key, run in runs.items() if (row := beside_curves(run))}
    if rows:
        file.with_name("cells.csv").write_text(
            as_csv([{"cell": k} | rows[k] for k in cells if k in rows])
        )
    waiting = len(cells) - len(runs)
    yield f"{file}: {len(runs)} of {len(cells)} cells" + (
        f", {waiting} missing." if waiting else "."
    )
    yield "next: make results"


def check(run: RunResult, cell: Cell | None, name: str) -> None:
    """Refuse a run that is not what the experiment file asks for."""
    if cell is None:
        raise CupolaError(f"{run.name} is no cell of experiments/{name}.toml.")
    config = cell.resolve()
    assert config is not None
    wanted: dict[str, Any] = {"limits": config.limits, "iterations": config.options.iterations}
    trained: dict[str, Any] = {"limits": run.limits, "iterations": run.iterations}
    if run.config:  # a file of curves does not hold it
        trained |= run.config["algorithm"]
        now = json.loads(json.dumps(config.to_json()))["algorithm"]
        # A switch that is newer than the run was off when it was trained.
        wanted |= {key: value for key, value in now.items() if key in trained}
    for key, value in wanted.items():
        if trained[key] != value:
            raise CupolaError(
                f"{run.name} was trained with {key} = {trained[key]!r}, and"
                f" experiments/{name}.toml asks for {value!r}."
            )


def beside_curves(run: RunResult) -> dict[str, Any]:
    """What a run directory knows and a file of curves does not."""
    if not len(run.seconds):
        return {}
    row: dict[str, Any] = {
        "cupola": run.config.get("cupola", ""),
        "minutes": round(float(np.sum(run.seconds)) / 60, 2),
        "steps_per_second": round(run.steps_per_second),
        "evaluation_episodes": run.result.get("episodes", ""),
    }
    for kind in KINDS:
        for key, cost in (("return", None), *((f"cost/{c}", c) for c in run.costs)):
            value = run.evaluated(kind, cost)
            row[f"{kind}/{key}"] = "" if math.isnan(value) else round(value, 4)
    return row


def as_csv(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
