"""One self-contained page of a sweep or of any runs; figures, tables and curves beside it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from cupola.errors import CupolaError
from cupola.naming import counted
from cupola.reports import curves, formats, panels, tables
from cupola.reports.charts import write_figures
from cupola.reports.formats import Table
from cupola.reports.panels import Curve, Plane, Sensitivity
from cupola.reports.results import Results, RunResult
from cupola.runs.files import Folder
from cupola.sweeps.directory import writing

PALETTE_SIZE = 32


def write_report(results: Results, page: Path, first: Sequence[Table] = ()) -> Path:
    """Write the page, and the folder of figures, tables and curves beside it; return the folder.

    The tables ``first`` stand before all else.
    """
    folder = Folder(page.parent, page.stem)
    if not any(run.curves for run in results.runs):
        known = [f"{run.name}: {run.reason}" for run in results.runs if run.reason]
        reasons = [f"; {one}" for one in (*map(str, results.left_out), *known)]
        raise CupolaError(
            f"there is nothing to report yet: no run has an iteration{''.join(reasons[:1]) or '.'}"
        )
    points = panels.points_per_run(results)
    found = [table for table in tables.all_tables(results) if table.rows]
    with writing(page.parent):
        for part in ("figures", "tables"):
            (folder / part).make()
        for table in (*first, *found):
            for suffix, render in RENDERERS.items():
                (folder / "tables").write(f"{table.key}.{suffix}", encoded(render(table)))
        folder.write(curves.FILE_NAME, curves.encode(results))
        write_figures(results, folder / "figures", points)
        Folder(page.parent).write(page.name, encoded(make_page(results, first, found, points)))
    return folder.path


def encoded(text: str) -> bytes:
    """As UTF-8, with ? for what is none: the name of a directory may be any bytes."""
    return text.encode(errors="replace")


RENDERERS = {"csv": formats.to_csv, "md": formats.to_markdown, "tex": formats.to_latex}


def make_page(results: Results, first: Sequence[Table], found: list[Table], points: int) -> str:
    summary, *others = found
    script = asset("charts.js") + asset("page.js")
    longest = max((run.iterations for run in results.runs), default=0)
    thinned = ""
    if longest > points:
        thinned = f" Every point is a mean over {math.ceil(longest / points)} iterations."
    filled = {
        "title": html.escape(results.title),
        "overview": overview(results),
        "failures": failures(results),
        "first": "\n".join(section(table) for table in first),
        "thinned": thinned,
        "summary": formats.to_html(summary),
        "tables": "\n".join(section(table) for table in others),
        "configs": configs(results),
        "data": embed(page_data(results, points)),
        "css": asset("page.css"),
        "js": script,
        # The browser runs this script and nothing else.
        "hash": content_hash(script),
    }
    return fill(asset("page.html"), filled)


def fill(template: str, filled: dict[str, str]) -> str:
    """The template with its {{slots}} filled in."""
    # Split, not replaced one after the other: what is filled in may look like a slot.
    pieces = template.split("{{")
    page = pieces[0]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        page += filled[name] + rest
    return page


def asset(name: str, package: str = "cupola.reports") -> str:
    return resources.files(package).joinpath("assets", name).read_text("utf-8")


def content_hash(text: str) -> str:
    """Of a script or a style, as a Content-Security-Policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def overview(results: Results) -> str:
    counts = Counter(run.state for run in results.runs)
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    series = len(results.series)
    variants = "1 algorithm" if series == 1 else f"{series} algorithms or variants"
    words = f"{counted(len(results.runs), 'run')} ({states}): {variants}"
    return html.escape(f"{words}, {counted(len(results.tasks), 'task')}.")


def failures(results: Results) -> str:
    failed = [(run.name, run.reason) for run in results.runs if run.state == "failed"]
    begun = [
        (run.name, how_far(run))
        for run in results.runs
        if run.state in ("running", "interrupted") and run.iterations
    ]
    return (
        listed("Failed", failed)
        + listed("Left out", results.left_out)
        + listed("Not finished: drawn up to where they are, not counted in the tables", begun)
    )


def how_far(run: RunResult) -> str:
    asked = run.config.get("iterations")
    return f"{run.iterations} of {asked} iterations" if asked else f"{run.iterations} iterations"


