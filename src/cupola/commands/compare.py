"""`cupola compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from cupola.commands.parsing import parse
from cupola.errors import CupolaError


@dataclass(frozen=True)
class CompareArgs:
    """A quick look at a few runs."""

    runs: Positional[tuple[Path, ...]]
    """Run directories."""


def run(args: Sequence[str]) -> None:
    compare(parse(CompareArgs, args, "compare"))


def compare(args: CompareArgs) -> None:
    from cupola.reports.compare import comparison

    if not args.runs:
        raise CupolaError("say what to compare: cupola compare RUN RUN ...")
    console = Console()
    for part in comparison(args.runs, utf8=console.encoding.startswith("utf")):
        console.print(part)
