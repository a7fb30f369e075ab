"""Surrogates, critics, moments and minibatches against hand-derived values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cupola.core import critics, moments
from cupola.core.minibatch import draws, epoch, shuffles
from cupola.core.surrogates import clipped, safe_sqrt


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"),
    [
        (1.0, 2.0, 2.0),
        (1.5, 2.0, 2.4),  # capped at (1 + eps) A
        (0.5, 2.0, 1.0),  # a good action made rarer counts in full
        (0.5, -2.0, -1.6),  # capped at (1 - eps) A
        (1.5, -2.0, -3.0),  # a bad action made likelier counts in full
        (1.3, 0.0, 0.0),
    ],
)
def test_clipped_surrogate_by_hand(ratio, advantage, value):
    assert float(clipped(jnp.array(ratio), jnp.array(advantage), 0.2)) == pytest.approx(value)


def test_safe_sqrt_has_a_finite_slope_at_zero():
    assert np.isfinite(jax.grad(safe_sqrt)(0.0))
    assert float(safe_sqrt(jnp.array(4.0))) == pytest.approx(2.0)


def test_columns_are_drowned_by_what_came_before_alone():
    """Deviations of 1e9 hide differences of 1; small ones and the column's own do not."""
    rng = np.random.default_rng(0)
    before = rng.normal(size=(1000, 4)).astype(np.float32) * np.float32([1e9, 1e9, 1.0, 1e9])
    running = moments.absorb(moments.empty(4), jnp.asarray(before))
    now = rng.normal(size=(10, 20, 4)).astype(np.float32) * np.float32([1.0, 1e9, 1e-8, 0.0])
    assert moments.drowned(running, now).tolist() == [True, False, False, False]
    assert not moments.drowned(moments.empty(4), now).any()


def test_moments_are_those_of_all_data_however_it_is_cut(x64):
    data = np.random.default_rng(0).normal(3.0, 2.0, size=(40, 5, 3))
    running = moments.empty(3)
    for piece in np.split(data, [1, 7, 20]):
        running = moments.absorb(running, jnp.asarray(piece))
    flat = data.reshape(-1, 3)
    np.testing.assert_allclose(running.mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(running.squares / running.total, flat.var(0), rtol=1e-12)
    normal = moments.normalise(running, jnp.asarray(flat), clip=1.0)
    expected = np.clip((flat - flat.mean(0)) / flat.std(0), -1, 1)
    np.testing.assert_allclose(normal, expected, atol=1e-7)


def test_normalising_without_data_is_the_identity_but_for_the_clip():
    obs = jnp.array([[0.5, -7.0]])
    np.testing.assert_allclose(moments.normalise(moments.empty(2), obs, 5.0), [[0.5, -5.0]])


def test_shuffles_visit_each_sample_once_an_epoch_and_follow_the_key():
    orders = shuffles(jax.random.key(3), epochs=4, size=100, minibatch=8)
    assert orders.shape == (4, 12, 8)
    for order in orders:
        assert len(np.unique(order)) == 96
        assert order.min() >= 0
        assert order.max() < 100
    assert not np.array_equal(orders[0], orders[1])
    assert np.array_equal(orders, shuffles(jax.random.key(3), 4, 100, 8))
    assert not np.array_equal(orders, shuffles(jax.random.key(4), 4, 100, 8))


def test_an_epoch_is_plain_minibatch_descent(x64):
    """Against a loop of numpy: mean squares of a line, plain gradient steps."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 12))
    order = rng.permutation(12).reshape(4, 3)
    slope = 0.3
    for index in order:
        slope -= 0.1 * np.mean(2 * (slope * x[index] - y[index]) * x[index])

    def loss(params, sample):
        error = jnp.mean((params * sample[0] - sample[1]) ** 2)
        return error, error

    found, _, _ = epoch(
        (jnp.array(0.3), optax.identity().init(jnp.array(0.3))),
        loss,
        optax.identity(),
        (jnp.asarray(x), jnp.asarray(y)),
        jnp.asarray(order),
        jnp.array(0.1),
    )
    assert float(found) == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 3, 5])
def test_critics_keep_as_many_epochs_as_are_wanted(cores, wanted):
    with critics.Epochs(lambda s, order: [*s, order], [], np.arange(5), cores) as fitting:
        fitting.keep(wanted)
        state = fitting.result()
    assert [int(i) for i in state] == list(range(wanted))


def test_a_failing_policy_step_does_not_leave_the_critics_waiting():
    with (
        pytest.raises(RuntimeError, match="no"),
        critics.Epochs(lambda s, order: s, [], np.arange(3), 2),
    ):
        raise RuntimeError("no")
    # The pool's only worker is free again.
    with critics.Epochs(lambda s, order: [*s, 1], [], np.arange(3), 2) as fitting:
        fitting.keep(1)
        assert fitting.result() == [1]


def test_failing_critics_are_reported():
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"), critics.Background(fail, 2) as fitting:
        fitting.result()


def test_the_critics_memory_holds_the_last_batches_and_no_empty_ones_are_drawn():
    memory = critics.empty_memory(3, 4, 2, 1)
    for i in range(1, 6):
        memory = critics.remember(memory, jnp.full((4, 2), float(i)), jnp.full((4, 1), 10.0 * i))
        obs, targets = critics.recall(memory, jnp.zeros((0, 2)), jnp.zeros((0, 1)))
        first = len(obs) - 4 * int(memory.filled)
        order = draws(jax.random.key(i), 2, 5, 2, first, len(obs))
        assert order.shape == (2, 5, 2)
        seen = set(np.asarray(obs)[order.reshape(-1), 0].tolist())
        assert seen <= set(range(max(1, i - 2), i + 1))
        np.testing.assert_allclose(10 * np.asarray(obs)[first:, :1], np.asarray(targets)[first:])
    assert np.bincount(draws(jax.random.key(0), 3, 4, 5, 2, 8).reshape(-1) - 2).tolist() == [10] * 6
