"""Write the tables of docs/performance.md from the results that are there.

    python benchmarks/performance_page.py

A block of the page begins with `<!-- results/FILE.json -->` and ends with `<!-- end -->`. Its lines
are made from that file of this folder, with the command that measured it. Without the file they
say so.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
BLOCK = re.compile(r"<!-- results/(\S+\.json) -->\n.*?<!-- end -->", re.DOTALL)
MISSING = "Not measured yet."


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    align = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (head, align, *rows)]


def ceiling(found: dict[str, Any]) -> list[str]:
    rows = [
        [
            task,
            f"{result['steps_per_second']:,.0f}",
            f"{result['physics_steps_per_second']:,.0f}",
            f"{100 * result['ratio']:.0f} %",
            f"{100 * result['standing_ratio']:.0f} %",
            f"{result['rollout_seconds']:.2f}",
            f"{result['update_seconds']:.2f}",
        ]
        for task, result in found["tasks"].items()
    ]
    head = ["task", "training, steps/s", "physics, steps/s", "ratio", "of standing robots"]
    often = f"Medians of {found['repeat']} benches in a row." if found["repeat"] > 1 else ""
    return [*table([*head, "rollout, s", "update, s"], rows), "", often]


def stages(found: dict[str, Any]) -> list[str]:
    results = found["tasks"]
    names: dict[str, float] = {}
    for result in results.values():
        for name in {**result["main"], **result["beside"]}:
            share = result["main"].get(name, 0.0) / result["iteration_seconds"]
            names[name] = max(share, names.get(name, 0.0))
    rows = [
        [name, *(f"{1000 * each['main'].get(name, 0.0):,.1f}" for each in results.values())]
        for name in sorted(names, key=lambda name: -names[name])
    ]
    whole = [f"{1000 * each['iteration_seconds']:,.0f}" for each in results.values()]
    saved = [f"{1000 * each['checkpoint_seconds']:,.0f}" for each in results.values()]
    rows += [["**iteration**", *whole], ["a checkpoint, now and then", *saved]]
    return table(["milliseconds", *results], rows)


def versus(found: dict[str, Any]) -> list[str]:
    rows = []
    for result in found["results"]:
        peer = result["medians"][result["best_omnisafe"]]["steps_per_second"]
        for name, times in result["speedup"].items():
            ours = result["medians"][name]["steps_per_second"]
            numbers = [f"{ours:,.0f}", f"{peer:,.0f}", f"{times:.1f}"]
            rows.append([f"{result['algorithm']}, {result['task']}: {name}", *numbers])
    return table(["", "cupola, steps/s", "OmniSafe, steps/s", "times"], rows)


def stepping(found: dict[str, Any]) -> list[str]:
    rows = [
        [
            task,
            *(f"{result[kind]:,.0f}" for kind in ("make_vec", "physics", "peer")),
            f"{100 * result['over_physics']:.0f} %",
            f"{result['over_peer']:.0f}",
        ]
        for task, result in found["medians"].items()
    ]
    head = ["task", "`make_vec`, steps/s", "physics, steps/s", "Safety-Gymnasium, steps/s"]
    return table([*head, "of physics", "times Safety-Gymnasium"], rows)


def cores(found: dict[str, Any]) -> list[str]:
    rows = []
    for result in found["results"]:
        near, far = result["model"]["near"], result["model"]["far"]
        one, two = (result["measured"][count] for count in ("1", "2"))
        first = near["seconds"]["1"]
        speeds = [
            f"{first / near['seconds'][count]:.1f} ({first / far['seconds'][count]:.1f})"
            for count in ("4", "16", "64")
        ]
        stops = [str(model["stops_at"] or "beyond 128") for model in (near, far)]
        rows.append(
            [
                f"{result['task']}, {result['num_envs']} environments",
                f"{one:.2f}",
                f"{one / two:.2f}",
                f"{first / near['seconds']['2']:.2f}",
                f"{result['parts']['slowdown_of_2']:.2f}",
                *speeds,
                f"{stops[0]} ({stops[1]})",
            ]
        )
    head = ["task", "1 core, s", "2 cores, measured", "2, model", "slowed by a second core"]
    return table([*head, "4 cores", "16 cores", "64 cores", "stops paying at"], rows)


GROWING = {
    "batch_size": "batch size",
    "costs": "costs",
    "width": "width of networks",
    "observation": "size of observations",
    "num_envs": "environments",
}


def growth(found: dict[str, Any]) -> list[str]:
    rows = []
    for sweep, points in found["sweeps"].items():
        first, last, grown = points[0], points[-1], found["growth"][sweep]
        seconds = [each["rollout_seconds"] + each["update_seconds"] for each in (first, last)]
        size = f"{grown['size']:.1f}" + (" (parameters)" if sweep == "width" else "")
        rows.append(
            [
                GROWING[sweep],
                f"{first['value']} to {last['value']}",
                size,
                f"{seconds[0]:.2f} to {seconds[1]:.2f} s, {grown['seconds']:.1f}",
                f"{grown['worst_step']:.2f}",
                f"{first['peak_mb']:,.0f} to {last['peak_mb']:,.0f} MB",
            ]
        )
    head = ["what grows", "from, to", "times", "time, and times", "steepest step", "peak memory"]
    return table(head, rows)


BLOCKS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "bench-all.json": ceiling,
    "versus_safety_gymnasium.json": stepping,
    "versus_omnisafe.json": versus,
    "profile.json": stages,
    "many-cores.json": cores,
    "cost-growth.json": growth,
}


def filled(page: str, results: Path) -> str:
    """The page with every block made anew."""

    def block(match: re.Match[str]) -> str:
        file = results / match[1]
        lines = [MISSING]
        if file.exists():
            found = json.loads(file.read_text())
            machine = f"{found['cores']} core(s), {found['platform']}"
            note = f" {found['note']}" if found.get("note") else ""
            link = f"[{match[1]}](../benchmarks/results/{match[1]})"
            lines = [*BLOCKS[match[1]](found), ""]
            picture = PAGE.with_suffix("") / f"{file.stem}.png"
            if picture.exists():
                lines += [f"![{file.stem}](performance/{picture.name})", ""]
            lines += [f"{link}, {machine}: `{found['command']}`.{note}"]
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
        return f"<!-- results/{match[1]} -->\n\n{text}\n\n<!-- end -->"

    return BLOCK.sub(block, page)


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    PAGE.write_text(filled(PAGE.read_text(), HERE / "results"))


if __name__ == "__main__":
    main()
