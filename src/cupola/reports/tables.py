"""The tables of a report."""

from __future__ import annotations

import math

import numpy as np

from cupola.reports import statistics, steadiness_table
from cupola.reports.formats import MARK, Entry, Table, Value, format_number
from cupola.reports.results import Results, RunResult
from cupola.reports.statistics import Estimate, estimate
from cupola.steadiness import Steadiness, verdict


def all_tables(results: Results) -> list[Table]:
    return [
        summary(results),
        performance(results),
        steadiness_table.steadiness(results),
        safety(results),
        evaluation(results),
        aggregate(results),
        timings(results),
        runs(results),
    ]


def mean(values: list[float]) -> Estimate:
    return estimate([np.array(values)], statistics.mean)


def iqm(values: list[float]) -> Estimate:
    return estimate([np.array(values)], statistics.interquartile_mean)


def summary(results: Results) -> Table:
    """The form of the CUP paper's Table 1: tasks down, algorithms across."""
    rows: list[list[Entry]] = []
    for task in results.tasks:
        finished = {s: [r for r in results.group(task, s) if r.finished] for s in results.series}
        returns = {s: mean([r.final("return") for r in runs]) for s, runs in finished.items()}
        feasible = {s: is_feasible(runs) for s, runs in finished.items()}
        best = max(
            (returns[s].value for s in finished if finished[s] and feasible[s]), default=math.nan
        )
        entries = [
            Entry(
                returns[s] if finished[s] else "-",
                bold=bool(finished[s]) and feasible[s] and returns[s].value == best,
            )
            for s in results.series
        ]
        rows.append([Entry(task), Entry("return"), *entries])
        for cost in results.costs_of(task):
            limits = {
                r.limits[cost] for runs in finished.values() for r in runs if cost in r.limits
            }
            limit = " to ".join(
                dict.fromkeys(format_number(end(limits)) for end in (min, max) if limits)
            )
            line = [Entry(""), Entry(f"{cost} (limit {limit})" if limit else cost)]
            for s in results.series:
                mine = [run for run in finished[s] if cost in run.limits]
                value = mean([run.final(f"cost/{cost}") for run in mine])
                above = bool(mine) and value.value > mine[0].limits[cost]
                line.append(Entry(value if mine else "-", infeasible=above))
            rows += [line, *summary_of_steadiness(cost, list(finished.values()))]
    note = (
        "Means over seeds of the last tenth of the iterations, with 95 % bootstrap intervals."
        " Bold: the highest return among those whose mean costs are within all limits."
        f" {MARK} a cost above its limit. Deviation: the standard deviation of the cost over these"
        " iterations. Held: seeds that hold the limit steadily (see Steadiness)."
    )
    return Table("summary", "Return and cost", ["task", "", *results.series], rows, note)


def summary_of_steadiness(cost: str, groups: list[list[RunResult]]) -> list[list[Entry]]:
    """Deviation over iterations, and how many seeds hold the limit; a group for each column."""
    deviations, held = ([Entry(""), Entry(f"{cost}, {what}")] for what in ("deviation", "held"))
    for runs in groups:
        found = [run.steadiness(cost) for run in runs if cost in run.limits]
        deviations.append(Entry(mean([s.deviation for s in found]) if found else "-"))
        held.append(Entry(steadiness_table.seeds_that_hold(found) if found else "-"))
    return [deviations, held]


def is_feasible(runs: list[RunResult]) -> bool:
    """Whether the mean final costs are within all limits."""
    return bool(runs) and all(
        float(np.mean([run.final(f"cost/{cost}") for run in runs])) <= limit
        for cost, limit in runs[0].limits.items()
    )


