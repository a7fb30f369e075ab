"""What `cupola theory` finds out, as values: a JSON record, counter-examples and figures."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cupola.errors import CupolaError
from cupola.theory import counterexample, exact, figures, lp, study
from cupola.theory.study import Progress, Race, Study
from cupola.version import __version__

Record: TypeAlias = dict[str, Any]

SPARSE_SHARE = 4
"""One sparse case for so many dense ones."""
RACES = ((3, 2, 1), (5, 3, 1), (8, 4, 1), (6, 3, 3))
"""States, actions and costs of the CMDPs that exact CUP is run on."""
RACE_SIZE = 25
LAMBDA = 0.9
"""Of the one race that weights states by d^lambda with lambda > 0."""
BINS = 10
DISTANCE = "mean D_TV of the two policies"


class Report(NamedTuple):
    """Everything, ready to be written."""

    record: Record  # theory.json
    counterexamples: list[Record]  # counterexamples.json
    figures: dict[str, bytes]  # PNG by file name


def make(cases: int, seed: int, progress: Progress) -> Report:
    """Test every claim on ``cases`` dense cases and a quarter as many sparse ones."""
    if cases < 1:
        raise CupolaError(f"cases must be at least 1, not {cases}.")
    if seed < 0:
        raise CupolaError(f"seed must not be negative, not {seed}.")
    streams = [np.random.default_rng([seed, i]) for i in range(4)]
    dense = study.run(streams[0], cases, False, progress)
    sparse = study.run(streams[1], max(1, cases // SPARSE_SHARE), True, progress)
    found = []
    for i, name in enumerate(counterexample.CLAIMS):
        found.append(counterexample.search(name))
        progress("counter-examples", i + 1, len(counterexample.CLAIMS))
    races = []
    for i, (states, actions, costs) in enumerate(RACES):
        races.append(study.race(streams[2], RACE_SIZE, states, actions, costs))
        progress("exact CUP against the linear programme", i + 1, len(RACES))
    biased = study.race(streams[3], RACE_SIZE, *RACES[1], lam=LAMBDA)
    by_lambda, by_distance = curves(dense, "lambda"), curves(dense, "distance")
    record = {
        "cupola": __version__,
        "cases": cases,
        "seed": seed,
        "identity_worst_relative_error": float(max(dense.identity.max(), sparse.identity.max())),
        "dense": study.summary(dense),
        "sparse": study.summary(sparse),
        "exact_cup": [race_record(race) for race in races],
        "exact_cup_lambda": {"lambda": LAMBDA, **race_record(biased)},
        "tightness_by_lambda": by_lambda,
        "tightness_by_distance": by_distance,
    }
    single = [race for race in races if race.cmdp.limits.shape[1] == 1]
    pictures = {
        "tightness-lambda.png": figures.tightness(by_lambda, "lambda"),
        "tightness-distance.png": figures.tightness(by_distance, DISTANCE),
        "exact-cup.png": figures.paths(single),
    }
    return Report(record, found, pictures)


def curves(data: Study, axis: Literal["lambda", "distance"]) -> Record:
    """Median tightness of every claim in bins of lambda or of the policies' distance."""
    found = {}
    for (claim, version), measured in data.claims.items():
        where = data.lam if axis == "lambda" else measured.distance
        edges = np.unique(np.quantile(where, np.linspace(0, 1, BINS + 1)))
        index = np.searchsorted(edges[1:-1], where, side="right")
        bins = [index == b for b in range(len(edges) - 1)]
        found[f"{claim} | {version}"] = {
            "x": [float(np.median(where[chosen])) for chosen in bins],
            "median": [study.middle(measured.tightness[chosen]) for chosen in bins],
        }
    return found


def race_record(race: Race) -> Record:
    """Exact CUP's last policies against the optima, and the optima's complementary slackness."""
    cmdp = race.cmdp
    return {
        "cmdps": len(race.optima),
        "states": cmdp.states,
        "actions": cmdp.actions,
        "costs": cmdp.limits.shape[1],
        "iterations": len(race.path.returns) - 1,
        "solved": int(((np.abs(race.gap[-1]) < 0.01) & (race.violation[-1] < 1e-3)).sum()),
        "worst_gap": float(np.abs(race.gap[-1]).max()),
        "median_gap": float(np.median(np.abs(race.gap[-1]))),
        "worst_violation": float(race.violation[-1].max()),
        "worst_slackness": max(
            slackness(cmdp.case(i), optimum) for i, optimum in enumerate(race.optima)
        ),
    }


def slackness(cmdp: Any, optimum: lp.Optimum) -> float:
    """Largest product of a multiplier and its slack, and of an occupancy and its reduced reward."""
    weighted = exact.expected(cmdp, cmdp.reward) - np.einsum(
        "k,ksa->sa", optimum.multipliers, np.array([exact.expected(cmdp, c) for c in cmdp.costs])
    )
    ahead = cmdp.gamma * np.einsum("sat,t->sa", cmdp.transitions, optimum.values)
    reduced = optimum.values[:, None] - weighted - ahead  # >= 0, and 0 where an action is taken
    slack = optimum.multipliers * (cmdp.limits - optimum.costs)
    return float(max(np.abs(slack).max(), np.abs(optimum.occupancy * reduced).max()))
