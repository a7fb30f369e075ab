"""What there is: the committed curves, the numbers that others published, the plan of the work."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cupola.reports import curves
from cupola.reports.results import Results, RunResult
from cupola.sweeps import grid
from cupola.sweeps.cells import Experiment, known_tasks

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
COMMITTED = EXPERIMENTS / "results"
"""NAME/curves.csv.gz holds the finished cells of NAME.toml, NAME/cells.csv what curves do not."""

ROBOTS = ("AntSpeed", "HopperSpeed", "SwimmerSpeed", "HumanoidSpeed", "HumanoidCircle")
SAFETY_GYM = ("PointGoal1", "PointButton1", "CarGoal1", "CarButton1")
VELOCITY = tuple(
    f"Safety{robot}Velocity-v1"
    for robot in ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer", "Walker2d")
)
SENSITIVITY = ("sensitivity-alpha", "sensitivity-epsilon", "sensitivity-limit")
BLOCKS = {
    "1. Robots, CUP's default": ("default-robots",),
    "2. Robots, the paper's settings": ("paper-robots", "paper-humanoids"),
    "3. Safety Gym": ("default-safety-gym", "paper-safety-gym", "shared-safety-gym"),
    "4. Sensitivity": SENSITIVITY,
    "5. Safety-Gymnasium's velocity tasks": ("velocity",),
}
COMPARED = tuple(n for names in BLOCKS.values() for n in names if n not in SENSITIVITY)
"""Experiments whose algorithms and tasks stand side by side."""

BASELINES = {
    "focops": "FOCOPS",
    "ppo_lag": "PPO-L",
    "trpo_lag": "TRPO-L",
    "cpo": "CPO",
    "pcpo": "PCPO",
}
NAMES = {
    "cup": "CUP (default)",
    "cup-paper": "CUP (paper)",
    "cup-release": "CUP (release)",
    **BASELINES,
    **{f"{label}-shared": f"{name} (shared)" for label, name in BASELINES.items()},
}
"""What the algorithms of the experiment files are called here."""


class Published(NamedTuple):
    """A number of others."""

    mean_return: float
    return_sd: float
    cost: float
    cost_sd: float


@dataclass(frozen=True)
class Data:
    """All that tables and figures are made from."""

    experiments: dict[str, Experiment]
    """By name; those of `BLOCKS`."""
    results: dict[str, Results]
    """By name of the experiment; those that have curves."""
    cells: dict[str, dict[str, dict[str, str]]]
    """Rows of cells.csv by experiment and cell, of those whose run directories were at hand."""
    published: dict[tuple[str, str, str], Published]
    """By source (paper, omnisafe), task and algorithm."""

    def runs(self, task: str, label: str) -> list[RunResult]:
        """The finished seeds of an algorithm on a task."""
        found = (r for name in COMPARED if name in self.results for r in self.results[name].runs)
        return [run for run in found if (run.task, run.label) == (task, label) and run.finished]

    def wanted(self, task: str, label: str) -> int:
        """How many seeds there should be."""
        cells = (cell for name in COMPARED for cell in self.experiments[name].cells)
        return sum((cell.task, cell.label) == (task, label) for cell in cells)

    def complete(self, task: str, label: str) -> bool:
        return 0 < self.wanted(task, label) == len(self.runs(task, label))

    def beside(self, task: str, label: str, column: str) -> list[float]:
        """What cells.csv knows of the finished seeds, and curves do not."""
        named = {run.name for run in self.runs(task, label)}
        rows = (row for name in COMPARED for row in self.cells.get(name, {}).values())
        return [float(row[column]) for row in rows if row["cell"] in named and row.get(column)]

    def of(self, source: str, task: str, label: str) -> Published | None:
        """All variants of CUP stand beside what was published of it."""
        base = "cup" if label.startswith("cup") else label
        return self.published.get((source, task, base))

    def compared(self) -> Results:
        """All runs that stand side by side, by the names that they have here."""
        found = (r for name in COMPARED if name in self.results for r in self.results[name].runs)
        order = list(NAMES.values())
        runs = sorted(renamed(found), key=lambda run: order.index(run.label))
        return Results("results", runs)


def renamed(runs: Iterable[RunResult]) -> list[RunResult]:
    """By the names that their algorithms have here."""
    return [dataclasses.replace(run, label=NAMES[run.label]) for run in runs]


def load(folder: Path = COMMITTED) -> Data:
    names = [name for block in BLOCKS.values() for name in block]
    files = {name: folder / name / curves.FILE_NAME for name in names}
    return Data(
        experiments={name: experiment(name) for name in names},
        results={name: read_curves(file) for name, file in files.items() if file.exists()},
        cells={name: read_cells(name, folder) for name in names},
        published=read_published(),
    )


@cache
def read_curves(file: Path) -> Results:
    return curves.read(file)


@cache
def experiment(name: str) -> Experiment:
    return grid.read(EXPERIMENTS / f"{name}.toml")


def read_cells(name: str, folder: Path = COMMITTED) -> dict[str, dict[str, str]]:
    """The rows of cells.csv by the name of the cell."""
    file = folder / name / "cells.csv"
    if not file.exists():
        return {}
    with file.open(newline="") as lines:
        return {row["cell"]: row for row in csv.DictReader(lines)}


def read_published() -> dict[tuple[str, str, str], Published]:
    with (ROOT / "results" / "published.csv").open(newline="") as lines:
        return {
            (row["source"], row["task"], row["algorithm"]): Published(
                *(float(row[key]) for key in ("return", "return_sd", "cost", "cost_sd"))
            )
            for row in csv.DictReader(lines)
        }


def limit_of(task: str) -> float:
    """Of its cost; each task of the paper limits one."""
    (limit,) = (cost.limit for cost in known_tasks()[task].costs if cost.limit is not None)
    return limit


def cost_of(run: RunResult) -> str:
    (cost,) = run.costs
    return cost


def final_cost(runs: list[RunResult]) -> float:
    """The mean over seeds of the last tenth of the iterations."""
    return float(np.mean([run.final(f"cost/{cost_of(run)}") for run in runs]))


def final_return(runs: list[RunResult]) -> float:
    return float(np.mean([run.final("return") for run in runs]))


def feasible_share(run: RunResult) -> float:
    """The share of all iterations whose cost is within the limit; unknown ones do not count."""
    costs = run.curves[f"cost/{cost_of(run)}"]
    known = costs[np.isfinite(costs)]
    return float(np.mean(known <= run.limits[cost_of(run)])) if len(known) else float("nan")