def performance(results: Results) -> Table:
    columns = [
        *("task", "algorithm", "seeds", "return", "return, IQM", "lowest return", "its seed"),
        *("cost", "limit", "cost return", "cost return, IQM", "P(cost <= limit)"),
        *("highest cost", "its seed"),
    ]
    rows = []
    for task, series, all_runs, runs in results.groups():
        seeds = str(len(runs)) if len(runs) == len(all_runs) else f"{len(runs)} of {len(all_runs)}"
        if not runs:
            rows.append([Entry(task), Entry(series), Entry(seeds), *[Entry("-")] * 11])
            continue
        returns = [run.final("return") for run in runs]
        lowest = int(np.nanargmin(returns)) if np.isfinite(returns).any() else 0
        for cost in runs[0].costs or [""]:
            finals = [run.final(f"cost/{cost}") for run in runs]
            limit = runs[0].limits.get(cost, math.nan)
            highest = int(np.nanargmax(finals)) if np.isfinite(finals).any() else 0
            within = float(np.mean([value <= limit for value in finals]))
            rows.append(
                [
                    Entry(task),
                    Entry(series),
                    Entry(seeds),
                    Entry(mean(returns)),
                    Entry(iqm(returns)),
                    Entry(returns[lowest]),
                    Entry(runs[lowest].seed),
                    Entry(cost or "-"),
                    Entry(limit),
                    Entry(mean(finals), infeasible=mean(finals).value > limit),
                    Entry(iqm(finals), infeasible=iqm(finals).value > limit),
                    Entry(within),
                    Entry(finals[highest], infeasible=finals[highest] > limit),
                    Entry(runs[highest].seed),
                ]
            )
    note = (
        "Finished seeds only. IQM is the interquartile mean; intervals are 95 % bootstrap intervals"
        " over seeds. P(cost <= limit) is the share of the seeds whose final cost is within it."
    )
    return Table("performance", "Final performance", columns, rows, note)


def safety(results: Results) -> Table:
    columns = [
        *("task", "algorithm", "cost", "cumulative violation", "regret in cost"),
        *("steps to first feasible", "seeds that got there"),
    ]
    rows = []
    for task, series, _, runs in results.groups():
        for cost in runs[0].costs if runs else []:
            first = [run.first_feasible for run in runs]
            there = sum(math.isfinite(steps) for steps in first)
            rows.append(
                [
                    Entry(task),
                    Entry(series),
                    Entry(cost),
                    Entry(mean([run.violation(cost) for run in runs])),
                    Entry(mean([run.regret(cost) for run in runs])),
                    Entry(statistics.median(first)),
                    Entry(f"{there} of {len(runs)}"),
                ]
            )
    note = (
        "Over the whole training, J the cost return of an iteration and b its limit: cumulative"
        " violation is the sum over iterations of max(0, J - b), regret that of J - b, in which"
        " safe iterations make up for unsafe ones. First feasible: all costs within"
        " limits; median over seeds."
    )
    return Table("safety", "Safety during training", columns, rows, note)


def evaluation(results: Results) -> Table:
    columns = [
        *("task", "algorithm", "episodes", "cost", "limit", "return, sampled"),
        *("cost, sampled", "return, deterministic", "cost, deterministic"),
    ]
    rows = []
    for task, series, _, finished in results.groups():
        runs = [run for run in finished if run.result]
        for cost in runs[0].costs if runs else []:
            limit = runs[0].limits[cost]
            line = [Entry(task), Entry(series), Entry(runs[0].result["episodes"]), Entry(cost)]
            line.append(Entry(limit))
            for kind in ("sampled", "deterministic"):
                value = mean([run.evaluated(kind, cost) for run in runs])
                line.append(Entry(mean([run.evaluated(kind) for run in runs])))
                line.append(Entry(value, infeasible=value.value > limit))
            rows.append(line)
    note = (
        "The last policies on fresh episodes, with sampled actions as in training and with the"
        " Gaussian's mean. Means over seeds with 95 % bootstrap intervals."
    )
    return Table("evaluation", "Evaluation", columns, rows, note)


