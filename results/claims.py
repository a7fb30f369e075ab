"""The paper's claims, each with a verdict that is computed from the data.

A claim about CUP is asked twice, of the paper's settings (`cup-paper`) and of cupola's default
(`cup`), on every task that it speaks of. It

- holds, where it is true of the paper's settings on all of them;
- holds only with our changes, where that fails and it is true of the default on all of them;
- does not hold, where both fail;
- is not yet known otherwise: a task counts as open until all of its seeds are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np

from cupola.reports import statistics
from cupola.reports.formats import format_number
from cupola.reports.results import RunResult
from cupola.reports.tables import is_feasible, mean
from cupola.steadiness import MEAN_ABOVE, verdict
from results.sources import (
    BASELINES,
    COMMITTED,
    NAMES,
    ROBOTS,
    SAFETY_GYM,
    Data,
    cost_of,
    final_cost,
    final_return,
    limit_of,
)
from results.tables import name_of

Word = Literal["holds", "only with our changes", "does not hold", "not yet known"]
Outcomes = dict[str, bool | None]
"""By what a claim speaks of, mostly tasks; None where that is open."""

STABLE = 0.8
"""Returns are stable over a setting where the lowest mean is this share of the highest."""
CUP = ("cup-paper", "cup")


class Answer(NamedTuple):
    word: Word
    why: str


class Claim(NamedTuple):
    text: str
    place: str
    """In the paper."""
    data: str
    """Where the numbers are, as a link."""
    answer: Callable[[Data], Answer]


# --- From outcomes to a verdict ---


def settled(outcomes: Outcomes) -> bool | None:
    """False where one is, open where one is, else true."""
    if any(value is False for value in outcomes.values()):
        return False
    return None if None in outcomes.values() or not outcomes else True


def of_both(published: Outcomes, default: Outcomes) -> Answer:
    words: dict[tuple[bool | None, bool | None], Word] = {
        (False, True): "only with our changes",
        (False, False): "does not hold",
    }
    of_paper = settled(published)
    word: Word = "holds" if of_paper else words.get((of_paper, settled(default)), "not yet known")
    return Answer(word, f"paper's settings ({told(published)}); default ({told(default)})")


def of_one(outcomes: Outcomes) -> Answer:
    words: dict[bool | None, Word] = {True: "holds", False: "does not hold", None: "not yet known"}
    return Answer(words[settled(outcomes)], told(outcomes))


def told(outcomes: Outcomes) -> str:
    """`yes: A, B; no: C; open: 2 of 5`."""
    known = {
        word: ", ".join(key for key, value in outcomes.items() if value is found)
        for word, found in (("yes", True), ("no", False))
    }
    parts = [f"{word}: {names}" for word, names in known.items() if names]
    waiting = sum(value is None for value in outcomes.values())
    if waiting or not outcomes:
        parts.append(f"open: {waiting} of {len(outcomes)}" if outcomes else "open")
    return "; ".join(parts)


# --- What is asked of the seeds of an algorithm on a task ---


def holds_limit(runs: list[RunResult]) -> bool:
    """The mean cost over the seeds is at most 2 % above the limit."""
    return final_cost(runs) <= (1 + MEAN_ABOVE) * runs[0].limits[cost_of(runs[0])]


def is_steady(runs: list[RunResult]) -> bool:
    return all(verdict(run.steadiness(cost_of(run))) == "held" for run in runs)


def on_tasks(tasks: Iterable[str], test: Callable[[Data, str, str], bool | None]) -> Claimed:
    """A claim about CUP on tasks; those on which a variant is not planned are left out."""

    def answer(data: Data) -> Answer:
        outcomes = [
            {
                task: test(data, task, label) if data.complete(task, label) else None
                for task in tasks
                if data.wanted(task, label)
            }
            for label in CUP
        ]
        return of_both(*outcomes)

    return answer


Claimed = Callable[[Data], Answer]


def safe(data: Data, task: str, label: str) -> bool:
    return holds_limit(data.runs(task, label))


def steady(data: Data, task: str, label: str) -> bool:
    return is_steady(data.runs(task, label))


def reaches_the_return(data: Data, task: str, label: str) -> bool:
    """Within the limit, and the paper's return is not above the interval of ours."""
    runs, published = data.runs(task, label), data.of("paper", task, label)
    assert published is not None
    found = mean([run.final("return") for run in runs])
    best = found.value if np.isnan(found.high) else found.high
    return holds_limit(runs) and best >= published.mean_return


