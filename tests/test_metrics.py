"""A line of metrics.jsonl from arrays."""

from __future__ import annotations

import numpy as np

from cupola.episodes import Estimates, Finished
from cupola.metrics import metrics_record
from cupola.types import Problem

PROBLEM = Problem(2, 1, ("speed", "effort"), (5.0, 1.0), (True, False))
TWO = Finished(
    returns=np.array([1.0, 3.0]),
    lengths=np.array([4, 6]),
    costs=np.array([[2.0, 10.0], [4.0, 20.0]]),
    discounted_costs=np.array([[1.0, 9.0], [2.0, 19.0]]),
)
NONE = Finished(*(column[:0] for column in TWO))


def test_costs_are_in_the_convention_of_their_limits():
    estimates = Estimates(PROBLEM.discounted, 0.9, 0)
    estimates.absorb(TWO)
    update = {"kl": np.float32(0.5), "epochs": np.int32(3), "nu": np.array([0.25, 0.0])}
    assert metrics_record(PROBLEM, TWO, estimates, update) == {
        "episodes": 2,
        "length": 5.0,
        "return": 2.0,
        "cost/speed": 1.5,
        "cost_error/speed": 0.5,
        "cost_undiscounted/speed": 3.0,
        "limit/speed": 5.0,
        "cost/effort": 15.0,
        "cost_error/effort": 5.0,
        "cost_undiscounted/effort": 15.0,
        "limit/effort": 1.0,
        "kl": 0.5,
        "epochs": 3,
        "nu/speed": 0.25,
        "nu/effort": 0.0,
    }


def test_what_is_not_known_yet_is_null_and_what_was_known_stays():
    estimates = Estimates(PROBLEM.discounted, 0.9, 0)
    estimates.absorb(NONE)
    record = metrics_record(PROBLEM, NONE, estimates, {"change": np.array(np.nan)})
    unknown = ("length", "return", "cost/speed", "cost_undiscounted/effort", "change")
    unknown += ("cost_error/speed",)
    assert [record[key] for key in unknown] == [None] * 6
    estimates.absorb(TWO)
    later = metrics_record(PROBLEM, NONE, estimates, {})
    assert (later["episodes"], later["return"], later["cost/speed"]) == (0, 2.0, 1.5)
    assert later["cost_error/speed"] == 0.5
    assert later["cost_undiscounted/speed"] is None


def test_one_episode_has_an_estimate_and_no_error():
    estimates = Estimates(PROBLEM.discounted, 0.9, 0)
    one = Finished(*(column[:1] for column in TWO))
    estimates.absorb(one)
    record = metrics_record(PROBLEM, one, estimates, {})
    assert (record["cost/effort"], record["cost_error/effort"]) == (10.0, None)
