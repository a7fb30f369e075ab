"""What Optuna is asked, on functions whose answer is known."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.sweeps.cells import Fields
from cupola.sweeps.pruning import Level, is_below, level, marks, pruner
from cupola.tuning.sampler import importances, propose
from cupola.tuning.space import Choice, Range, Space
from cupola.tuning.trials import Outcome, Trial, bars_of, best, ranked

SPACE: Space = {
    "x": Range(0.0, 1.0, log=False, whole=False),
    "y": Range(1e-4, 1.0, log=True, whole=False),
    "n": Range(1, 9, log=False, whole=True),
    "kind": Choice(("a", [1, 2], True, 1)),
}


def outcome(value: float, cost: float = 0.0, limit: float = 1.0, **more: object) -> Outcome:
    return Outcome("finished", "", value, {"cost": cost}, {"cost": limit}, **more)


def tried(values: list[Fields], judge: object) -> list[Trial]:
    return [Trial(i, one, (), judge(one)) for i, one in enumerate(values)]


def sampled(count: int) -> list[Fields]:
    """Random values."""
    return [propose(SPACE, [], number) for number in range(count)]


def test_proposals_are_in_the_space_and_follow_from_what_is_known() -> None:
    values = sampled(30)
    for one in values:
        assert one.keys() == SPACE.keys()
        assert all(SPACE[field].holds(value) for field, value in one.items())
        assert type(one["n"]) is int
    assert len({str(one) for one in values}) == 30
    trials = tried(values, lambda one: outcome(one["x"]))
    assert propose(SPACE, trials, 30) == propose(SPACE, trials, 30)
    assert propose(SPACE, trials, 30) != propose(SPACE, trials[:15], 30)


@pytest.mark.parametrize("limit", [1.0, 0.0])
def test_proposals_keep_away_from_what_was_infeasible(limit: float) -> None:
    """Returns grow with x, but so does the cost, whose limit is met up to a half."""
    trials = tried(sampled(40), lambda one: outcome(one["x"], one["x"] - 0.5 + limit, limit))
    found = [propose(SPACE, trials, number)["x"] for number in range(40, 60)]
    free = tried(sampled(40), lambda one: outcome(one["x"], 0.0, limit))
    unlimited = [propose(SPACE, free, number)["x"] for number in range(40, 60)]
    assert 0.3 < np.median(found) <= 0.55
    assert np.median(unlimited) > 0.8


def test_proposals_keep_away_from_what_failed() -> None:
    """Also where returns would be highest."""
    trials = tried(
        sampled(40),
        lambda one: Outcome("failed", "not finite") if one["x"] > 0.5 else outcome(one["x"]),
    )
    found = [propose(SPACE, trials, number)["x"] for number in range(40, 60)]
    assert 0.3 < np.median(found) <= 0.55


def test_proposals_keep_away_from_what_was_pruned() -> None:
    """Also where all that finished is infeasible, and what was pruned had no costs yet."""

    def judge(one: Fields) -> Outcome:
        if one["x"] > 0.5:
            reached = (Level(30, 0.0, 1.0),)
            return Outcome("pruned", "", 1.0, {"cost": 0.0}, {"cost": 1.0}, reached)
        return outcome(1.0, 3.0 - one["x"])

    trials = tried(sampled(40), judge)
    found = [propose(SPACE, trials, number)["x"] for number in range(40, 60)]
    assert 0.3 < np.median(found) <= 0.55


def test_running_trials_are_told() -> None:
    """Two that are chosen together are not the same."""
    trials = tried(sampled(40), lambda one: outcome(one["x"]))
    running = Trial(40, propose(SPACE, trials, 41))
    assert propose(SPACE, [*trials, running], 41) != running.values


def test_importances_are_of_the_field_that_decides() -> None:
    """x decides the return of feasible trials, and the rest nothing; then y the feasibility."""
    values = sampled(150)
    by_return = importances(SPACE, tried(values, lambda one: outcome(one["x"])))
    assert next(iter(by_return)) == "x"
    assert by_return["x"] > 0.6
    assert sum(by_return.values()) == pytest.approx(1)
    by_limit = importances(
        SPACE, tried(values, lambda one: outcome(1.0, -math.log10(one["y"]) / 4, 0.1))
    )
    assert next(iter(by_limit)) == "y"
    assert by_limit["y"] > 0.6
    assert importances(SPACE, tried(values[:7], lambda one: outcome(1.0))) == {}


def test_without_optuna_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(CupolaError, match=r"pip install 'cupola\[tune\]'"):
        propose(SPACE, [], 0)


def test_the_order_of_trials() -> None:
    """Finished before pruned before failed; feasible first, then the return, then the number."""
    outcomes = [
        outcome(9.0, 1.2),
        outcome(5.0, 1.0),
        Outcome("failed", "no memory"),
        outcome(7.0, 0.9),
        Outcome("pruned", "", 99.0, {"cost": 0.0}, {"cost": 1.0}),
        outcome(7.0, 0.1),
        outcome(8.0, 1.1),
    ]
    trials = [Trial(i, {}, (), one) for i, one in enumerate(outcomes)] + [Trial(7, {})]
    assert [trial.number for trial in ranked(trials)] == [3, 5, 1, 6, 0, 4, 2]
    found = best(trials)
    assert found is not None
    assert found.number == 3
    assert best([trials[0], trials[2], trials[4]]) is None


def curve(returns: list[float], costs: list[float | None], limit: float = 1.0) -> list[dict]:
    return [
        {"iteration": i, "return": value, "cost/c": cost, "limit/c": limit}
        for i, (value, cost) in enumerate(zip(returns, costs, strict=True), 1)
    ]


def test_a_level_is_the_mean_of_a_tenth_over_seeds() -> None:
    """By hand: 20 iterations, so means of two; 10 % above the limit are forgiven."""
    first = curve([float(i) for i in range(20)], [1.0 + i for i in range(20)], limit=2.0)
    second = curve([10.0] * 20, [0.0] * 20, limit=2.0)
    assert marks(20) == [6, 8, 10, 12, 14, 16, 18]
    assert marks(9) == []
    assert level([first], 6, 20) == Level(6, pytest.approx(5.5 / 2 - 1 - 0.1), 4.5)
    assert level([first, second], 6, 20) == Level(6, pytest.approx(5.5 / 4 - 1 - 0.1), 7.25)
    assert level([first, second[:5]], 6, 20) == level([first], 6, 20)
    assert level([second[:5]], 6, 20) is None
    unknown = curve([1.0] * 20, [None] * 20)
    assert level([unknown], 6, 20) is None


def test_bars_are_what_three_quarters_of_the_trials_reached() -> None:
    def trial(number: int, violation: float, value: float, state: str = "finished") -> Trial:
        levels = (Level(6, violation, value),)
        return Trial(number, {}, (), Outcome(state, "", value, {}, {}, levels))

    trials = [trial(0, 0, 1), trial(1, 0, 5), trial(2, 0.2, 9), trial(3, 0, 3)]
    assert bars_of(trials, 20) == ()
    assert bars_of([*trials, Trial(4, {}, (), Outcome("failed"))], 20) == ()
    assert bars_of([*trials, trial(4, 0, 0, "pruned")], 20) == (Level(6, 0, 0),)
    assert bars_of([*trials, trial(4, 0, 4)], 20) == (Level(6, 0, 1),)
    assert bars_of([*trials, trial(4, 0, 4), trial(5, 0, 6)], 20) == (Level(6, 0, 1),)
    assert bars_of([*trials, *(trial(i, 0, 0.5) for i in range(4, 8))], 20) == (Level(6, 0, 0.5),)


@pytest.mark.parametrize(
    ("value", "cost", "ends"),
    [(3.0, 1.0, False), (2.9, 1.0, True), (9.0, 1.09, False), (9.0, 1.2, True), (3.1, 0.0, False)],
)
def test_a_run_below_its_bar_ends(value: float, cost: float, ends: bool) -> None:
    bar = Level(6, 0.0, 3.0)
    assert is_below(curve([value] * 6, [cost] * 6), bar, 20) == ends
    assert not is_below(curve([value] * 6, [cost] * 6), Level(6, 5.0, 99.0), 20)


def test_a_run_without_bars_has_no_listener(tmp_path) -> None:
    assert pruner(tmp_path, (), 20) is None
