"""What a report says of a study: which settings are best, which fields mattered, every trial."""

from __future__ import annotations

import dataclasses
from typing import Any

from cupola.naming import counted, text_of
from cupola.reports.formats import MARK, Entry, Table, Value, format_number
from cupola.reports.results import Results
from cupola.tuning.record import Known
from cupola.tuning.trials import Trial, best, ranked

SHOWN = 10
"""Trials whose curves a report draws."""


def study_tables(study: Known) -> list[Table]:
    return [settings(study), trials(study)]


def best_trials(results: Results, study: Known) -> Results:
    """The runs of the best trials: all of them would hide each other."""
    chosen = [trial.number for trial in ranked(study.trials)[:SHOWN]]
    runs = [run for run in results.runs if run.point.get("trial") in chosen]
    runs.sort(key=lambda run: chosen.index(run.point["trial"]))
    return dataclasses.replace(results, runs=runs)


def settings(study: Known) -> Table:
    """The fields of the space."""
    found = best(study.trials)
    rows = []
    space: dict[str, Any] = study.asked["space"]
    fields = sorted(space, key=lambda field: -study.importances.get(field, 0.0))
    for field in fields:
        share = study.importances.get(field)
        value = shown(found.values.get(field)) if found else "-"
        importance = Entry("-") if share is None else Entry(float(share), share=True)
        rows.append(
            [Entry(field), Entry(value, bold=True), Entry(searched(space[field])), importance]
        )
    which = f"Best: trial {found.number}." if found else "No trial was feasible."
    note = (
        f"{which} Importance (PED-ANOVA): how much a field decides whether a trial is among the"
        " best quarter, feasible ones first; the sum is 1. Few trials say little."
    )
    return Table(
        "settings",
        "Best feasible settings",
        ["field", "best", "searched", "importance"],
        rows,
        note,
    )


def searched(found: Any) -> str:
    if isinstance(found, dict) and {"low", "high"} <= found.keys():
        scale = ", logarithmic" if found.get("log") else ""
        return f"{text_of(found['low'])} to {text_of(found['high'])}{scale}"
    return ", ".join(map(text_of, found)) if isinstance(found, list) else text_of(found)


def shown(value: Any) -> Value:
    """Numbers as numbers: tables round them and stand them right."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else text_of(value)


def trials(study: Known) -> Table:
    """All of them, the best first."""
    order, found = ranked(study.trials), best(study.trials)
    fields = list(study.asked["space"])
    limits = next((t.outcome.limits for t in order if t.outcome and t.outcome.limits), {})
    columns = ["trial", "state", "return"]
    columns += [f"{name} (limit {format_number(limit)})" for name, limit in limits.items()]
    rows = [row(trial, list(limits), fields, trial is found) for trial in order]
    seeds = counted(len(study.asked["seeds"]), "seed")
    note = (
        f"The best first. Means over {seeds} of the last tenth of the iterations; of a pruned"
        f" trial, up to where it was ended. {MARK} a cost above its limit. The parts below show the"
        f" best {SHOWN} trials."
    )
    return Table("trials", "Trials", [*columns, *fields, "reason"], rows, note)


def row(trial: Trial, costs: list[str], fields: list[str], is_best: bool) -> list[Entry]:
    outcome = trial.outcome
    assert outcome is not None
    score = "-" if outcome.mean_return is None else outcome.mean_return
    entries = [Entry(trial.number), Entry(outcome.state), Entry(score, bold=is_best)]
    for name in costs:
        cost, limit = outcome.costs.get(name), outcome.limits.get(name)
        above = cost is not None and limit is not None and cost > limit
        entries.append(Entry("-" if cost is None else cost, infeasible=above))
    entries += [Entry(shown(trial.values.get(field)), bold=is_best) for field in fields]
    return [*entries, Entry(outcome.reason)]