def is_best(data: Data, task: str, label: str) -> bool | None:
    """Within the limit, and no baseline within it has as high a return.

    The paper's CUP is compared with the paper's baselines, the default also with those that share
    its changes.
    """
    rivals = BASELINES if label == "cup-paper" else [n for n in NAMES if not n.startswith("cup")]
    rivals = [other for other in rivals if data.wanted(task, other)]
    if not rivals or not all(data.complete(task, other) for other in rivals):
        return None
    runs = data.runs(task, label)
    others = [data.runs(task, other) for other in rivals]
    bar = max((final_return(other) for other in others if is_feasible(other)), default=-np.inf)
    return holds_limit(runs) and final_return(runs) > bar


def is_first_feasible(data: Data, task: str, label: str) -> bool | None:
    """Fewer steps to the first feasible iteration than any baseline, by medians over seeds."""
    if not all(data.complete(task, other) for other in BASELINES):
        return None
    mine, *others = (
        statistics.median([run.first_feasible for run in data.runs(task, one)])
        for one in (label, *BASELINES)
    )
    return mine < min(others)


def rests(data: Data, task: str, label: str) -> bool:
    """The multiplier is 0 in most iterations."""
    shares = [np.mean(r.curves[f"nu/{cost_of(r)}"] == 0) for r in data.runs(task, label)]
    return bool(np.mean(shares) > 0.5)


# --- Claims with a shape of their own ---


def learn_safely_on_the_ant(data: Data) -> Answer:
    expected = {"cup-paper": True, "focops": True, "cpo": False, "trpo_lag": False}
    return of_one(
        {
            f"{NAMES[label]} {'within' if holds else 'above'} the limit": (
                holds_limit(data.runs("AntSpeed", label)) == holds
                if data.complete("AntSpeed", label)
                else None
            )
            for label, holds in expected.items()
        }
    )


def baselines_violate_on_the_swimmer(data: Data) -> Answer:
    task = "SwimmerSpeed"
    return of_one(
        {
            name: not holds_limit(data.runs(task, one)) if data.complete(task, one) else None
            for one, name in BASELINES.items()
        }
    )


def own_table_of_safety_gym(data: Data) -> Answer:
    """What the paper's own numbers say."""
    costs = {task: data.of("paper", task, "cup") for task in SAFETY_GYM}
    return of_one({task: one.cost <= limit_of(task) for task, one in costs.items() if one})


def over_a_setting(name: str, by_point: bool) -> Claimed:
    """CUP is safe at every value; without ``by_point`` its return is also stable, task by task."""

    def outcomes(data: Data, label: str) -> Outcomes:
        runs = (
            [run for run in data.results[name].runs if run.finished] if name in data.results else []
        )
        by_name = {run.name: run for run in runs}
        found: Outcomes = {}
        cells = [cell for cell in data.experiments[name].cells if cell.label == label]
        groups: dict[str, dict[str, list[RunResult | None]]] = {}
        for cell in cells:
            (value,) = cell.point.values()
            group = groups.setdefault(format_number(value) if by_point else cell.task, {})
            group.setdefault(str(value), []).append(by_name.get(name_of(cell)))
        for key, points in groups.items():
            known = [[run for run in seeds if run] for seeds in points.values()]
            if any(None in seeds for seeds in points.values()):
                found[key] = None
                continue
            returns = [final_return(seeds) for seeds in known]
            stable = by_point or min(returns) >= STABLE * max(returns)
            found[key] = stable and all(map(holds_limit, known))
        return found

    return lambda data: of_both(outcomes(data, "cup-paper"), outcomes(data, "cup"))


def theory(*names: str) -> Claimed:
    """What `cupola theory` found on random CMDPs, as printed and corrected."""

    def answer(data: Data) -> Answer:
        record = json.loads((COMMITTED / "theory" / "theory.json").read_text())
        rows = [row for row in (*record["dense"], *record["sparse"]) if row["claim"] in names]
        count = {
            printed: (
                sum(row["violations"] for row in rows if (row["version"] == "printed") == printed),
                sum(row["cases"] for row in rows if (row["version"] == "printed") == printed),
            )
            for printed in (True, False)
        }
        (failed, cases), (other, others) = count[True], count[False]
        why = f"as printed it fails in {failed:,} of {cases:,} cases"
        if others:
            why += f", corrected in {f'{other:,}' if other else 'none'} of {others:,}"
        return Answer("does not hold" if failed else "holds", why)

    return answer


def identity(data: Data) -> Answer:
    record = json.loads((COMMITTED / "theory" / "theory.json").read_text())
    error = record["identity_worst_relative_error"]
    return Answer(
        "holds" if error < 1e-9 else "does not hold", f"to a relative error of {error:.0e}"
    )