def aggregate(results: Results) -> Table:
    """All tasks of an algorithm together; the bootstrap is stratified by task."""
    columns = [
        *("algorithm", "tasks", "runs", "return on a common scale", "the same, IQM"),
        *("cost / limit", "the same, IQM", "P(all costs <= limits)"),
    ]
    scores: dict[str, dict[str, np.ndarray]] = {series: {} for series in results.series}
    for task in results.tasks:
        finals = {
            series: np.array([r.final("return") for r in results.group(task, series) if r.finished])
            for series in results.series
        }
        for series, values in statistics.normalised(finals).items():
            if len(values):
                scores[series][task] = values
    rows = []
    for series, by_task in scores.items():
        if not by_task:
            continue
        groups = {t: [r for r in results.group(t, series) if r.finished] for t in by_task}
        ratios = [np.array([cost_ratio(run) for run in runs]) for runs in groups.values()]
        safe = [np.mean([run.feasible for run in runs]) for runs in groups.values()]
        returns = list(by_task.values())
        rows.append(
            [
                Entry(series),
                Entry(len(by_task)),
                Entry(sum(len(runs) for runs in groups.values())),
                Entry(estimate(returns, statistics.mean)),
                Entry(estimate(returns, statistics.interquartile_mean)),
                Entry(estimate(ratios, statistics.mean)),
                Entry(estimate(ratios, statistics.interquartile_mean)),
                Entry(float(np.mean(safe))),
            ]
        )
    note = (
        "On the common scale 0 is the lowest and 1 the highest final return of any finished run on"
        " a task. cost / limit is that of the cost nearest to or furthest above its limit."
        " Intervals: 95 % bootstrap, the seeds of each task resampled among themselves."
    )
    return Table("aggregate", "All tasks together", columns, rows, note)


def cost_ratio(run: RunResult) -> float:
    """The largest of the final costs over their limits."""
    ratios = [run.final(f"cost/{name}") / limit for name, limit in run.limits.items() if limit > 0]
    return max(ratios, default=math.nan)


def timings(results: Results) -> Table:
    columns = [
        *("task", "algorithm", "steps/s", "seconds per iteration", "of it rollout"),
        "minutes per run",
    ]
    rows = []
    for task, series, _, runs in results.groups():
        timed = [run for run in runs if len(run.seconds)]
        if not timed:
            continue
        whole = np.concatenate([run.seconds for run in timed])
        rows.append(
            [
                Entry(task),
                Entry(series),
                Entry(float(np.median([run.steps_per_second for run in timed]))),
                Entry(float(np.median(whole.sum(axis=1)))),
                Entry(float(whole[:, 0].sum() / whole.sum())),
                Entry(float(np.mean([run.seconds.sum() / 60 for run in timed]))),
            ]
        )
    note = "Medians over the iterations and seeds; minutes and shares include compilation."
    return Table("timings", "Timings", columns, rows, note)


def runs(results: Results) -> Table:
    """One row per run, with everything that the other tables are made of."""
    costs = list(dict.fromkeys(name for run in results.runs for name in run.costs))
    lines = [run_values(run, costs) for run in results.runs]
    columns = [
        name
        for name in lines[0]
        if name not in IF_KNOWN or any(line[name] not in ("", "-") for line in lines)
    ]
    rows = [[Entry(line[name]) for name in columns] for line in lines]
    note = (
        "The last tenth of what there is, also of runs that are not finished; violation and regret"
        " over all of it."
    )
    return Table("runs", "Runs", columns, rows, note)


UNKNOWN = Steadiness(*[math.nan] * 6)

IF_KNOWN = ("return, sampled", "return, deterministic", "steps/s", "reason")
"""Columns that are left out where no run has them: a file of curves does not hold them."""


def run_values(run: RunResult, costs: list[str]) -> dict[str, Value]:
    """The values of a run by their columns; "-" where one is not known."""
    values: dict[str, Value] = {"run": run.name, "task": run.task, "algorithm": run.series}
    values |= {"seed": run.seed, "state": run.state, "iterations": run.iterations}
    values |= {"return": run.final("return"), "episode length": run.final("length")}
    for cost in costs:
        there = run.iterations > 0 and cost in run.limits
        held = run.steadiness(cost) if there else UNKNOWN
        values[cost] = held.mean
        values[f"{cost}, limit"] = held.limit
        values[f"{cost}, deviation"] = held.deviation
        values[f"{cost}, sampling error"] = held.error
        values[f"{cost}, share above 1.1 limit"] = held.share_above
        values[f"{cost}, verdict"] = verdict(held)
        values[f"{cost}, violation"] = held.violation
        values[f"{cost}, regret"] = run.regret(cost) if there else math.nan
    values |= {"steps to first feasible": run.first_feasible}
    values |= {"return, sampled": run.evaluated("sampled")}
    values |= {"return, deterministic": run.evaluated("deterministic")}
    values |= {"steps/s": run.steps_per_second, "reason": run.reason}
    return {key: "-" if value != value else value for key, value in values.items()}
