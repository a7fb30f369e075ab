"""A quick look at a few runs in the terminal."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from cupola.display import against, number, three_digits
from cupola.errors import CupolaError
from cupola.reports.panels import thin
from cupola.reports.results import LeftOut, RunResult, load_runs
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.runs.search import find

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
WIDTH = 14
MOST_COLUMNS = 6
"""Of the table of settings: with more runs nobody could read it."""


def load(paths: Sequence[Path]) -> tuple[list[RunResult], list[LeftOut]]:
    """The runs that can be compared, and those that are left out; an error if all are.

    Of a directory that is no run, as that of a sweep, they are all that are below it.
    """
    found, damaged = load_runs([run for path in paths for run in runs_of(path)])
    left_out = [*damaged]
    for run in found:
        if not run.curves:
            reason = "it has no iteration yet: continue it with 'cupola resume'."
            left_out.append(LeftOut(run.name, reason))
    runs = [run for run in found if run.curves]
    if not runs:
        raise CupolaError(str(left_out[0]))
    return runs, left_out


def runs_of(path: Path) -> list[Path]:
    is_above = path.is_dir() and not Folder(path).has("config.json")
    if is_above and (below := find(Folder(path)).runs):
        return [run.path for run in below]
    RunDirectory.open(path)  # the user named it: if it is no run, that is a mistake
    return [path]


def comparison(runs: list[RunResult], utf8: bool = True) -> list[Table]:
    """A table of the runs, and the settings in which they differ."""
    names = short_names([Path(run.name) for run in runs])
    table = Table(
        title="last tenth of each run; costs with their standard deviation over iterations;"
        " curves of one task share a scale"
    )
    table.add_column("run", overflow="fold")
    for column in ("iterations", "return", "cost (limit)", "steps/s"):
        table.add_column(column, overflow="fold")
    bars = BARS if utf8 else PLAIN_BARS
    for name, run in zip(names, runs, strict=True):
        same_task = [other for other in runs if other.task == run.task]
        costs = []
        for cost, limit in run.limits.items():
            held = run.steadiness(cost)
            called = f"{cost} " if len(run.limits) > 1 else ""
            around = "" if math.isnan(held.deviation) else f" ± {three_digits(held.deviation)}"
            value, rest = against(held.mean, limit).split(" ", 1)
            costs.append(f"{called}{value}{around} {rest}")
            costs.append(curve_shape(run, same_task, f"cost/{cost}", bars))
        done, asked = run.iterations, run.config.get("iterations", 0)
        speed = run.steps_per_second
        table.add_row(
            f"{name}\n{run.config['algo']} {run.task}",
            (f"{done}" if done == asked else f"{done}/{asked}\n{run.reason}").rstrip(),
            f"{number(run.final('return'))}\n{curve_shape(run, same_task, 'return', bars)}",
            "\n".join(costs),
            "-" if math.isnan(speed) else f"{speed:,.0f}",
        )
    different = differing_settings(names, runs) if len(runs) <= MOST_COLUMNS else None
    return [table, different] if different else [table]


def short_names(paths: Sequence[Path]) -> list[str]:
    """The runs without the folders that they share."""
    if len(paths) == 1:
        return [str(paths[0])]
    absolute = [os.path.abspath(path) for path in paths]
    try:
        common = os.path.commonpath([os.path.dirname(path) for path in absolute])
    except ValueError:  # on several drives of Windows
        return absolute
    return [os.path.relpath(path, common) for path in absolute]


def curve_shape(run: RunResult, same_task: list[RunResult], key: str, bars: str) -> str:
    """A curve as a row of bars, on the scale of all runs of its task."""
    if key not in run.curves:
        return ""
    pooled = np.concatenate([other.curves[key] for other in same_task if key in other.curves])
    return sparkline(run.curves[key], pooled, bars)


def sparkline(values: np.ndarray, scale: np.ndarray, bars: str = BARS) -> str:
    """At most WIDTH bars for a curve [T]; the lowest and highest of ``scale`` are its ends."""
    known = scale[np.isfinite(scale)]
    if not len(known):
        return ""
    low, spread = known.min(), np.ptp(known) or 1.0
    points = thin(values, math.ceil(len(values) / WIDTH))
    top = len(bars) - 1
    return "".join(
        bars[round(top * min(1.0, max(0.0, (p - low) / spread)))] if math.isfinite(p) else " "
        for p in points
    )


def differing_settings(names: list[str], runs: list[RunResult]) -> Table | None:
    """Settings that are not the same in all runs."""
    flat = [
        {k: v for k, v in run.config.items() if k != "algorithm"} | run.config["algorithm"]
        for run in runs
    ]
    keys = [
        key
        for key in dict.fromkeys(key for config in flat for key in config)
        if any(config.get(key) != flat[0].get(key) for config in flat)
    ]
    if not keys:
        return None
    table = Table(title="settings that differ")
    table.add_column("")
    for name in names:
        table.add_column(name, overflow="fold")
    for key in keys:
        table.add_row(key, *(str(config.get(key, "-")) for config in flat))
    return table