_ROBOTS, _GYM = "[robots](#robots)", "[Safety Gym](#safety-gym)"
_SENSITIVITY, _THEORY = "[sensitivity](#sensitivity)", "[theory](../docs/theory.md)"

CLAIMS = (
    Claim("CUP holds the limit on the five robots.", "Table 1", _ROBOTS, on_tasks(ROBOTS, safe)),
    Claim(
        "Its cost coincides with the limit, quickly and steadily (here: every seed holds it"
        " [steadily](../docs/experiments.md#the-statistics)).",
        "Section 5.1",
        _ROBOTS,
        on_tasks(ROBOTS, steady),
    ),
    Claim(
        "It has the returns of Table 1 within the limit.",
        "Table 1",
        _ROBOTS,
        on_tasks(ROBOTS, reaches_the_return),
    ),
    Claim(
        "It has higher returns than the baselines that hold the limit.",
        "Section 5.1",
        _ROBOTS,
        on_tasks(ROBOTS, is_best),
    ),
    Claim(
        "On the Ant FOCOPS and CUP learn safely, CPO and TRPO-L violate the limit.",
        "Section 5.1",
        _ROBOTS,
        learn_safely_on_the_ant,
    ),
    Claim(
        "On the Swimmer all five baselines violate the limit.",
        "Table 1",
        _ROBOTS,
        baselines_violate_on_the_swimmer,
    ),
    Claim(
        "On HumanoidCircle CUP is feasible earlier than the baselines.",
        "Section 5.1",
        _ROBOTS,
        on_tasks(("HumanoidCircle",), is_first_feasible),
    ),
    Claim(
        "CUP holds the limit on Safety Gym: the paper's own numbers.",
        "Appendix, Safety Gym table",
        _GYM,
        own_table_of_safety_gym,
    ),
    Claim(
        "CUP holds the limit on Safety Gym: retrained.",
        "Section 5",
        _GYM,
        on_tasks(SAFETY_GYM, safe),
    ),
    Claim(
        "It has the returns of the Safety Gym table within the limit.",
        "Appendix, Safety Gym table",
        _GYM,
        on_tasks(SAFETY_GYM, reaches_the_return),
    ),
    Claim(
        "It has higher returns than the baselines that hold the limit, but on CarGoal1 (asked of"
        " PointGoal1, where baselines are planned).",
        "Appendix, discussions",
        _GYM,
        on_tasks(("PointGoal1",), is_best),
    ),
    Claim(
        "The multiplier rests at 0 for most of the training of Ant, Humanoid and Hopper.",
        "Section 5.2, Figure (a)",
        _ROBOTS,
        on_tasks(("AntSpeed", "HumanoidSpeed", "HopperSpeed"), rests),
    ),
    Claim(
        "Return and cost are stable for different alpha.",
        "Section 5.2, Figure (b)",
        _SENSITIVITY,
        over_a_setting("sensitivity-alpha", by_point=False),
    ),
    Claim(
        "CUP is safe at each of five cost limits.",
        "Section 5.2, Figure (c)",
        _SENSITIVITY,
        over_a_setting("sensitivity-limit", by_point=True),
    ),
    Claim(
        "Return and cost are stable for different epsilon.",
        "Appendix, discussions",
        _SENSITIVITY,
        over_a_setting("sensitivity-epsilon", by_point=False),
    ),
    Claim("The identity of lambda-returns.", "Section 3", _THEORY, identity),
    Claim("The lemma on the distance of two d^lambda.", "Section 3", _THEORY, theory("Lemma")),
    Claim(
        "Theorem 1, the bounds with GAE.",
        "Section 3",
        _THEORY,
        theory("Theorem 1 (1, inf)", "Theorem 1 (2, 2)", "Theorem 1 (3, 1.5)"),
    ),
    Claim(
        "Propositions 1 to 3.",
        "Section 3",
        _THEORY,
        theory(
            "Proposition 1",
            "Proposition 2",
            "Proposition 3, TV-KL",
            "Proposition 3 (of 1)",
            "Proposition 3 (of 2)",
        ),
    ),
    Claim(
        "Theorem 2, the bounds on return and cost of an update.",
        "Section 4",
        _THEORY,
        theory("Theorem 2, return", "Theorem 2, cost"),
    ),
)


def table(data: Data) -> str:
    lines = ["| claim | in the paper | verdict | because | data |", "|---|---|---|---|---|"]
    for claim in CLAIMS:
        word, why = claim.answer(data)
        lines.append(f"| {claim.text} | {claim.place} | **{word}** | {why} | {claim.data} |")
    return "\n".join(lines)
