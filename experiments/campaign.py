"""A training campaign: many runs, some at a time, resumable; compact curves, a table, a figure.

    python experiments/campaign.py cup-speed            # or any other campaign listed below
    python experiments/campaign.py cup-speed --report   # curves, table and figure of what is there

Runs live in runs/CAMPAIGN/NAME; stop the script at any time and start it again: finished runs are
kept, interrupted ones resume exactly. Curves go to experiments/results/CAMPAIGN/NAME.csv, the
table to experiments/results/CAMPAIGN.md and the figure to experiments/results/CAMPAIGN.png.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
COLUMNS = ("steps", "episodes", "length", "return")


class Campaign(NamedTuple):
    """Every variant on every task with every seed."""

    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    variants: dict[str, tuple[str, ...]]
    """Arguments of `cupola train`, the algorithm first, by a short name."""
    iterations: int = 500


ALGORITHMS = ("cup", "focops", "ppo-lag", "trpo-lag", "cpo", "pcpo", "ppo", "trpo")

CAMPAIGNS = {
    "cup-speed": Campaign(
        tasks=("HopperSpeed", "SwimmerSpeed", "AntSpeed"),
        seeds=(0, 1, 2),
        variants={"paper": ("cup",)},
    ),
    "hopper-trap": Campaign(
        tasks=("HopperSpeed",),
        seeds=(0, 1, 2, 3, 4),
        variants={
            "paper": ("cup",),
            "terminal": ("cup", "--cost-termination", "terminal"),
            "slow": ("cup", "--dual", "slow"),
            "slow-terminal": ("cup", "--dual", "slow", "--cost-termination", "terminal"),
        },
    ),
    "cup-safety-gym": Campaign(
        tasks=("PointGoal1",),
        seeds=(0, 1),
        variants={"paper": ("cup",)}
        | {
            f"price-{price}": (
                *("cup", "--projection-start", "start", "--dual", "slow"),
                *("--nu-init", price, "--dual-lr", rate),
            )
            for price, rate in (("0.6", "0.00005"), ("0.3", "0.0001"))
        },
    ),
    "two-costs": Campaign(
        tasks=("HopperSpeed",),
        seeds=(0,),
        variants={"paper": ("cup", "--limit", "speed=82.748", "--limit", "effort=40")},
        iterations=300,
    ),
    "baselines": Campaign(
        tasks=("SwimmerSpeed", "HopperSpeed"),
        seeds=(0, 1),
        variants={name: (name,) for name in ALGORITHMS},
        iterations=200,
    ),
    "baselines-falls": Campaign(
        tasks=("HopperSpeed",),
        seeds=(0, 1),
        variants={name: (name, "--cost-termination", "time_limit") for name in ALGORITHMS[1:6]},
        iterations=200,
    ),
    "recovery": Campaign(
        tasks=("HopperSpeed",),
        seeds=(0,),
        variants={
            name: (name, "--start-from", "runs/baselines/HopperSpeed-ppo-0")
            for name in ALGORITHMS[:6]
        },
        iterations=150,
    ),
}


class Cell(NamedTuple):
    name: str
    task: str
    command: tuple[str, ...]


def cells_of(campaign: Campaign, folder: Path) -> list[Cell]:
    cells = []
    for seed, task, variant in product(campaign.seeds, campaign.tasks, campaign.variants):
        name = f"{task}-{variant}-{seed}"
        options = ("--seed", str(seed), "--iterations", str(campaign.iterations))
        where = ("--out", str(folder / name), "--threads", "1", "--checkpoint-every", "25")
        algorithm, *more = campaign.variants[variant]
        command = ("train", algorithm, task, *options, *where, *more)
        cells.append(Cell(name, task, command))
    return cells


def run(cell: Cell, folder: Path) -> str:
    """Train or continue one cell in a process of its own."""
    begun = (folder / cell.name / "config.json").exists()
    command = ("resume", str(folder / cell.name)) if begun else cell.command
    done = subprocess.run(
        [sys.executable, "-m", "cupola", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    outcome = "done" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
    return f"{cell.name}: {outcome}"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_curve(metrics: list[dict[str, Any]], path: Path) -> None:
    """One line an iteration: what the figures need, four digits."""
    costs = [key for key in metrics[0] if key.startswith(("cost/", "nu/", "limit/"))]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, *costs))
        for record in metrics:
            values = (record[key] for key in (*COLUMNS, *costs))
            writer.writerow(["" if v is None else f"{v:.5g}" if v % 1 else int(v) for v in values])


def read_curve(path: Path) -> dict[str, np.ndarray]:
    with path.open() as file:
        rows = list(csv.reader(file))
    numbers = np.array([[float(cell or "nan") for cell in row] for row in rows[1:]])
    return dict(zip(rows[0], numbers.T, strict=True))


def report(name: str, campaign: Campaign) -> None:
    """Table and figure from the committed curves alone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [
        f"# {name}",
        "",
        f"Made by `python experiments/campaign.py {name}`; curves in `results/{name}/`.",
        "Means over the last 50 iterations.",
        "",
        "| task | variant | seed | steps | return | costs (limit) | episode length |",
        "|---|---|---|---|---|---|---|",
    ]
    tasks = [task for task in campaign.tasks if any((RESULTS / name).glob(f"{task}-*.csv"))]
    # Many curves in one panel cannot be told apart.
    apart = len(campaign.variants) > max(2, len(tasks))
    by_seed = apart or len(campaign.variants) == 1
    count = max(1, len(tasks))
    rows, columns = (count, len(campaign.variants)) if apart else (1, count)
    width, height = (2.1, 2.0) if apart else (4.2, 3.0)
    figure, axes = plt.subplots(
        2 * rows,
        columns,
        figsize=(width * columns, 2 * height * rows),
        squeeze=False,
        sharex="col",
        sharey="row" if apart else "none",
    )
    for i, task in enumerate(tasks):
        for j, variant in enumerate(campaign.variants):
            panel = axes[2 * i : 2 * i + 2, j] if apart else axes[:, i]
            for seed in campaign.seeds:
                path = RESULTS / name / f"{task}-{variant}-{seed}.csv"
                if not path.exists():
                    continue
                curve = read_curve(path)
                lines.append(table_row(task, variant, seed, curve))
                draw(panel, curve, seed if by_seed else j, label=variant if seed == 0 else None)
            panel[0].set_title(f"{variant}, {task}" if apart else task, fontsize="medium")
            if j == 0:
                panel[0].set_ylabel("return")
                panel[1].set_ylabel("cost return; limit dashed")
            panel[1].set_xlabel("million steps")
    if len(campaign.variants) > 1 and not apart:
        axes[0, 0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")


def table_row(task: str, variant: str, seed: int, curve: dict[str, np.ndarray]) -> str:
    last = {key: np.nanmean(values[-50:]) for key, values in curve.items()}
    names = [key.removeprefix("cost/") for key in curve if key.startswith("cost/")]
    costs = ", ".join(f"{n} {last[f'cost/{n}']:.1f} ({last[f'limit/{n}']:g})" for n in names)
    steps = f"{curve['steps'][-1]:,.0f}"
    return (
        f"| {task} | {variant} | {seed} | {steps} | {last['return']:.1f} | {costs}"
        f" | {last['length']:.0f} |"
    )


def draw(axes: Any, curve: dict[str, np.ndarray], index: int, label: str | None) -> None:
    colours = (
        "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555", "#AAAA00",
    )  # fmt: skip
    steps = curve["steps"] / 1e6
    axes[0].plot(steps, curve["return"], color=colours[index], lw=1, alpha=0.8, label=label)
    for i, key in enumerate(k for k in curve if k.startswith("cost/")):
        colour = colours[(index + i) % len(colours)]
        axes[1].plot(steps, curve[key], color=colour, lw=1, alpha=0.8)
        limit = curve[key.replace("cost/", "limit/")][0]
        axes[1].axhline(limit, color="black", ls="--", lw=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one core each")
    parser.add_argument("--report", action="store_true", help="train nothing")
    args = parser.parse_args()
    campaign, folder = CAMPAIGNS[args.campaign], ROOT / "runs" / args.campaign
    cells = cells_of(campaign, folder)
    if not args.report:
        with ThreadPoolExecutor(args.jobs) as pool:
            for line in pool.map(lambda cell: run(cell, folder), cells):
                print(line, flush=True)
    for cell in cells:
        metrics = read_metrics(folder / cell.name / "metrics.jsonl")
        if metrics:
            write_curve(metrics, RESULTS / args.campaign / f"{cell.name}.csv")
    report(args.campaign, campaign)


if __name__ == "__main__":
    main()
