"""The tables of the page, cell by cell from the curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from cupola.naming import text_of
from cupola.reports.formats import MARK, Entry, Table, Value, format_number, to_markdown
from cupola.reports.results import RunResult
from cupola.reports.steadiness_table import seeds_that_hold
from cupola.reports.tables import is_feasible, mean
from cupola.sweeps.cells import Cell, cell_name
from results.sources import (
    BASELINES,
    NAMES,
    ROBOTS,
    SAFETY_GYM,
    Data,
    Published,
    cost_of,
    feasible_share,
    final_cost,
    final_return,
    limit_of,
)

MEASURED = ("return", "cost", "feasible iterations", "held", "lowest return", "highest cost")
"""The columns of `measured`."""


def body(table: Table) -> str:
    """Markdown without heading and note."""
    return "\n".join(line for line in to_markdown(table).splitlines() if line.startswith("|"))


def cells(data: Data, tasks: Iterable[str]) -> Table:
    """A row for each task and algorithm: ours, the paper's, OmniSafe's."""
    sources = ("paper", "omnisafe")
    columns = [
        *("task", "algorithm", "seeds", *MEASURED),
        *("minutes a run", "mean actions", "the paper", "OmniSafe"),
    ]
    rows = []
    for task in tasks:
        limit = limit_of(task)
        best = best_feasible(data, task, NAMES)
        for label, name in NAMES.items():
            published = [data.of(source, task, label) for source in sources]
            wanted, runs = data.wanted(task, label), data.runs(task, label)
            if not wanted and (label.startswith("cup") or not any(published)):
                continue
            rows.append(
                [
                    Entry(f"{task} ({format_number(limit)})"),
                    Entry(name),
                    Entry(f"{len(runs)} of {wanted}" if wanted else "-"),
                    *measured(runs, bold=label == best),
                    minutes(data.beside(task, label, "minutes")),
                    mean_actions(data, task, label, runs),
                    *(Entry(shown(one, limit)) for one in published),
                ]
            )
    known = [i for i in range(len(columns)) if i < 9 or any(row[i].value != "-" for row in rows)]
    chosen = [[row[i] for i in known] for row in rows]
    return Table("cells", "Cells", [columns[i] for i in known], chosen)


def measured(runs: list[RunResult], bold: bool) -> list[Entry]:
    """Return, cost, feasible iterations, seeds that hold the limit, worst seeds."""
    if not runs:
        return [Entry("-")] * 6
    returns = {run.seed: run.final("return") for run in runs}
    costs = {run.seed: run.final(f"cost/{cost_of(run)}") for run in runs}
    limit = runs[0].limits[cost_of(runs[0])]
    low, high = min(returns, key=returns.__getitem__), max(costs, key=costs.__getitem__)
    share = np.mean([feasible_share(run) for run in runs])
    return [
        Entry(mean(list(returns.values())), bold=bold),
        Entry(mean(list(costs.values())), infeasible=final_cost(runs) > limit),
        Entry(f"{share:.0%}"),
        Entry(seeds_that_hold([run.steadiness(cost_of(run)) for run in runs])),
        Entry(f"{format_number(returns[low])} (seed {low})"),
        Entry(f"{format_number(costs[high])}{MARK * (costs[high] > limit)} (seed {high})"),
    ]


def mean_actions(data: Data, task: str, label: str, runs: list[RunResult]) -> Entry:
    """Return / cost of the last policies on fresh episodes, as means over seeds."""
    if not runs:
        return Entry("-")
    columns = (f"deterministic/{key}" for key in ("return", f"cost/{cost_of(runs[0])}"))
    values = [data.beside(task, label, column) for column in columns]
    if not all(values):
        return Entry("-")
    numbers = [float(np.mean(known)) for known in values]
    mark = MARK * (numbers[1] > limit_of(task))
    return Entry(f"{' / '.join(map(format_number, numbers))}{mark}")


def minutes(known: list[float]) -> Entry:
    return Entry(format_number(float(np.median(known))) if known else "-")


def shown(one: Published | None, limit: float) -> Value:
    if one is None:
        return "-"
    mark = MARK if one.cost > limit else ""
    numbers = [format_number(value) for value in one]
    return f"{numbers[0]} ± {numbers[1]} / {numbers[2]}{mark} ± {numbers[3]}"


def best_feasible(data: Data, task: str, labels: Iterable[str]) -> str:
    """The algorithm with the highest return among those whose mean cost is within the limit."""
    found = {label: data.runs(task, label) for label in labels}
    returns = {label: final_return(runs) for label, runs in found.items() if is_feasible(runs)}
    return max(returns, key=returns.__getitem__, default="")


def summary(data: Data) -> Table:
    """A row for each row of the paper: its CUP, ours, the best of our baselines."""
    columns = [
        *("task", "limit", "the paper's CUP", "seeds", "our return", "our cost"),
        *("held by", "our best baseline within the limit"),
    ]
    rows = []
    for task in (*ROBOTS, *SAFETY_GYM):
        limit = limit_of(task)
        runs, published = data.runs(task, "cup"), data.of("paper", task, "cup")
        figures = measured(runs, bold=False)
        assert published is not None
        paper = (published.mean_return, published.cost)
        rows.append(
            [
                Entry(task),
                Entry(limit),
                Entry(f"{' / '.join(map(format_number, paper))}{MARK * (published.cost > limit)}"),
                Entry(f"{len(runs)} of {data.wanted(task, 'cup')}"),
                figures[0],
                figures[1],
                figures[3],
                Entry(best_baseline(data, task)),
            ]
        )
    return Table("summary", "Summary", columns, rows)


def best_baseline(data: Data, task: str) -> str:
    labels = [label for label in NAMES if label.partition("-")[0] in BASELINES]
    trained = [label for label in labels if data.runs(task, label)]
    best = best_feasible(data, task, trained)
    if not best:
        return "none" if trained else "-"
    runs = data.runs(task, best)
    numbers = (final_return(runs), final_cost(runs))
    return f"{NAMES[best]} {' / '.join(map(format_number, numbers))}"


def sensitivity(data: Data, name: str) -> Table:
    """A row for each task, algorithm and value of what an experiment varies."""
    columns = ["task", "algorithm and value", "seeds", *MEASURED]
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in data.experiments[name].cells:
        row, task = row_and_task(cell)
        groups.setdefault((task, row), []).append(name_of(cell))
    there = {run.name: run for run in finished(data, name)}
    rows = []
    for (task, row), wanted in groups.items():
        runs = [there[key] for key in wanted if key in there]
        if runs:
            seeds = Entry(f"{len(runs)} of {len(wanted)}")
            rows.append([Entry(task), Entry(row), seeds, *measured(runs, bold=False)])
    return Table(name, name, columns, rows)


def state(data: Data, name: str) -> Table:
    """Of an experiment: how many seeds of each algorithm and task are there."""
    wanted = data.experiments[name].cells
    known = {run.name for run in finished(data, name)}
    there = Counter(row_and_task(cell) for cell in wanted if name_of(cell) in known)
    asked = Counter(map(row_and_task, wanted))
    tasks = list(dict.fromkeys(cell.task for cell in wanted))
    rows = [
        [
            Entry(row),
            *(Entry(f"{there[row, task]} of {asked[row, task]}") for task in tasks),
        ]
        for row in dict.fromkeys(row for row, _ in asked)
    ]
    return Table(name, name, ["", *tasks], rows)


def finished(data: Data, name: str) -> list[RunResult]:
    return [run for run in data.results[name].runs if run.finished] if name in data.results else []


def missing(data: Data, name: str) -> int:
    """How many cells of an experiment are not there."""
    known = {run.name for run in finished(data, name)}
    return sum(name_of(cell) not in known for cell in data.experiments[name].cells)


def name_of(cell: Cell) -> str:
    return cell_name(cell.label, cell.task, cell.point, cell.seed)


def row_and_task(cell: Cell) -> tuple[str, str]:
    varied = (f"{field} {text_of(value)}" for field, value in cell.point.items())
    return ", ".join((NAMES.get(cell.label, cell.label), *varied)), cell.task


def training_hours(data: Data) -> float:
    """Of all cells whose time is known."""
    rows = (row for cells in data.cells.values() for row in cells.values())
    return math.fsum(float(row["minutes"]) for row in rows) / 60
