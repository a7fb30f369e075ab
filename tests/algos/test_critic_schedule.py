"""What the critics learn from: the reward's from the newest batch, the costs' from a memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cupola.algos import cup
from cupola.algos.assembly import critic_schedule, fit_critics, remembered
from cupola.algos.learner import init_learner
from cupola.core.critics import Fit
from cupola.types import Batch, Problem, Samples

SIZE = 40
KEPT = 10  # a quarter
PROBLEM = Problem(3, 1, ("speed", "effort"), (1.0, 1.0), (True, False), discrete=False)
CONFIG = cup.Config(
    batch_size=SIZE,
    num_envs=4,
    minibatch_size=20,
    critic_memory=2,
    critic_minibatch=10,
    critic_epochs=5,
    hidden=(8,),
)


def samples(seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    arrays = {"obs": rng.normal(size=(SIZE, 3)), "targets": rng.normal(size=(SIZE, 3)) + seed}
    empty = dict.fromkeys(Samples._fields)
    return Samples(**empty | {name: jnp.asarray(array) for name, array in arrays.items()})


def learner_after(batches: int):
    learner = init_learner(jax.random.key(0), CONFIG, PROBLEM)
    for seed in range(batches):
        learner = remembered(learner, samples(seed), jax.random.key(seed))
    return learner


@pytest.mark.parametrize("batches", [0, 1, 2, 5])
def test_the_reward_learns_from_the_newest_batch_and_the_costs_from_all_that_is_known(batches):
    learner, newest = learner_after(batches), samples(batches)
    (obs, targets), orders = critic_schedule(learner, newest, jax.random.key(1), CONFIG)
    assert orders.shape == (5, 2, SIZE // 10, 10)
    reward, costs = (np.unique(orders[:, i]) for i in (0, 1))
    np.testing.assert_array_equal(obs[reward], newest.obs)
    np.testing.assert_array_equal(targets[reward], newest.targets)
    assert len(costs) == SIZE + KEPT * min(batches, 2)
    for i, seed in enumerate(range(max(0, batches - 2), batches)):
        part = costs[i * KEPT : (i + 1) * KEPT]
        old = samples(seed)
        rows = [np.flatnonzero((old.targets == row).all(axis=1)).item() for row in targets[part]]
        assert len(set(rows)) == KEPT
        np.testing.assert_allclose(obs[part], old.obs[np.array(rows)], atol=1e-3)  # float16


def test_an_order_for_each_part_fits_each_part_as_if_alone():
    learner = learner_after(3)
    data, orders = critic_schedule(learner, samples(3), jax.random.key(1), CONFIG)
    start, batch = Fit.start(learner.critics, learner.critic_opt), Batch(None, None, None, 0.0)
    both = fit_critics(start, data, batch, orders[0], config=CONFIG)
    for which, order in zip((slice(0, 1), slice(1, None)), orders[0], strict=True):
        part = (data[0], data[1][:, which])
        alone = fit_critics(start.part(which), part, batch, order, config=CONFIG)
        jax.tree.map(np.testing.assert_allclose, both.part(which), alone)
