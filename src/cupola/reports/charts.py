"""The figures of a report as PNG, SVG and PDF."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from cupola.display import three_digits
from cupola.drawing import own_settings
from cupola.naming import slug
from cupola.output import visible
from cupola.reports import panels
from cupola.reports.panels import Curve, Plane, Sensitivity, style
from cupola.reports.results import Results
from cupola.runs.files import Folder

MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
FORMATS = ("png", "svg", "pdf")
NO_DATE = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
WIDTH, HEIGHT, DPI = 4.0, 3.0, 110
LONGEST_NAME, LONGEST_TEXT = 100, 200
"""Of a figure's file, and in a figure: names of tasks and fields know no bound."""


def write_figures(results: Results, folder: Folder, points: int) -> list[Path]:
    """The curves of each task, the planes, and one figure per varied field; in all formats."""
    # Text stays text, and equal figures are equal files. Journals refuse Type 3 fonts in a PDF.
    texts = {"svg_fonttype": "none", "pdf_fonttype": 42, "font_size": 9}
    with own_settings(svg_hashsalt="cupola", **texts):
        import matplotlib

        matplotlib.use("Agg")
        return draw_all(results, folder, points)


def draw_all(results: Results, folder: Folder, points: int) -> list[Path]:
    written: list[Path] = []
    curves = panels.curves(results, points)
    for task in results.tasks:
        mine = [curve for curve in curves if curve.task == task]
        if mine:
            written += save(draw_curves(results, mine), folder, f"curves-{task}", written)
    planes = panels.planes(results)
    if planes:
        written += save(draw_planes(results, planes), folder, "return-cost", written)
    sensitivities = panels.sensitivities(results)
    for field in results.varied:
        chosen = [panel for panel in sensitivities if panel.field == field]
        if chosen:
            written += save(draw_sensitivities(chosen), folder, f"sensitivity-{field}", written)
    return written


def save(figure: Any, folder: Folder, name: str, others: list[Path]) -> list[Path]:
    """In all formats, under a name that none of the ``others`` has."""
    from matplotlib import pyplot
    from matplotlib.text import Text

    stem = slug(name)[:LONGEST_NAME]
    while any(other.stem == stem for other in others):
        stem += "_"
    for text in figure.findobj(Text):
        text.set_text(caption(text.get_text()))
    # The layout takes longer than the drawing: once for all.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    names = [f"{stem}.{kind}" for kind in FORMATS]
    for file, kind in zip(names, FORMATS, strict=True):
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, dpi=DPI, metadata=NO_DATE[kind])
        folder.write(file, picture.getvalue())
    pyplot.close(figure)
    return [folder.path / file for file in names]


def caption(text: str) -> str:
    """SVG cannot hold control characters, and a long text leaves no room for the chart."""
    return visible(text)[:LONGEST_TEXT]


def layout(count: int, columns: int) -> tuple[Any, list[Any]]:
    from matplotlib import pyplot

    columns = min(count, columns)
    rows = -(-count // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(WIDTH * columns, HEIGHT * rows + 0.4), squeeze=False,
        layout="constrained", dpi=DPI,
    )  # fmt: skip
    for axis in axes.flat[count:]:
        axis.remove()
    return figure, list(axes.flat[:count])


def dashes(pattern: str) -> Any:
    return (0, tuple(float(part) for part in pattern.split())) if pattern else "-"


def legend(figure: Any, axes: list[Any]) -> None:
    found: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=min(4, len(found)),
        frameon=False,
    )  # fmt: skip


def draw_curves(results: Results, curves: list[Curve]) -> Any:
    """Mean over seeds, a band from the lowest to the highest seed, the limit dashed."""
    figure, axes = layout(len(curves), 3)
    for axis, curve in zip(axes, curves, strict=True):
        faint = min(0.18, 0.6 / len(curve.lines))
        for line in curve.lines:
            look = style(line.series)
            grid = np.full((len(line.runs), len(line.steps)), np.nan)
            for row, values in zip(grid, line.runs, strict=True):
                row[: len(values)] = values
            known = np.isfinite(grid).any(axis=0)
            grid, steps = grid[:, known], line.steps[known]
            label = results.series[line.series]
            axis.plot(
                steps, np.nanmean(grid, axis=0), color=look.colour, ls=dashes(look.dash), lw=1.3,
                label=label,
            )  # fmt: skip
            if len(grid) > 1:
                low, high = np.nanmin(grid, axis=0), np.nanmax(grid, axis=0)
                axis.fill_between(steps, low, high, color=look.colour, alpha=faint, lw=0)
            for values, unfinished in zip(line.runs, line.unfinished, strict=True):
                there = np.flatnonzero(np.isfinite(values))
                if unfinished and len(there):
                    axis.plot(
                        line.steps[there[-1]], values[there[-1]], "o", color=look.colour, ms=5,
                        markerfacecolor="white",
                    )  # fmt: skip
        draw_limits(axis, "y", [(line.limit, line.series) for line in curve.lines])
        quantity = curve.quantity
        axis.set(title=f"{curve.task}: {quantity.label}", xlabel="environment steps")
        axis.set(ylabel=quantity.axis)
        starts = (panels.late_start(line) for line in curve.lines)
        late = [start for start in starts if start is not None]
        if late and not curve.quantity.evaluated:
            ends = " to ".join(dict.fromkeys(f"{end(late):,.0f}" for end in (min, max)))
            words = f"begins at {ends} steps:\nno episode had ended before"
            axis.text(0.02, 0.03, words, transform=axis.transAxes, fontsize=7, color="#555555")
    legend(figure, axes)
    return figure


