"""A table as text, CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from typing import NamedTuple

from cupola.display import three_digits
from cupola.reports.statistics import Estimate

Value = str | float | int | Estimate


class Entry(NamedTuple):
    """One entry of a table."""

    value: Value
    bold: bool = False
    infeasible: bool = False
    share: bool = False
    """A part of 1, which the page draws as a bar."""


class Table(NamedTuple):
    key: str
    title: str
    columns: list[str]
    rows: list[list[Entry]]
    note: str = ""


MARK = "\N{DAGGER}"


def format_number(value: float) -> str:
    """A number with about three digits; an infinite one is a number of steps."""
    return "never" if math.isinf(value) else three_digits(value)


def format_entry(entry: Entry) -> str:
    """An entry without its emphasis."""
    value, mark = entry.value, MARK if entry.infeasible else ""
    if isinstance(value, Estimate):
        interval = f" [{format_number(value.low)}, {format_number(value.high)}]"
        return format_number(value.value) + mark + ("" if math.isnan(value.low) else interval)
    return (format_number(value) if isinstance(value, float) else str(value)) + mark


def is_number(table: Table, column: int) -> bool:
    """Whether a column holds numbers, and perhaps dashes where one is not known."""
    values = [row[column].value for row in table.rows if row[column].value not in ("", "-")]
    return bool(values) and not any(isinstance(value, str) for value in values)


def to_csv(table: Table) -> str:
    """Full precision; an estimate takes three columns; unknown is empty, never is `inf`."""
    wide = [
        any(isinstance(row[i].value, Estimate) for row in table.rows)
        for i in range(len(table.columns))
    ]
    header: list[str] = []
    for name, is_wide in zip(map(csv_cell, table.columns), wide, strict=True):
        header += [name, f"{name} low", f"{name} high"] if is_wide else [name]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        line: list[str] = []
        for entry, is_wide in zip(row, wide, strict=True):
            parts = entry.value if isinstance(entry.value, Estimate) else (entry.value,)
            shown = ["" if p != p or p == "-" else csv_cell(p) for p in parts]
            line += shown + [""] * (3 - len(shown)) if is_wide else shown
        writer.writerow(line)
    return out.getvalue()


def csv_cell(value: str | float) -> str:
    """A spreadsheet would run a text that begins like a formula: it gets an apostrophe."""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and re.match(r"[=+\-@\t\r]", text) else text


def markdown_escape(words: str) -> str:
    """On one line, and neither a column, nor a link, nor HTML."""
    escapes = {"|": "\\|", "](": "]\\(", "<": "&lt;"}
    pattern = r"\||\]\(|<(?=[A-Za-z/!?])"
    return re.sub(pattern, lambda found: escapes[found[0]], " ".join(words.splitlines()))


def to_markdown(table: Table) -> str:
    def shown(entry: Entry) -> str:
        words = markdown_escape(format_entry(entry))
        return f"**{words}**" if entry.bold else words

    lines = [f"## {table.title}", "", f"| {' | '.join(map(markdown_escape, table.columns))} |"]
    lines.append("|" + "---|" * len(table.columns))
    lines += [f"| {' | '.join(shown(entry) for entry in row)} |" for row in table.rows]
    return "\n".join([*lines, "", table.note, ""])


_LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<=": r"$\le$",
    "<": "$<$",
    ">": "$>$",
    MARK: r"$^\dagger$",
}


def latex_escape(words: str) -> str:
    line = " ".join(words.splitlines())
    return re.sub(r"<=|.", lambda found: _LATEX.get(found[0], found[0]), line)


def to_latex(table: Table) -> str:
    """A table for \\usepackage{booktabs}."""

    def shown(entry: Entry) -> str:
        words = latex_escape(format_entry(entry))
        return rf"\textbf{{{words}}}" if entry.bold else words

    sides = "".join("r" if is_number(table, i) else "l" for i in range(len(table.columns)))
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        " & ".join(latex_escape(name) for name in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(shown(entry) for entry in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{latex_escape(table.title)}. {latex_escape(table.note)}}}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def to_html(table: Table) -> str:
    """Scrolls sideways on a small screen; the first columns name the row."""

    numbers = [is_number(table, i) for i in range(len(table.columns))]

    def shown(entry: Entry, right: bool) -> str:
        classes = [name for name in ("bold", "infeasible", "share") if getattr(entry, name)]
        if right or not isinstance(entry.value, str):
            classes.append("number")
        chosen = f' class="{" ".join(classes)}"' if classes else ""
        if entry.share and isinstance(entry.value, float):
            chosen += f' style="--share: {entry.value:.1%}"'
        words = html.escape(format_entry(entry))
        if isinstance(entry.value, Estimate):
            words = re.sub(r"(\[.*\])", r'<span class="interval">\1</span>', words)
        return f"<td{chosen}>{words}</td>"

    head = "".join(
        ('<th class="number">' if right else "<th>") + f"{html.escape(name)}</th>"
        for name, right in zip(table.columns, numbers, strict=True)
    )
    body = "\n".join(f"<tr>{''.join(map(shown, row, numbers))}</tr>" for row in table.rows)
    return (
        f'<div class="wide" tabindex="0"><table id="table-{table.key}">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>\n"
        f'<p class="note">{html.escape(table.note)}</p>'
    )
