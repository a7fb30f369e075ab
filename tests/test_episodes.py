"""The book-keeping of episodes against a loop that adds step by step."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cupola.episodes import Episodes, Estimates, Finished
from cupola.types import Rollout

GAMMA = 0.9


def random_rollout(rng: np.random.Generator, length: int, count: int, costs: int) -> Rollout:
    terminated = rng.random((length, count)) < 0.15
    truncated = (rng.random((length, count)) < 0.1) & ~terminated
    empty = np.zeros((length, count, 1))
    return Rollout(
        obs=empty,
        next_obs=empty,
        actions=empty,
        rewards=rng.normal(size=(length, count)),
        costs=rng.normal(size=(length, count, costs)),
        terminated=terminated,
        truncated=truncated,
        times=np.zeros((length, count), np.int32),
    )


class Tally:
    """One environment, added up step by step."""

    def __init__(self, costs: int, counts: bool) -> None:
        self.costs, self.counts = costs, counts
        self.begin()

    def begin(self) -> None:
        self.returns, self.length = 0.0, 0
        self.plain, self.discounted = np.zeros(self.costs), np.zeros(self.costs)

    def add(self, rollout: Rollout, t: int, env: int) -> list[tuple[float, ...]]:
        self.returns += rollout.rewards[t, env]
        self.plain += rollout.costs[t, env]
        self.discounted += GAMMA**self.length * rollout.costs[t, env]
        self.length += 1
        if not (rollout.terminated[t, env] or rollout.truncated[t, env]):
            return []
        row = (self.returns, self.length, *self.plain, *self.discounted)
        whole = self.counts or rollout.terminated[t, env]
        self.counts = True
        self.begin()
        return [row] if whole else []


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    count=st.integers(1, 5),
    costs=st.integers(1, 3),
    staggered=st.booleans(),
)
def test_episodes_are_the_sums_over_their_steps(seed, lengths, count, costs, staggered):
    rng = np.random.default_rng(seed)
    episodes = Episodes(count, costs, GAMMA)
    episodes.start(staggered)
    tallies = [Tally(costs, not staggered or env == 0) for env in range(count)]
    for length in lengths:
        rollout = random_rollout(rng, length, count, costs)
        expected, times = [], np.zeros((length, count), int)
        for env, tally in enumerate(tallies):
            for t in range(length):
                times[t, env] = tally.length
                expected += tally.add(rollout, t, env)
        finished = episodes.absorb(rollout)
        ours = np.column_stack(
            [finished.returns, finished.lengths, finished.costs, finished.discounted_costs]
        )
        width = 2 + 2 * costs
        np.testing.assert_allclose(ours, np.reshape(expected, (-1, width)), atol=1e-9)
        np.testing.assert_array_equal(rollout.times, times)


def test_estimates_keep_the_last_word_and_are_never_nan_again():
    estimates = Estimates((True, False), GAMMA, window=0)
    assert np.isnan(estimates.cost_returns).all()
    two = Finished(
        returns=np.array([1.0, 3.0]),
        lengths=np.array([1, 2]),
        costs=np.array([[1.0, 10.0], [2.0, 20.0]]),
        discounted_costs=np.array([[1.0, 9.0], [1.9, 19.0]]),
    )
    estimates.absorb(two)
    np.testing.assert_allclose(estimates.cost_returns, [1.45, 15.0])
    np.testing.assert_allclose(estimates.horizons, [(1 + 1.9) / 2, 1.5])
    estimates.absorb(Finished(*(column[:0] for column in two)))
    np.testing.assert_allclose(estimates.cost_returns, [1.45, 15.0])


def test_reach_is_what_the_longer_episodes_live_to_see():
    estimates = Estimates((True, False), GAMMA, window=0)
    np.testing.assert_array_equal(estimates.reach, [1.0, 1.0])
    lengths = np.array([1, 2, 3, 4, 5])
    costs = np.ones((5, 2))
    estimates.absorb(Finished(lengths.astype(float), lengths, costs, costs))
    np.testing.assert_allclose(estimates.reach, [1 - GAMMA**4, 1.0])


def test_a_window_averages_the_last_episodes():
    estimates = Estimates((False,), GAMMA, window=3)
    for cost in (1.0, 2.0, 3.0, 4.0):
        one = np.array([[cost]])
        estimates.absorb(Finished(np.ones(1), np.ones(1, int), one, one))
    np.testing.assert_allclose(estimates.cost_returns, [3.0])


def costing(*costs: float) -> Finished:
    column = np.array(costs)[:, None]
    ones = np.ones(len(costs))
    return Finished(ones, ones.astype(int), column, column)


def test_the_error_of_an_estimate_is_that_of_a_mean():
    """By hand: 1, 2, 6 have the sample variance 7. And scipy's for any numbers."""
    estimates = Estimates((False,), GAMMA, window=0)
    assert np.isnan(estimates.cost_errors).tolist() == [True]
    estimates.absorb(costing(5.0))
    assert np.isnan(estimates.cost_errors).tolist() == [True]
    estimates.absorb(costing(1.0, 2.0, 6.0))
    np.testing.assert_allclose(estimates.cost_errors, [np.sqrt(7 / 3)])
    estimates.absorb(costing())  # no episode ended: the estimate stands, and so does its error
    np.testing.assert_allclose(estimates.cost_errors, [np.sqrt(7 / 3)])
    many = np.random.default_rng(0).exponential(3.0, 50)
    estimates.absorb(costing(*many))
    np.testing.assert_allclose(estimates.cost_errors, [stats.sem(many)])


def test_the_error_is_that_of_the_episodes_in_the_window():
    estimates = Estimates((False,), GAMMA, window=3)
    for cost in (100.0, 1.0, 2.0, 6.0):
        estimates.absorb(costing(cost))
    np.testing.assert_allclose(estimates.cost_errors, [np.sqrt(7 / 3)])


def test_a_restored_estimate_has_the_same_error():
    first, second = (Estimates((False,), GAMMA, window=3) for _ in range(2))
    first.absorb(costing(1.0, 2.0, 6.0))
    second.restore(first.save())
    assert second.cost_errors.tobytes() == first.cost_errors.tobytes()
