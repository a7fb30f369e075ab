"""Runs as a table for a file of trials: one row for each tenth of the iterations.

    .venv/bin/python experiments/tenths.py RUN... >> experiments/results/NAME-trials.csv

Columns: the run's name, task and seed; environment steps at the end of the tenth; means over it of
return, cost, multiplier, KL of both steps, length of the episodes and loss of the reward's critic,
and the standard deviation of the cost over its iterations; in the first row of a run, the settings
that differ from the default.
A run with several limits has such rows for each.
"""

import csv
import dataclasses
import itertools
import json
import sys
from pathlib import Path

import numpy as np

from cupola.algos import cup

COLUMNS = ("return", "cost", "deviation", "nu", "kl_improve", "kl_project", "length", "value_loss")


def rows(run: Path) -> list[list[str]]:
    config = json.loads((run / "config.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    several = len(config["limits"]) > 1
    size = max(1, config["iterations"] // 10)
    found = []
    for name, start in itertools.product(config["limits"], range(0, len(lines), size)):
        part = lines[start : start + size]
        costs = column(part, f"cost/{name}")
        means = [column(part, key).mean() for key in ("return", f"nu/{name}", "kl_improve")]
        others = [column(part, key).mean() for key in ("kl_project", "length", "value_loss")]
        numbers = [means[0], costs.mean(), costs.std(), *means[1:], *others]
        about = settings(config, len(lines)) if start == 0 else ""
        trial = f"{run.name} {name}" if several else run.name
        head = [trial, config["task"], config["seed"], part[-1]["steps"]]
        found.append([*head, *(f"{number:.4g}" for number in numbers), about])
    return found


def column(lines: list[dict[str, float]], key: str) -> np.ndarray:
    values = np.array([line[key] for line in lines], float)
    return values[~np.isnan(values)]


def settings(config: dict, iterations: int) -> str:
    """What differs from the default of today, and whether the run was stopped early."""
    default = dataclasses.asdict(cup.Config())
    changed = [
        f"{key} {value}"
        for key, value in config["algorithm"].items()
        if value != json.loads(json.dumps(default.get(key)))
    ]
    stopped = [f"stopped, of {config['iterations']}"] if iterations < config["iterations"] else []
    return ", ".join(changed + stopped) or "the default"


if __name__ == "__main__":
    writer = csv.writer(sys.stdout)
    writer.writerow(("trial", "task", "seed", "steps", *COLUMNS, "settings"))
    for path in sys.argv[1:]:
        writer.writerows(rows(Path(path)))
