"""`cupola report`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cupola.commands.parsing import parse
from cupola.errors import CupolaError
from cupola.output import visible


@dataclass(frozen=True)
class ReportArgs:
    """One HTML page of a sweep or of any runs, with figures, tables and curves beside it."""

    source: Positional[Path]
    """The directory of a sweep, one with runs in it, or a file of curves (curves.csv.gz)."""
    out: Path | None = None
    """The page; default report.html in the directory. Figures, tables and curves go beside it."""


def run(args: Sequence[str]) -> None:
    report(parse(ReportArgs, args, "report"))


def report(args: ReportArgs) -> None:
    from cupola.reports import curves, results
    from cupola.reports.page import write_report
    from cupola.runs.directory import reaching

    with reaching(args.source):
        is_file = args.source.is_file()
    folder = args.source.parent if is_file else args.source
    page = args.out or folder / "report.html"
    if page.suffix != ".html":
        raise CupolaError(f"--out is the page to write: a name like report.html, not {page}.")
    found = curves.read(args.source) if is_file else results.load(args.source)
    for one in found.left_out:
        warnings.warn(str(one), stacklevel=1)
    written = write_report(found, page)
    print(visible(f"{page}, with figures, tables and curves in {written}"))
