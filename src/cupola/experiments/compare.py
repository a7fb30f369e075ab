"""A quick look at a few runs in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from cupola.display import number
from cupola.errors import CupolaError
from cupola.experiments.panels import thin
from cupola.experiments.results import RunResult, load_runs
from cupola.runs.directory import RunDirectory

BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
WIDTH = 16


def comparison(paths: Sequence[Path], utf8: bool = True) -> list[Table]:
    """A table of the runs, and the settings in which they differ."""
    for path in paths:
        RunDirectory.open(path)
    runs = load_runs(paths)
    for run in runs:
        if not run.curves:
            raise CupolaError(f"{run.name} has no iteration yet: continue it with 'cupola resume'.")
    table = Table(title="last tenth of each run; curves of one task share a scale")
    for column in ("run", "task", "iterations", "return", "", "cost (limit)", "", "steps/s"):
        table.add_column(column, justify="right" if column in ("iterations", "steps/s") else "left")
    bars = BARS if utf8 else PLAIN_BARS
    for run in runs:
        kin = [other for other in runs if other.task == run.task]
        costs, shapes = [], []
        for name, limit in run.limits.items():
            final = run.final(f"cost/{name}")
            sign = "<=" if final <= limit else ">" if final > limit else "?"
            shown = "-" if math.isnan(final) else number(final)
            costs.append(f"{name} {shown} {sign} {number(limit)}")
            shapes.append(curve_shape(run, kin, f"cost/{name}", bars))
        final = run.final("return")
        done, asked = len(run.curves["steps"]), run.config.get("iterations", 0)
        speed = run.steps_per_second
        table.add_row(
            run.name,
            run.task,
            f"{done}" if done == asked else f"{done}/{asked}",
            "-" if math.isnan(final) else number(final),
            curve_shape(run, kin, "return", bars),
            "\n".join(costs),
            "\n".join(shapes),
            "-" if math.isnan(speed) else f"{speed:,.0f}",
        )
    different = differing_settings(runs)
    return [table, different] if different else [table]


def curve_shape(run: RunResult, kin: list[RunResult], key: str, bars: str) -> str:
    """A curve as a row of bars, on the scale of all runs of its task."""
    if key not in run.curves:
        return ""
    pooled = np.concatenate([other.curves[key] for other in kin if key in other.curves])
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


def differing_settings(runs: list[RunResult]) -> Table | None:
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
    for run in runs:
        table.add_column(run.name, overflow="fold")
    for key in keys:
        table.add_row(key, *(str(config.get(key, "-")) for config in flat))
    return table
