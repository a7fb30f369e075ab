"""Statistics against scipy's bootstrap and trimmed mean, and rliable's published definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cupola.reports import statistics
from cupola.reports.statistics import estimate, interquartile_mean, mean

SCORES = {
    "ten seeds": [np.random.default_rng(1).normal(10, 3, 10)],
    "ties": [np.array([1.0, 1.0, 1.0, 2.0, 2.0, 5.0])],
    "all equal": [np.full(5, 3.0)],
    "two seeds": [np.array([1.0, 4.0])],
    "tasks": [np.random.default_rng(2).normal(i, 1 + i, 5) for i in range(4)],
    "failed seeds": [np.array([1.0, 3.0, 8.0]), np.array([2.0, 2.5, 4.0, 9.0, 9.5])],
}


def rliable_mean(*tasks: np.ndarray, axis: int = -1) -> np.ndarray:
    """aggregate_mean of rliable: mean over runs, then over tasks."""
    return sum(task.mean(axis=axis) for task in tasks) / len(tasks)


def rliable_iqm(*tasks: np.ndarray, axis: int = -1) -> np.ndarray:
    """aggregate_iqm of rliable: scipy's trimmed mean of all runs of all tasks."""
    return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(
    ("mine", "theirs"), [(mean, rliable_mean), (interquartile_mean, rliable_iqm)]
)
def test_values_and_intervals_are_scipys(name: str, mine, theirs) -> None:
    """The same generator draws the same resamples, so the ends agree to rounding."""
    strata = SCORES[name]
    found = estimate(strata, mine, seed=3)
    independent = stats.bootstrap(
        strata,
        theirs,
        method="percentile",
        n_resamples=statistics.RESAMPLES,
        confidence_level=0.95,
        vectorized=True,
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert found.value == pytest.approx(float(theirs(*strata)), rel=1e-12)
    assert found.low == pytest.approx(independent.low, rel=1e-9)
    assert found.high == pytest.approx(independent.high, rel=1e-9)


def test_one_seed_has_no_interval() -> None:
    found = estimate([np.array([2.0])], mean)
    assert found.value == 2.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    mixed = estimate([np.array([1.0, 2.0, 3.0]), np.array([4.0])], mean)
    assert mixed.value == 3.0
    assert math.isnan(mixed.low)


def test_failed_seeds_are_left_out() -> None:
    whole = estimate([np.array([1.0, 2.0, 4.0])], interquartile_mean)
    assert estimate([np.array([1.0, math.nan, 2.0, 4.0])], interquartile_mean) == whole
    assert estimate([np.array([1.0, 2.0, 4.0]), np.array([math.nan])], interquartile_mean) == whole
    assert math.isnan(estimate([np.array([math.nan])], mean).value)
    assert math.isnan(estimate([], mean).value)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_interquartile_mean_is_scipys_trimmed_mean(values: list[float]) -> None:
    expected = float(stats.trim_mean(values, 0.25))
    assert float(interquartile_mean([np.array(values)])) == pytest.approx(expected, abs=1e-6)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Of a normal mean with 30 seeds the percentile interval covers about 93 to 95 %."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        found = estimate([rng.normal(0, 1, 30)], mean)
        hits += found.low <= 0 <= found.high
    assert 0.88 <= hits / 100 <= 0.99


def test_regret_and_first_feasible() -> None:
    costs, steps = np.array([math.nan, 5.0, 1.0, 4.0]), np.array([10, 20, 30, 40])
    assert statistics.regret(costs, 3.0) == 2.0 - 2.0 + 1.0
    assert statistics.first_feasible(steps, costs[None], np.array([3.0])) == 30
    other = np.array([0.0, 0.0, 9.0, 0.0])
    both = np.array([costs, other])
    assert statistics.first_feasible(steps, both, np.array([4.5, 1.0])) == 40
    assert math.isinf(statistics.first_feasible(steps, both, np.array([3.0, 1.0])))


def test_median_steps_with_seeds_that_never_got_there() -> None:
    assert statistics.median([1.0, 5.0, math.inf]) == 5.0
    assert math.isinf(statistics.median([1.0, math.inf, math.inf]))
    assert math.isnan(statistics.median([]))


def test_common_scale() -> None:
    found = statistics.normalised({"a": np.array([2.0, 4.0]), "b": np.array([6.0, math.nan])})
    np.testing.assert_allclose(found["a"], [0.0, 0.5])
    np.testing.assert_allclose(found["b"], [1.0, math.nan])
    assert statistics.normalised({"a": np.array([2.0, 2.0])})["a"].tolist() == [0.0, 0.0]
