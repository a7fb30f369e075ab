"""Figures of the theory, as PNG bytes; matplotlib is imported when one is drawn."""

from __future__ import annotations

import io
from typing import Any, TypeAlias

import numpy as np

from cupola.drawing import own_settings
from cupola.theory import lp
from cupola.theory.study import Race

Record: TypeAlias = dict[str, Any]

COLOURS = {
    "printed": "#c0392b",
    "corrected": "#1f618d",
    "products": "#148f77",
}
NAMES = {
    "printed": "as printed",
    "corrected": "corrected",
    "products": "corrected, with products of ratios",
}
PANELS = (
    "Lemma",
    "Theorem 1 (1, inf)",
    "Theorem 1 (2, 2)",
    "Proposition 1",
    "Proposition 2",
    "Proposition 3 (of 1)",
    "Theorem 2, return",
    "Theorem 2, cost",
)


@own_settings(text_parse_math=True)  # powers of ten along the axes; no name of others
def tightness(curves: Record, label: str) -> bytes:
    """Median tightness of each bound along one axis, printed and corrected side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5.6), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True)
    logarithmic = label != "lambda"
    handles: dict[str, Any] = {}
    for ax, claim in zip(axes.flat, PANELS, strict=True):
        for version, colour in COLOURS.items():
            curve = curves.get(f"{claim} | {version}")
            if curve is None:
                continue
            heights = np.array(curve["median"], float)
            (handles[version],) = ax.plot(
                curve["x"], heights, color=colour, marker="o", markersize=3, label=version
            )
        ax.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
        ax.set_yscale("log")
        ax.set_ylim(bottom=max(ax.get_ylim()[0], 1e-4))  # at lambda = 1 some errors vanish
        if logarithmic:
            ax.set_xscale("log")
        ax.set_title(claim, fontsize=10)
        ax.grid(alpha=0.25)
    for ax in axes[1]:
        ax.set_xlabel(label)
    for ax in axes[:, 0]:
        ax.set_ylabel("error / allowed error")
    figure.legend(
        handles.values(),
        [NAMES[v] for v in handles],
        loc="outside upper center",
        ncols=3,
        frameon=False,
    )
    return _png(figure)


@own_settings(text_parse_math=True)
def paths(races: list[Race]) -> bytes:
    """Exact CUP in the return-cost plane: path, limit, optimum and all that can be reached."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), layout="constrained")
    axes = figure.subplots(1, len(races))
    for ax, race in zip(np.atleast_1d(axes), races, strict=True):
        # The one whose limit is worth most: elsewhere the limit hardly matters.
        i = int(np.argmax([float(optimum.multipliers[0]) for optimum in race.optima]))
        cmdp, best = race.cmdp.case(i), race.optima[i]
        limit = float(cmdp.limits[0])
        costs, returns = race.path.costs[:, i, 0], race.path.returns[:, i]
        lowest = lp.lowest_cost(cmdp, 0)
        right = max(costs.max(), limit) + 0.1 * (max(costs.max(), limit) - lowest)
        grid = np.linspace(lowest * (1 + 1e-9) + 1e-12, right, 60)
        frontier = [lp.solve(cmdp._replace(limits=np.array([x]))).value for x in grid]
        ax.fill_between(grid, frontier, min(returns.min(), min(frontier)), color="#eaecee")
        ax.plot(grid, frontier, color="#7f8c8d", label="best return for a limit")
        ax.axvline(limit, color="black", linestyle="--", linewidth=0.9, label="limit")
        ax.plot(costs, returns, color="#1f618d", marker="o", markersize=2.5, label="exact CUP")
        ax.plot(costs[0], returns[0], "s", color="#1f618d", markersize=6)
        ax.plot(limit, best.value, "*", color="#c0392b", markersize=13, label="LP optimum")
        ax.set_title(f"{cmdp.states} states, {cmdp.actions} actions", fontsize=10)
        ax.set_xlabel("cost return")
        ax.grid(alpha=0.25)
    np.atleast_1d(axes)[0].set_ylabel("return")
    np.atleast_1d(axes)[0].legend(frameon=False, fontsize=8)
    return _png(figure)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
