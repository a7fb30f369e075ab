"""`cupola compare`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cupola.commands.parsing import parse
from cupola.display import Terminal
from cupola.errors import CupolaError


@dataclass(frozen=True)
class CompareArgs:
    """A quick look at a few runs."""

    runs: Positional[tuple[Path, ...]]
    """Run directories, or directories that runs are in."""


def run(args: Sequence[str]) -> None:
    compare(parse(CompareArgs, args, "compare"))


def compare(args: CompareArgs) -> None:
    from cupola.reports.compare import comparison, load

    if not args.runs:
        raise CupolaError("say what to compare: cupola compare RUN RUN ...")
    runs, left_out = load(args.runs)
    for one in left_out:
        warnings.warn(str(one), stacklevel=1)
    console = Terminal()
    for part in comparison(runs, utf8=console.is_utf8):
        console.print(part)
