"""Predicted and measured changes, on a CMDP where both are known exactly."""

from functools import partial

import jax
import numpy as np
import pytest

from cupola import nets
from cupola.core.prediction import cost_levels, predict_change
from cupola.core.samples import build_samples, ratio
from cupola.prediction_check import PredictionCheck
from cupola.rollout import Finished
from cupola.types import Batch, Prediction, Rollout

T, N, O, A, K = 40, 3, 2, 1, 2  # noqa: E741
GAMMA, LAM = 0.9, 0.6
samples_of = jax.jit(partial(build_samples, gamma=GAMMA, lam=LAM, time_limit="bootstrap"))
predicted = jax.jit(partial(predict_change, gamma=GAMMA, lam=LAM, discounted=(True, False)))


@pytest.fixture(scope="module", name="batch")
def batch_fixture():
    rng = np.random.default_rng(0)
    policy = nets.init_policy(jax.random.key(0), O, A, (4,), -0.5, 1.0)
    moved = policy._replace(log_std=policy.log_std + 0.05)
    critics = nets.init_critics(jax.random.key(1), O, 1 + K, (4,), 1.0)
    times = np.tile(np.arange(10), T // 10)[:, None].repeat(N, axis=1)
    rollout = Rollout(
        obs=rng.normal(size=(T, N, O)).astype(np.float32),
        next_obs=rng.normal(size=(T, N, O)).astype(np.float32),
        actions=rng.normal(size=(T, N, A)).astype(np.float32),
        rewards=rng.normal(size=(T, N)).astype(np.float32),
        costs=rng.normal(size=(T, N, K)).astype(np.float32),
        terminated=times == 9,
        truncated=np.zeros((T, N), bool),
        times=times.astype(np.int32),
    )
    samples = samples_of(policy, critics, rollout)
    found = predicted(moved, samples, rollout)
    return rollout, critics, moved, samples, samples.advantages, found


def test_the_predicted_change_is_the_weighted_surrogate(batch):
    rollout, _, moved, samples, advantages, found = batch
    rho = np.asarray(ratio(moved, samples), np.float64)
    weight = GAMMA ** rollout.times.reshape(-1).astype(np.float64)
    raw = np.asarray(advantages, np.float64)
    for column, w in ((0, weight), (1, weight), (2, np.ones_like(weight))):
        expected = np.sum(w * (rho - 1) * raw[:, column]) / np.sum(w)
        assert found.change[column] == pytest.approx(expected, rel=2e-4)


def test_start_and_residual_give_back_the_discounted_return(batch):
    """Whole episodes that terminate: J = V(s_0) + sum gamma^t delta_t is their mean return."""
    rollout, critics, _, _, _, found = batch
    # V of a state and of the one that follows must agree for the sum to telescope.
    following = rollout.next_obs.copy()
    following[:-1] = rollout.obs[1:]
    whole = rollout._replace(next_obs=following)
    policy = nets.init_policy(jax.random.key(0), O, A, (4,), -0.5, 1.0)
    samples = samples_of(policy, critics, whole)
    found = predicted(policy, samples, whole)
    np.testing.assert_allclose(found.change, 0, atol=1e-6)  # the same policy
    weights = GAMMA**rollout.times
    episodes = T // 10 * N
    horizon = (1 - GAMMA**10) / (1 - GAMMA)
    level = np.asarray(found.start) + np.array([horizon, horizon, 10]) * np.asarray(found.residual)
    assert level[0] == pytest.approx(np.sum(weights * rollout.rewards) / episodes, abs=1e-4)
    assert level[1] == pytest.approx(np.sum(weights * rollout.costs[..., 0]) / episodes, abs=1e-4)
    assert level[2] == pytest.approx(np.sum(rollout.costs[..., 1]) / episodes, abs=1e-4)


def lengths(*values):
    count = len(values)
    return Finished(np.zeros(count), np.array(values), np.zeros((count, 1)), np.zeros((count, 1)))


def made(change, residual, start, started=1.0):
    arrays = (np.array(x, float) for x in (change, residual, start, [started] * 2))
    return Prediction(*arrays)


def test_a_line_compares_the_last_prediction_with_this_batch():
    check = PredictionCheck(1, 0.5)
    horizons = np.array([4.0])
    first = check.compare(made([1, 1], [1, 1], [0, 0]), horizons)
    assert all(np.isnan(value).all() for value in first.values())  # nothing is known yet
    check.absorb(lengths(1, 2))  # 1 and 1.5: horizon 1.25
    check.compare(made([0.2, 0.3], [1.0, 1.0], [5.0, 0.0]), horizons)
    state = {key: value.copy() for key, value in check.save().items()}
    check.absorb(lengths())
    line = check.compare(made([0, 0], [2.0, 0.5], [5.0, 0.0]), horizons)
    assert line["return_change_predicted"] == pytest.approx(1.25 * 0.2)
    assert line["return_change_measured"] == pytest.approx(1.25)
    assert line["cost_change_predicted"] == pytest.approx([1.2])
    assert line["cost_change_measured"] == pytest.approx([-2.0])
    other = PredictionCheck(1, 0.5)
    other.restore(state)
    again = other.compare(made([0, 0], [2.0, 0.5], [5.0, 0.0]), horizons)
    assert {k: v.tolist() for k, v in again.items()} == {k: v.tolist() for k, v in line.items()}
    other.restore({})  # a checkpoint without it


def test_without_a_first_state_nothing_is_measured():
    check = PredictionCheck(1, 0.5)
    check.absorb(lengths(2))
    check.compare(made([0, 0], [1, 1], [0, 0]), np.ones(1))
    line = check.compare(made([0, 0], [1, 1], [0, 0], started=0.0), np.ones(1))
    assert np.isnan(line["return_change_measured"])
    assert line["return_change_predicted"] == 0


def test_levels_of_costs_are_the_mean_returns_of_whole_episodes_whatever_the_critic():
    rng = np.random.default_rng(3)
    length, episodes = 10, 4
    obs = rng.normal(size=(length * episodes, N, O)).astype(np.float32)
    times = np.tile(np.arange(length), episodes)[:, None].repeat(N, axis=1)
    costs = rng.uniform(size=(length * episodes, N, K)).astype(np.float32)
    rollout = Rollout(
        obs=obs,
        next_obs=np.concatenate([obs[1:], obs[:1]]),
        actions=np.zeros((length * episodes, N, A), np.float32),
        rewards=np.zeros((length * episodes, N), np.float32),
        costs=costs,
        terminated=times == length - 1,
        truncated=np.zeros(times.shape, bool),
        times=times.astype(np.int32),
    )
    horizons = np.array([(1 - GAMMA**length) / (1 - GAMMA), length])
    batch = Batch(rollout, np.full(K, np.nan), horizons, np.zeros(()))
    weights = np.where([True, False], GAMMA ** times[..., None], 1.0)
    expected = (weights * costs).sum(axis=(0, 1)) / (N * episodes)
    for seed in range(3):
        critics = nets.init_critics(jax.random.key(seed), O, 1 + K, (4,), 1.0)
        found = cost_levels(critics, batch, gamma=GAMMA, discounted=(True, False))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    # Where no episode began in the batch, a discounted cost is that of the last episodes.
    later = batch._replace(rollout=rollout._replace(times=rollout.times + 1))
    later = later._replace(cost_returns=np.array([7.0, 8.0]))
    found = cost_levels(critics, later, gamma=GAMMA, discounted=(True, False))
    assert float(found[0]) == 7.0
    # With costs that go on, the rate of an episode's last steps is added for ever behind its end.
    each = costs[..., 0].reshape(episodes, length, N)
    recent = GAMMA ** np.arange(length)[::-1, None]
    behind = (recent * each).sum(axis=1) / recent.sum() * GAMMA**length / (1 - GAMMA)
    found = cost_levels(critics, batch, gamma=GAMMA, discounted=(True, False), goes_on=True)
    endless = expected + np.array([behind.mean(), 0.0])
    np.testing.assert_allclose(found, endless, rtol=1e-5)
    # Where even longer episodes live to see a part of that only, it counts as far.
    shorter = batch._replace(reach=np.array([0.25, 1.0]))
    found = cost_levels(critics, shorter, gamma=GAMMA, discounted=(True, False), goes_on=True)
    np.testing.assert_allclose(found, endless * [0.25, 1.0], rtol=1e-5)
