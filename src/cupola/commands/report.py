"""`cupola report`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cupola.commands.parsing import OptionalPath, parse
from cupola.errors import CupolaError
from cupola.output import visible


@dataclass(frozen=True)
class ReportArgs:
    """One HTML page of a sweep or of any runs, with figures, tables and curves beside it."""

    sources: Positional[tuple[Path, ...]]
    """Directories of sweeps or with runs in them, and files of curves (curves.csv.gz). Of a cell in
    several of them the run is taken."""
    out: OptionalPath = None
    """The page; default report.html in the first directory. Figures, tables and curves go beside
    it."""


def run(args: Sequence[str]) -> None:
    report(parse(ReportArgs, args, "report"))


def report(args: ReportArgs) -> None:
    from cupola.reports.merge import load, merge
    from cupola.reports.page import write_report
    from cupola.tuning import record
    from cupola.tuning.tables import best_trials, study_tables

    if not args.sources:
        raise CupolaError("say what to report: cupola report DIR, or a file of curves.")
    if args.out and args.out.suffix != ".html":
        raise CupolaError(f"--out is the page to write: a name like report.html, not {args.out}.")
    sources = [load(path) for path in dict.fromkeys(args.sources)]
    first = next((s.path for s in sources if not s.is_file), sources[0].path.parent)
    page = args.out or first / "report.html"
    found, said = merge(sources)
    for sentence in said:
        print(sentence)
    for one in found.left_out:
        warnings.warn(str(one), stacklevel=1)
    study = None if len(sources) > 1 or sources[0].is_file else record.read(sources[0].path)
    tables = study_tables(study) if study else []
    written = write_report(best_trials(found, study) if study else found, page, tables)
    print(visible(f"{page}, with figures, tables and curves in {written}"))