def listed(title: str, runs: Iterable[tuple[str, str]]) -> str:
    """Names and reasons; nothing where there are none."""
    items = [
        f"<li><b>{html.escape(name)}</b>{html.escape(f': {reason}' if reason else '')}</li>"
        for name, reason in runs
    ]
    if not items:
        return ""
    return f'<div class="failures"><p>{title}:</p><ul>{"".join(items)}</ul></div>'


def section(table: Table) -> str:
    body = formats.to_html(table)
    if table.key == "runs":
        body = f"<details><summary>{len(table.rows)} runs</summary>{body}</details>"
    return f"<section><h2>{html.escape(table.title)}</h2>\n{body}\n</section>"


def configs(results: Results) -> str:
    """The versions that ran, and the settings of every algorithm or variant.

    Nothing where they are not known: a file of curves does not hold them.
    """
    parts = []
    versions = Counter(
        ", ".join(f"{k} {v}" for k, v in run_versions(run).items())
        for run in results.runs
        if run.config
    )
    for text, count in versions.items():
        parts.append(f"<p>{counted(count, 'run')}: {html.escape(text)}.</p>")
    for series in results.series:
        runs = [run for run in results.runs if run.series == series and run.config]
        if runs:
            rows = "".join(
                f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>"
                for key, value in shared_settings(runs).items()
            )
            parts.append(
                f'<details class="config printed"><summary>{html.escape(series)}</summary>'
                f'<div class="wide"><table><tbody>{rows}</tbody></table></div></details>'
            )
    if not parts:
        return ""
    return "\n".join(["<section><h2>Configuration and versions</h2>", *parts, "</section>"])


def run_versions(run: RunResult) -> dict[str, str]:
    return run.result.get("versions") or {"cupola": run.config.get("cupola", "unknown")}


def shared_settings(runs: list[RunResult]) -> dict[str, str]:
    """Every setting; several values where the runs (tasks, seeds) differ."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        config = {k: v for k, v in run.config.items() if k not in ("algorithm", "cupola")}
        for key, value in (config | run.config["algorithm"]).items():
            shown = value if isinstance(value, str) else json.dumps(value)
            values.setdefault(key, {})[shown] = None
    return {key: ", ".join(found) for key, found in values.items()}


def page_data(results: Results, points: int) -> dict[str, Any]:
    looks = [panels.style(i)._asdict() for i in range(PALETTE_SIZE)]
    return {
        "series": [
            {"label": name, **panels.style(i)._asdict()} for i, name in enumerate(results.series)
        ],
        "palette": looks,
        "curves": [curve_data(curve) for curve in panels.curves(results, points)],
        "planes": [plane_data(plane) for plane in panels.planes(results)],
        "sensitivity": [sensitivity_data(panel) for panel in panels.sensitivities(results)],
    }


def curve_data(curve: Curve) -> dict[str, Any]:
    lines = [
        {
            "s": line.series,
            "x": [int(x) for x in line.steps],
            "runs": [rounded(run) for run in line.runs],
            "limit": line.limit,
            "unfinished": line.unfinished,
        }
        for line in curve.lines
    ]
    quantity = curve.quantity
    return {
        "task": curve.task,
        "kind": quantity.kind,
        "label": quantity.label,
        "axis": quantity.axis,
        "evaluated": bool(quantity.evaluated),
        "lines": lines,
    }


def plane_data(plane: Plane) -> dict[str, Any]:
    points = [
        {
            "s": point.series,
            "seeds": [[seed, *rounded(np.array(where))] for seed, *where in point.seeds],
            "limit": point.limit,
        }
        for point in plane.points
    ]
    return {"task": plane.task, "label": plane.cost.label, "points": points}


def sensitivity_data(panel: Sensitivity) -> dict[str, Any]:
    lines = []
    for label, points in panel.lines.items():
        known = [point for point in points if math.isfinite(point.value)]
        shown = [
            {
                "s": point.series,
                "at": point.at,
                "value": point.value,
                "low": None if math.isnan(point.low) else point.low,
                "high": None if math.isnan(point.high) else point.high,
                "limit": point.limit,
            }
            for point in known
        ]
        lines.append({"label": label, "points": shown})
    return {
        "field": panel.field,
        "task": panel.task,
        "label": panel.quantity.label,
        "ticks": panel.ticks,
        "lines": lines,
    }


def rounded(values: np.ndarray) -> list[float | None]:
    """Five digits are more than a screen can show; unknown is null."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist()]


def embed(data: dict[str, Any]) -> str:
    """JSON that cannot end the script that it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")
