"""Writes the page, the block of the README, and the tables and figures of experiments/results."""

from __future__ import annotations

from pathlib import Path

from cupola.errors import CupolaError
from cupola.reports import curves, formats
from cupola.reports.page import fill
from cupola.reports.tables import all_tables
from results import claims, figures, tables
from results.sources import (
    BLOCKS,
    COMMITTED,
    ROBOTS,
    ROOT,
    SAFETY_GYM,
    SENSITIVITY,
    VELOCITY,
    Data,
    load,
    read_curves,
)

PAGE = ROOT / "results" / "README.md"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
KEPT = ("summary", "performance", "steadiness", "runs")
"""Tables that every folder of experiments/results has."""


def write_all() -> list[Path]:
    """All files that are not as they should be, written."""
    data = load()
    wanted = texts(data)
    changed = [path for path, text in wanted.items() if not is_current(path, text)]
    for path in changed:
        path.write_text(wanted[path])
    return changed + figures.write(all_figures(data))


def is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def all_figures(data: Data) -> list[figures.Figure]:
    return [*figures.of_page(data), *(one for n in committed() for one in figures.of_experiment(n))]


def committed() -> list[str]:
    """The experiments that have curves."""
    return sorted(file.parent.name for file in COMMITTED.glob(f"*/{curves.FILE_NAME}"))


def texts(data: Data) -> dict[Path, str]:
    """Every generated text by its file."""
    found = texts_of_page(data)
    for name in committed():
        folder = COMMITTED / name
        for table in all_tables(read_curves(folder / curves.FILE_NAME)):
            path = folder / f"{table.key}.md"
            if table.key in KEPT or path.exists():
                found[path] = formats.to_markdown(table)
    return found


def texts_of_page(data: Data) -> dict[Path, str]:
    """But those of experiments/results."""
    readme = ROOT / "README.md"
    all_cells = tables.cells(data, (*ROBOTS, *SAFETY_GYM, *VELOCITY))
    return {
        PAGE: page(data),
        readme: with_block(readme.read_text(), block(data)),
        ROOT / "results" / "cells.csv": formats.to_csv(all_cells),
    }


def with_block(text: str, inside: str) -> str:
    """A text whose block between the markers is ``inside``."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CupolaError(f"README.md has no block between {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n\n{inside}\n\n{END}{after}"


def block(data: Data) -> str:
    """What the README shows."""
    parts = []
    if figure := shown(data, "overview", "Return and cost of CUP and its baselines", "results/"):
        parts = [
            figure,
            "Hollow: the paper's numbers. Filled: ours, with 95 % intervals over seeds. What lies"
            " to the right of the dashed limit violates it.",
        ]
    return "\n\n".join([*parts, tables.body(tables.summary(data))])


def shown(data: Data, stem: str, words: str, folder: str = "") -> str:
    """A figure of the page; nothing where there are no data for it."""
    there = any(figure.path.stem == stem for figure in figures.of_page(data))
    return f"![{words}]({folder}figures/{stem}.png)" if there else ""


def page(data: Data) -> str:
    template = (ROOT / "results" / "template.txt").read_text()
    return fill(
        template,
        {
            "summary": block(data).replace("](results/", "]("),
            "robots": section(data, ROBOTS),
            "safety_gym": section(data, SAFETY_GYM),
            "velocity": section(data, VELOCITY),
            "sensitivity": "\n\n".join(sensitivity(data, name) for name in SENSITIVITY),
            "claims": claims.table(data),
            "state": state(data),
            "hours": hours(data),
        },
    )


def sensitivity(data: Data, name: str) -> str:
    table = tables.sensitivity(data, name)
    if not table.rows:
        return f"`{name}`: no cell yet."
    return f"{tables.body(table)}\n\n{shown(data, name, f'Final return and cost: {name}')}"


def hours(data: Data) -> str:
    found = tables.training_hours(data)
    return f" All recorded trainings together took {found:.0f} hours of one core." if found else ""


def section(data: Data, tasks: tuple[str, ...]) -> str:
    pictures = (shown(data, f"curves-{task}", f"Learning curves on {task}") for task in tasks)
    parts = [tables.body(tables.cells(data, tasks)), "\n".join(filter(None, pictures))]
    return "\n\n".join(filter(None, parts))


def state(data: Data) -> str:
    """How many cells are there, block by block, and the commands that go on."""
    parts = []
    for title, names in BLOCKS.items():
        parts.append(f"### {title}")
        for name in names:
            there, count = tables.missing(data, name), len(data.experiments[name].cells)
            words = f"{count - there} of {count} cells are there" if there else "complete"
            parts.append(f"`experiments/{name}.toml`: {words}.")
            if there:
                parts.append(tables.body(tables.state(data, name)))
                parts.append(
                    f"    cupola sweep experiments/{name}.toml\n"
                    f"    python -m results add {name} runs/{name}\n"
                    "    make results"
                )
    return "\n\n".join(parts)
