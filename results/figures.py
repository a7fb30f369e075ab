"""The figures of the page and of experiments/results, as PNG files that say what they show.

Bytes of pictures depend on the version of matplotlib. So each file holds a digest of its data, by
which a test finds out whether it is up to date without drawing it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cupola.drawing import own_settings
from cupola.reports import charts, curves, panels
from cupola.reports.results import Results, RunResult
from cupola.reports.tables import mean
from results.sources import (
    BASELINES,
    COMMITTED,
    NAMES,
    ROBOTS,
    ROOT,
    SAFETY_GYM,
    SENSITIVITY,
    Data,
    cost_of,
    limit_of,
    read_curves,
    renamed,
)

FOLDER = ROOT / "results" / "figures"
KEY = "Source"
"""Of the digest in a PNG file."""


class Figure(NamedTuple):
    path: Path
    digest: Callable[[], str]
    """Of all that it shows."""
    draw: Callable[[], Any]

    def is_current(self) -> bool:
        if not self.path.exists():
            return False
        with Image.open(self.path) as picture:
            return picture.info.get(KEY) == self.digest()

    def write(self) -> bool:
        """Whether the file has changed."""
        from matplotlib import pyplot

        picture = io.BytesIO()
        figure = self.draw()
        figure.savefig(
            picture, format="png", dpi=charts.DPI, metadata={KEY: self.digest(), "Software": None}
        )
        pyplot.close(figure)
        if self.path.exists() and self.path.read_bytes() == picture.getvalue():
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(picture.getvalue())
        return True


def write(found: list[Figure]) -> list[Path]:
    """Draw all; those whose files have changed."""
    import matplotlib

    with own_settings(font_size=9):
        matplotlib.use("Agg")
        return [figure.path for figure in found if figure.write()]


def digest(runs: Iterable[RunResult], *texts: str) -> str:
    total = hashlib.sha256("\n".join(texts).encode())
    for run in runs:
        total.update(f"{run.series} {run.task} {run.seed} {run.state} {run.limits}".encode())
        for key, values in sorted(run.curves.items()):
            total.update(key.encode() + values.tobytes())
    return total.hexdigest()


def of_curves(results: Results, task: str, folder: Path) -> Figure:
    """Return, cost and multiplier over the training."""
    mine = [run for run in results.runs if run.task == task]

    def draw() -> Any:
        shown = panels.curves(results, panels.points_per_run(results))
        return charts.draw_curves(results, [curve for curve in shown if curve.task == task])

    # The other tasks decide which colour an algorithm has.
    return Figure(folder / f"curves-{task}.png", lambda: digest(mine, *results.series), draw)


def of_sensitivity(data: Data, name: str) -> Figure:
    results = Results(name, renamed(data.results[name].runs))
    return Figure(
        FOLDER / f"{name}.png",
        lambda: digest(results.runs),
        lambda: charts.draw_sensitivities(panels.sensitivities(results)),
    )


def of_experiment(name: str) -> Iterator[Figure]:
    """Those in experiments/results/NAME/."""
    results = read_curves(COMMITTED / name / curves.FILE_NAME)
    for task in results.tasks:
        yield of_curves(results, task, COMMITTED / name)


def of_page(data: Data) -> list[Figure]:
    compared = data.compared()
    found = [of_curves(compared, task, FOLDER) for task in compared.tasks]
    found += [of_sensitivity(data, name) for name in SENSITIVITY if name in data.results]
    rows = (*ROBOTS, *SAFETY_GYM)
    shown = [run for run in compared.runs if run.task in rows]
    if any(run.label == NAMES["cup"] for run in shown):
        published = repr(sorted(data.published.items()))
        path = FOLDER / "overview.png"
        found.append(Figure(path, lambda: digest(shown, published), lambda: draw_overview(data)))
    return found


def draw_overview(data: Data) -> Any:
    """Return over cost for each row of the paper: hollow its numbers, filled ours."""
    rows = [task for task in (*ROBOTS, *SAFETY_GYM) if data.runs(task, "cup")]
    figure, axes = charts.layout(len(rows), 3)
    looks = {label: i for i, label in enumerate(NAMES) if label in ("cup", *BASELINES)}
    for axis, task in zip(axes, rows, strict=True):
        for label, index in looks.items():
            look = panels.style(index)
            published = data.of("paper", task, label)
            if published:
                axis.scatter(
                    published.cost, published.mean_return, s=45, facecolors="none",
                    edgecolors=look.colour, marker=charts.MARKERS[look.marker], zorder=5,
                )  # fmt: skip
            if runs := data.runs(task, label):
                pairs = [(r.final(f"cost/{cost_of(r)}"), r.final("return")) for r in runs]
                costs, returns = map(np.array, zip(*pairs, strict=True))
                known = [mean(list(values)) for values in (costs, returns)]
                bars = [
                    [[max(0.0, one.value - one.low)], [max(0.0, one.high - one.value)]]
                    for one in known
                ]
                axis.errorbar(
                    known[0].value, known[1].value, xerr=bars[0], yerr=bars[1], color=look.colour,
                    marker=charts.MARKERS[look.marker], ms=7, lw=1,
                )  # fmt: skip
        charts.draw_limits(axis, "x", [(limit_of(task), 0)])
        axis.set(title=task, xlabel="cost", ylabel="return")
    for label, index in looks.items():
        look = panels.style(index)
        axes[0].scatter(
            [], [], color=look.colour, marker=charts.MARKERS[look.marker], label=NAMES[label]
        )
    axes[0].scatter([], [], facecolors="none", edgecolors="grey", label="hollow: the paper's")
    charts.legend(figure, axes)
    return figure