def draw_limits(axis: Any, side: str, limits: list[tuple[float | None, int]]) -> None:
    """One dark dashed line, or one of its own colour for each series that has another limit.

    ``side`` is the axis on which the limits lie, x or y.
    """
    known = sorted({limit for limit, _ in limits if limit is not None})
    for limit in known:
        owners = [series for value, series in limits if value == limit]
        colour = style(owners[0]).colour if len(known) > 1 and len(owners) == 1 else "#333333"
        line_at = axis.axhline if side == "y" else axis.axvline
        line_at(limit, color=colour, ls=(0, (4, 3)), lw=1)
        words = f"limit {three_digits(limit)}"
        if side == "y":  # beside the chart, where no curve runs through it
            axis.annotate(
                words.replace(" ", "\n"), (1, limit), xytext=(4, 0), textcoords="offset points",
                xycoords=axis.get_yaxis_transform(), fontsize=7, color=colour, va="center",
            )  # fmt: skip
        else:
            axis.annotate(
                words, (limit, 1), xytext=(3, -3), textcoords="offset points",
                xycoords=axis.get_xaxis_transform(), fontsize=7, color=colour, va="top",
                bbox={"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 0.5},
            )  # fmt: skip


def draw_planes(results: Results, planes: list[Plane]) -> Any:
    """Seeds small, means large; left of the dashed limit is safe."""
    figure, axes = layout(len(planes), 3)
    for axis, plane in zip(axes, planes, strict=True):
        for point in plane.points:
            look = style(point.series)
            costs, returns = np.array(point.seeds)[:, 1:].T
            marker = MARKERS[look.marker]
            axis.scatter(costs, returns, s=12, color=look.colour, marker=marker, alpha=0.5, lw=0)
            axis.scatter(
                costs.mean(), returns.mean(), s=60, color=look.colour, marker=marker,
                edgecolors="white", label=results.series[point.series],
            )  # fmt: skip
        draw_limits(axis, "x", [(point.limit, point.series) for point in plane.points])
        axis.set(title=plane.task, xlabel=plane.cost.label, ylabel="return")
    legend(figure, axes)
    return figure


def draw_sensitivities(panels: list[Sensitivity]) -> Any:
    """Means over seeds with their intervals; the limits of a cost dashed."""
    figure, axes = layout(len(panels), 2 if len(panels) % 3 else 3)
    labels = list(dict.fromkeys(label for panel in panels for label in panel.lines))
    for axis, panel in zip(axes, panels, strict=True):
        places = [point.at for points in panel.lines.values() for point in points]
        width = max(places) - min(places)
        for label, points in panel.lines.items():
            index = labels.index(label)
            look = style(index)
            _, at, value, low, high, _ = np.array(points, dtype=float).T
            # Side by side, so that no interval hides another.
            at = at + 0.015 * width * (index - (len(labels) - 1) / 2)
            axis.errorbar(
                at, value, yerr=(value - low, high - value), color=look.colour,
                ls=dashes(look.dash), lw=1.3, marker=MARKERS[look.marker], ms=4, label=label,
            )  # fmt: skip
            limits = [(point.at, point.limit) for point in points if point.limit is not None]
            if limits:
                axis.plot(*zip(*limits, strict=True), color="#333333", ls=(0, (4, 3)), lw=1)
        if panel.ticks:
            axis.set_xticks(range(len(panel.ticks)), list(map(caption, panel.ticks)))
        name = panel.quantity.label
        axis.set(title=f"{panel.task}: {name}", xlabel=panel.field, ylabel=name)
    legend(figure, axes)
    return figure
