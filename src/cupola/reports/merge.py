"""Results from several places at once: directories of runs, and files of curves.

So a sweep can be finished on another day, or on another machine, from the curves of its first
cells. A cell is the same wherever its algorithm, task, varied fields and seed are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cupola.errors import CupolaError
from cupola.reports import curves, results
from cupola.reports.results import Results, RunResult
from cupola.runs.directory import reaching
from cupola.sweeps.cells import cell_name


class Source(NamedTuple):
    """What one path holds."""

    path: Path
    is_file: bool
    results: Results


def load(path: Path) -> Source:
    with reaching(path):
        is_file = path.is_file()
    return Source(path, is_file, curves.read(path) if is_file else results.load(path))


def merge(sources: Sequence[Source]) -> tuple[Results, list[str]]:
    """All cells once, and a sentence for every two sources that both hold some of them.

    Of a cell that several sources hold, one that has begun goes before one that has not, a run
    before a curve in a file, and otherwise the first that was named.
    """
    if len(sources) == 1:
        return sources[0].results, []
    homes: dict[str, list[tuple[Source, list[RunResult]]]] = {}
    for source in sources:
        cells: dict[str, list[RunResult]] = {}
        for run in source.results.runs:
            name = cell_name(run.label, run.task, run.point, run.seed)
            cells.setdefault(name, []).append(run)
        for name, mine in cells.items():
            homes.setdefault(name, []).append((source, mine))
    runs: list[RunResult] = []
    twice: Counter[tuple[Path, Path]] = Counter()
    origins: dict[tuple[str, str], list[tuple[Path, RunResult]]] = {}
    for held in homes.values():
        taken, mine = min(held, key=lambda home: (not has_begun(home[1]), home[0].is_file))
        twice.update((taken.path, o.path) for o, its in held if o is not taken and has_begun(its))
        runs += mine
        for run in mine:
            origins.setdefault((run.task, run.series), []).append((taken.path, run))
    for group in origins.values():
        refuse_different(group)
    left_out = tuple(one for source in sources for one in source.results.left_out)
    said = [
        f"{count} {'cell is' if count == 1 else 'cells are'} in both {taken} and {other}:"
        f" taken from {taken}."
        for (taken, other), count in twice.items()
    ]
    return Results(sources[0].results.title, runs, left_out), said


def has_begun(runs: list[RunResult]) -> bool:
    return any(run.iterations for run in runs)


def refuse_different(group: list[tuple[Path, RunResult]]) -> None:
    """Seeds of one algorithm that were trained differently must not become one mean."""
    begun = [(path, run) for path, run in group if run.iterations]
    for what in ("limits", "iterations"):
        known = [(p, r) for p, r in begun if what == "limits" or r.finished]
        for path, run in known[1:]:
            first_path, first = known[0]
            if path != first_path and getattr(run, what) != getattr(first, what):
                raise CupolaError(
                    f"{run.series} on {run.task} has other {what} in {first_path}"
                    f" ({getattr(first, what)}) than in {path} ({getattr(run, what)}): report them"
                    " apart."
                )
