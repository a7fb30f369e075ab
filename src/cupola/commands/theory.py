"""`cupola theory`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cupola.commands.parsing import parse
from cupola.display import CountDisplay, Terminal
from cupola.errors import in_words


@dataclass(frozen=True)
class TheoryArgs:
    """Test the paper's claims on random finite CMDPs, and exact CUP against the optimum."""

    cases: int = 2000
    """Random cases with dense transitions; a quarter as many sparse ones are added."""
    seed: int = 0
    out: Path = Path("theory")
    """Directory for theory.json, table.txt, counterexamples.json and the figures."""


def run(args: Sequence[str]) -> None:
    parsed = parse(TheoryArgs, args, "theory")
    from cupola.runs.files import write_file
    from cupola.theory import counterexample, report

    with in_words(f"cannot write to {parsed.out}"):
        parsed.out.mkdir(parents=True, exist_ok=True)
    console = Terminal()
    with CountDisplay(console) as progress:
        result = report.make(parsed.cases, parsed.seed, progress)
    tables = theory_tables(result.record)
    with io.StringIO() as text:
        plain = Console(file=text, width=110)
        for table in tables:
            plain.print(table)
        files = {"table.txt": text.getvalue().encode(), **result.figures}
    files["theory.json"] = (json.dumps(result.record, indent=1) + "\n").encode()
    proofs = "counterexamples.json"
    files[proofs] = (json.dumps(result.counterexamples, indent=1) + "\n").encode()
    with in_words(f"cannot write to {parsed.out}"):
        for name, data in files.items():
            write_file(parsed.out / name, data)
        written = json.loads((parsed.out / proofs).read_bytes())
    for table in tables:
        console.print(table)
    for record in written:
        excess = counterexample.check(record)
        console.print(f"{record['title']} as printed fails by {excess} in exact arithmetic.")
    console.print(f"written to {parsed.out}", soft_wrap=True)


def theory_tables(record: dict[str, Any]) -> list[Table]:
    """The claims on dense and on sparse cases, and exact CUP against the optimum."""
    tables = []
    for family in ("dense", "sparse"):
        rows = record[family]
        table = Table(title=f"{rows[0]['cases']} {family} random cases")
        headings = ("claim", "version", "violated", "worst", "tightness", "vacuous")
        for column in headings:
            left = column in ("claim", "version")
            table.add_column(column, justify="left" if left else "right")
        for row in rows:
            tight = row["median_tightness"]
            shown = "" if tight is None else f"{tight:.3f}" if tight >= 0.01 else f"{tight:.1e}"
            table.add_row(
                row["claim"],
                row["version"],
                str(row["violations"]),
                f"{row['worst_violation']:.3g}" if row["violations"] else "",
                shown,
                f"{100 * row['vacuous']:.0f} %",
            )
        tables.append(table)
    table = Table(title="exact CUP against the linear programme")
    sizes = ("cmdps", "solved", "states", "actions", "costs")
    for column in (*sizes, "worst gap", "worst violation"):
        table.add_column(column, justify="right")
    for row in record["exact_cup"]:
        worst = (row["worst_gap"], max(row["worst_violation"], 0.0))
        counts = (str(row[key]) for key in sizes)
        table.add_row(*counts, *(f"{100 * x:.3g} %" for x in worst))
    return [*tables, table]
