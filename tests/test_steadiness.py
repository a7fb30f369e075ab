"""Steadiness against numbers by hand, closed forms, and simulated estimates of a known cost."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cupola.steadiness import (
    Steadiness,
    cumulative_violation,
    final,
    last_tenth,
    measure,
    verdict,
)

NAN = math.nan


def test_final_is_the_mean_of_the_last_tenth() -> None:
    assert final(np.arange(1.0, 101.0)) == pytest.approx(95.5)
    assert final(np.array([3.0, 7.0])) == 7.0
    assert final(np.array([*range(18), 1.0, NAN])) == 1.0
    assert math.isnan(final(np.array([1.0, NAN])))
    assert [len(last_tenth(np.zeros(n))) for n in (1, 19, 20, 29, 500)] == [1, 1, 2, 2, 50]


def test_cumulative_violation() -> None:
    assert cumulative_violation(np.array([NAN, 5.0, 1.0, 4.0]), 3.0) == 2.0 + 1.0


def test_by_hand() -> None:
    """Forty iterations; the last four cost 8, 10, 12 and 10, the ones before 13, 9, 9, ..."""
    costs = np.array([13.0, *[9.0] * 35, 8.0, 10.0, 12.0, 10.0])
    errors = np.array([50.0, *[NAN] * 35, 1.0, NAN, 3.0, 2.0])
    found = measure(costs, errors, 10.0)
    assert found.limit == 10.0
    assert found.mean == 10.0
    assert found.deviation == pytest.approx(math.sqrt((4 + 0 + 4 + 0) / 3))
    assert found.error == pytest.approx(math.sqrt((1 + 9 + 4) / 3))
    assert found.share_above == 0.25  # 12 > 11
    assert found.violation == 3.0 + 2.0


def test_a_swing_of_equal_height() -> None:
    """b + a and b - a in turn, n times: the deviation is a sqrt(n / (n - 1))."""
    limit, height, count = 25.0, 4.0, 50
    costs = limit + height * np.tile([1.0, -1.0], 5 * count)
    found = measure(costs, np.full(10 * count, 1.0), limit)
    assert found.mean == pytest.approx(limit)
    assert found.deviation == pytest.approx(height * math.sqrt(count / (count - 1)))
    assert found.error == pytest.approx(1.0)
    assert found.share_above == 0.5  # 29 > 27.5
    assert found.violation == pytest.approx(5 * count * height)
    assert verdict(found) == "held on average"


def test_what_is_not_known() -> None:
    unknown = np.full(30, NAN)
    found = measure(unknown, unknown, 5.0)
    assert [math.isnan(value) for value in found] == [False, *[True] * 4, False]
    assert (found.violation, verdict(found)) == (0.0, "-")
    assert verdict(measure(np.zeros(0), np.zeros(0), 5.0)) == "-"
    once = measure(np.array([1.0]), np.array([0.1]), 5.0)
    assert math.isnan(once.deviation)
    assert (once.mean, once.share_above, verdict(once)) == (1.0, 0.0, "held on average")


VERDICTS = {
    "quiet": ((100.0, 100.0, 1.0, 1.0, 0.0), "held"),
    "2 % above": ((100.0, 102.0, 1.0, 1.0, 0.0), "held"),
    "more than that": ((100.0, 102.1, 1.0, 1.0, 0.0), "exceeded"),
    "8 % deviation": ((100.0, 90.0, 8.0, 0.0, 0.0), "held"),
    "9 % deviation": ((100.0, 90.0, 9.0, 1.0, 0.0), "held on average"),
    "as the samples": ((100.0, 90.0, 15.0, 10.0, 0.05), "held"),
    "a bit more": ((100.0, 90.0, 15.1, 10.0, 0.05), "held on average"),
    "too often": ((100.0, 90.0, 1.0, 1.0, 0.06), "held on average"),
    "no errors": ((100.0, 90.0, 8.0, NAN, 0.0), "held"),
    "no errors, 9 %": ((100.0, 90.0, 9.0, NAN, 0.0), "held on average"),
    "no deviation": ((100.0, 90.0, NAN, 1.0, 0.0), "held on average"),
    "unsteady and above": ((100.0, 150.0, 50.0, 1.0, 0.9), "exceeded"),
    "limit 0, no cost": ((0.0, 0.0, 0.0, 0.0, 0.0), "held"),
    "limit 0, some cost": ((0.0, 1e-9, 0.0, 1.0, 0.0), "exceeded"),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name: str) -> None:
    numbers, expected = VERDICTS[name]
    assert verdict(Steadiness(*numbers, violation=0.0)) == expected


def test_a_limit_of_zero() -> None:
    assert verdict(measure(np.zeros(100), np.zeros(100), 0.0)) == "held"
    found = measure(np.array([*np.zeros(99), 3.0]), np.zeros(100), 0.0)
    assert (found.share_above, found.violation, verdict(found)) == (0.1, 3.0, "exceeded")


def test_estimates_of_a_policy_that_stands_still_deviate_by_their_sampling_error() -> None:
    """Also where some iterations have few episodes and others many: squares add up."""
    rng = np.random.default_rng(0)
    counts = np.tile([2, 3, 30, 60], 5000)
    episodes = [rng.gamma(4.0, 20.0, count) for count in counts]
    costs = np.array([drawn.mean() for drawn in episodes])
    errors = np.array([drawn.std(ddof=1) / math.sqrt(len(drawn)) for drawn in episodes])
    found = measure(costs, errors, 120.0)
    truth = math.sqrt(np.mean(4.0 * 20.0**2 / counts))  # the variance of gamma(4, 20) is 1600
    assert found.error == pytest.approx(truth, rel=0.03)
    assert found.deviation == pytest.approx(truth, rel=0.03)
    assert found.deviation > 0.08 * found.limit
    assert verdict(found) == "held"
    # Without the errors nobody can tell the noise of few episodes from a cost that swings.
    assert verdict(found._replace(error=NAN)) == "held on average"
