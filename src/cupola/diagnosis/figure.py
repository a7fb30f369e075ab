"""A diagnosis as one figure of four panels, PNG bytes; matplotlib is imported when it is drawn."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from cupola.diagnosis.result import RETURN, Diagnosis
from cupola.drawing import own_settings

COLOURS = ("#aeb6bf", "#5dade2", "#1f618d")
"""Of what stands side by side, from what flatters to what counts."""
MEASURED = "#c0392b"
WIDTH = 0.26
"""Of a bar, where signals are 1 apart."""
LOWEST = -0.5
"""Where bars are cut: critics of a young run can be arbitrarily wrong."""


def draw_diagnosis(found: Diagnosis) -> bytes:
    """Critics, gradients, changes, and the KL of an update."""
    with own_settings():
        return draw(found)


def draw(found: Diagnosis) -> bytes:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 7.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    left, right = top.subplots(1, 2)
    draw_critics(left, found)
    draw_gradients(right, found)
    changes, kl = bottom.subfigures(1, 2)
    draw_changes(changes, found)
    draw_kl(kl.subplots(), found)
    tried = "".join(f", {name}={value}" for name, value in found.settings.items())
    what = f"{found.algo} on {found.task}, iteration {found.iteration}{tried}"
    figure.suptitle(f"{what}, batches of {found.batch_size:,} steps", fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def draw_critics(axis: Any, found: Diagnosis) -> None:
    columns = {
        "before an update": [critic.before for critic in found.critics],
        "after it, own batch": [critic.in_sample for critic in found.critics],
        "after it, fresh batch": [critic.held_out for critic in found.critics],
    }
    draw_bars(axis, found, columns)
    axis.set(title="Variance of the returns that critics explain", ylabel="share")


def draw_gradients(axis: Any, found: Diagnosis) -> None:
    columns = {
        "plain gradient": [gradient.plain.truth for gradient in found.gradients],
        "natural gradient": [gradient.natural.truth for gradient in found.gradients],
    }
    places = draw_bars(axis, found, columns, aside=-13)
    for k, kind in enumerate(("plain", "natural")):
        for x, gradient in zip(places[k], found.gradients, strict=True):
            mean, error = getattr(gradient, kind).between
            if np.isfinite(error):
                low, high = np.sqrt(np.clip([mean - 2 * error, mean + 2 * error], 0.0, 1.0))
                axis.plot([x, x], [low, high], color="black", linewidth=1.2)
    axis.set(title="One batch's gradient and the true one (± 2 errors)", ylabel="cosine")


def draw_bars(
    axis: Any, found: Diagnosis, columns: dict[str, list[float]], aside: float = 0.0
) -> np.ndarray:
    """A group for each signal, with numbers; long bars downwards are cut. Where the bars stand.

    Numbers stand ``aside`` points to the right of the middle of their bar.
    """
    centres = np.arange(len(found.levels))
    offsets = WIDTH * (np.arange(len(columns)) - (len(columns) - 1) / 2)
    places, colours = centres + offsets[:, None], COLOURS[-len(columns) :]
    for at, colour, (label, values) in zip(places, colours, columns.items(), strict=True):
        heights = np.maximum(np.array(values, float), LOWEST)
        axis.bar(at, heights, WIDTH * 0.92, color=colour, label=label)
        for x, height, value in zip(at, heights, values, strict=True):
            text = "?" if np.isnan(value) else f"{value:.2f}"
            y, above = np.nan_to_num(height), -11 if height < 0 else 3
            axis.annotate(
                text, (x, y), (aside, above), textcoords="offset points", ha="center", fontsize=8
            )
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.set_xticks(centres, labels_of(found))
    lowest = float(np.nanmin([0.0, *np.concatenate(list(columns.values()))]))
    axis.set_ylim(max(lowest, LOWEST) - 0.15 * (lowest < 0), 1.3)  # with room for the legend
    axis.set_xlim(-0.6, len(centres) - 0.4)
    axis.set_yticks([tick for tick in (-0.5, 0.0, 0.25, 0.5, 0.75, 1.0) if tick >= lowest])
    axis.legend(frameon=False, fontsize=8, loc="upper center", ncols=3)
    axis.grid(axis="y", alpha=0.25)
    axis.set_axisbelow(True)
    return places


def draw_changes(panel: Any, found: Diagnosis) -> None:
    """A small chart for each signal: they have units of their own."""
    axes = np.atleast_1d(panel.subplots(1, len(found.changes)))
    for axis, change, label in zip(axes, found.changes, labels_of(found), strict=True):
        shown = (change.fitted, change.held_out, change.measured)
        for k, (value, colour) in enumerate(zip(shown, (*COLOURS[1:], MEASURED), strict=True)):
            reach = 2 * value.error if np.isfinite(value.error) else 0.0
            axis.errorbar(k, value.mean, reach, fmt="o", color=colour, capsize=4, markersize=6)
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_xticks(range(3), ("own\nbatch", "fresh\nbatches", "meas-\nured"), fontsize=8)
        axis.set(title=label, xlim=(-0.5, 2.5))
        axis.title.set_fontsize(9)
        axis.grid(axis="y", alpha=0.25)
    panel.suptitle("Change by one update, predicted and measured (± 2 errors)", fontsize=12)


def draw_kl(axis: Any, found: Diagnosis) -> None:
    values = [value for trace in found.kl for value in trace.kl]
    bounds = {trace.delta for trace in found.kl if trace.delta is not None}
    for trace, colour in zip(found.kl, (COLOURS[2], MEASURED), strict=False):
        looks = np.arange(1, len(trace.kl) + 1)
        label = trace.step if trace.kl else f"{trace.step}: skipped"
        axis.plot(looks, trace.kl, marker="o", markersize=4, color=colour, label=label)
    for bound in bounds:
        axis.axhline(bound, color="black", linewidth=1, linestyle="--", label="allowed")
    highest = max([*values, *bounds], default=0.0)
    far = bounds and values and not 0.1 < max(values) / min(bounds) < 10
    if far and min(values) > 0:
        axis.set_yscale("log")
    else:
        axis.set_ylim(0.0, 1.15 * highest or 1.0)
    count = max((len(trace.kl) for trace in found.kl), default=1)
    axis.set_xlim(0.5, max(count, 1) + 0.5)
    if count <= 12:
        axis.set_xticks(range(1, max(count, 1) + 1))
    axis.set(title="KL of one update as it goes", xlabel="check of the trust region", ylabel="KL")
    axis.legend(frameon=False, fontsize=8)
    axis.grid(alpha=0.25)


def labels_of(found: Diagnosis) -> list[str]:
    names = [level.name for level in found.levels]
    return [name if name in (RETURN, "cost") else f"cost {name}" for name in names]
