"""best.toml: the settings of a trial as an experiment file."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from cupola.output import visible
from cupola.reports.formats import format_number
from cupola.sweeps.cells import Fields
from cupola.tuning.study import Study
from cupola.tuning.trials import Trial


def best_file(study: Study, trial: Trial) -> str:
    """The experiment file that trains a trial's settings with as many seeds, but new ones."""
    base, outcome = study.base.cells[0], trial.outcome
    assert outcome is not None
    assert outcome.mean_return is not None
    seeds = [cell.seed for cell in study.base.cells]
    costs = "".join(
        f", {name} {format_number(cost)} <= {format_number(outcome.limits[name])}"
        for name, cost in outcome.costs.items()
    )
    variant = {"name": f"{base.label}-tuned", "algorithm": base.algo, **trial.values}
    shared = {
        field: value
        for field, value in base.fields.items()
        if field != "iterations" and field not in trial.values
    }
    lines = [
        f"# The best feasible settings of the study {study.name}: trial {trial.number}, return"
        f" {format_number(outcome.mean_return)}{visible(costs)}.",
        "# They were chosen by these numbers. What they are worth, new seeds tell: cupola sweep.",
        *assignments(
            {
                "name": f"{study.name}-best",
                "iterations": base.iterations,
                "algorithms": [variant],
                "tasks": [base.task],
                "seeds": list(range(max(seeds) + 1, max(seeds) + 1 + len(seeds))),
                "evaluation_episodes": study.base.evaluation_episodes,
            }
        ),
        "",
        "[shared]",
        *assignments(shared),
    ]
    return "\n".join(lines) + "\n"


def assignments(record: Fields) -> list[str]:
    return [f"{key_text(key)} = {toml_text(value)}" for key, value in record.items()]


def key_text(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def quoted(text: str) -> str:
    """JSON's texts are TOML's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_text(value: Any) -> str:
    """A value of a TOML file, in one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, dict):
        inside = ", ".join(assignments(value))
        return f"{{ {inside} }}" if inside else "{}"
    return str(value)
