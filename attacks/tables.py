"""The table of a campaign: on the screen, as JSON and as Markdown."""

from __future__ import annotations

import json
import platform
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.markup import escape
from rich.table import Table

from attacks.campaign import Tallies, Tally
from attacks.lanes import Result

PACKAGES = ("jax", "numpy", "safetensors", "ray", "gymnasium")
COLUMNS = ("kind", "tries", "survived", "failed", "seconds a try")
NOUNS = {"kill": "kills", "mutant": "mutated directories", "command": "command lines and files"}


def repeat(result: Result) -> str:
    """The command that does a try again."""
    return f"python -m attacks --only {result.kind} --seed {result.seed} --tries 1"


def row(name: str, tally: Tally) -> tuple[str, ...]:
    mean = tally.seconds / max(1, tally.tries)
    numbers = (tally.tries, tally.survived, len(tally.failures))
    return (name, *(f"{number:,}" for number in numbers), f"{mean:.2f}")


def totals(kinds: dict[str, ModuleType], tallies: Tallies) -> str:
    """For example: 230 kills (20 sweep_kills, ...), 5,210 mutated directories."""
    parts = []
    for what, noun in NOUNS.items():
        tries = Counter({k: tallies[k].tries for k in kinds if what == kinds[k].COUNTS})
        if tries.total():
            each = ", ".join(f"{count:,} {kind}" for kind, count in tries.items())
            parts.append(f"{tries.total():,} {noun} ({each})")
    return "; ".join(parts)


def screen(kinds: dict[str, ModuleType], tallies: Tallies) -> Table:
    table = Table(caption=totals(kinds, tallies))
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "kind" else "right")
    for name in kinds:
        cells = row(name, tallies[name])
        style = "red" if tallies[name].failures else ""
        table.add_row(*map(escape, cells), style=style)
    return table


def grouped(tallies: Tallies) -> list[tuple[Result, int]]:
    """One failure for each message (paths and numbers aside), and how many are like it."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for tally in tallies.values():
        for result in tally.failures:
            shape = "".join("#" if c.isdigit() else c for c in result.failure[:60])
            groups.setdefault((result.kind, shape), []).append(result)
    return [(results[0], len(results)) for results in groups.values()]


def record(facts: dict[str, Any], kinds: dict[str, ModuleType], tallies: Tallies) -> dict[str, Any]:
    return facts | {
        "versions": versions(),
        "kinds": {
            name: {
                "what": first_line(kinds[name]),
                "tries": tallies[name].tries,
                "survived": tallies[name].survived,
                "failed": len(tallies[name].failures),
                "seconds": round(tallies[name].seconds, 1),
                "failures": [
                    {"seed": r.seed, "repeat": repeat(r), "failure": r.failure}
                    for r in tallies[name].failures
                ],
            }
            for name in kinds
        },
        "totals": totals(kinds, tallies),
    }


def versions() -> dict[str, str]:
    from cupola.version import __version__

    found = {"cupola": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "-"
    return found


def first_line(kind: ModuleType) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def markdown(facts: dict[str, Any], kinds: dict[str, ModuleType], tallies: Tallies) -> str:
    lines = ["# Attacks", "", f"    {facts['command']}", ""]
    words = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines += [f"{facts['minutes']} minutes, {facts['jobs']} at a time; {words}.", ""]
    lines += ["| " + " | ".join((*COLUMNS, "what")) + " |", "|---|" + "---:|" * 4 + "---|"]
    for name in kinds:
        lines.append("| " + " | ".join((*row(name, tallies[name]), first_line(kinds[name]))) + " |")
    lines += ["", totals(kinds, tallies) + ".", ""]
    found = grouped(tallies)
    lines.append("Failures, one of each sort:" if found else "Nothing failed.")
    lines.append("")
    for result, count in found:
        text = result.failure.replace("`", "'")[:400]
        lines.append(f"- {result.kind}, {count} like it: {text}  \n  `{repeat(result)}`")
    return "\n".join(lines) + "\n"


def write(
    folder: Path, facts: dict[str, Any], kinds: dict[str, ModuleType], tallies: Tallies
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record(facts, kinds, tallies), indent=1) + "\n"
    (folder / "attacks.json").write_text(text)
    (folder / "attacks.md").write_text(markdown(facts, kinds, tallies))
