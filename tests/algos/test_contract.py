"""What every algorithm of the registry must do; a new file is picked up by itself."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cupola import algos, nets
from cupola.types import Batch, Problem, Rollout

T, N, OBS, A, K = 12, 4, 3, 2, 2
PROBLEM = Problem(OBS, A, ("first", "second"), (10.0, 20.0), (True, False))
SMALL = {"batch_size": T * N, "num_envs": N, "minibatch_size": 8, "hidden": (8, 8)}


@functools.cache
def make(name: str, problem: Problem = PROBLEM):
    """Compiled once for all tests."""
    module = algos.load_algorithm(name)
    small = {k: v for k, v in SMALL.items() if k in vars(module.PRESETS["paper"])}
    config = module.Config(**{**vars(module.PRESETS["paper"]), **small})
    return module.make(config, problem)


def make_batch(seed: int = 0, costs=(15.0, 15.0), zero: bool = False) -> Batch:
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return (np.zeros(shape) if zero else rng.normal(size=shape)).astype(np.float32)

    rollout = Rollout(
        obs=rng.normal(size=(T, N, OBS)).astype(np.float32),
        next_obs=rng.normal(size=(T, N, OBS)).astype(np.float32),
        actions=rng.normal(size=(T, N, A)).astype(np.float32),
        rewards=draw(T, N),
        costs=draw(T, N, K),
        terminated=rng.random((T, N)) < 0.1,
        truncated=np.zeros((T, N), bool),
        times=rng.integers(0, 9, (T, N)).astype(np.int32),
    )
    horizons = np.array([5.0, 9.0], np.float32)
    return Batch(rollout, np.array(costs, np.float32), horizons, np.float32(0.0))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", algos.names())
class TestContract:
    def test_the_same_key_gives_the_same_update_on_any_number_of_cores(self, name):
        batch, key = make_batch(), jax.random.key(5)
        algorithm = make(name)
        learner = algorithm.init(jax.random.key(0))
        results = [leaves(algorithm.update(learner, batch, key, cores)) for cores in (1, 2)]
        for one, two in zip(*results, strict=True):
            assert np.array_equal(one, two)

    def test_shapes_and_dtypes_are_preserved_and_all_is_finite(self, name):
        algorithm = make(name)
        before = algorithm.init(jax.random.key(0))
        after, metrics, _ = algorithm.update(before, make_batch(), jax.random.key(1))
        for old, new in zip(leaves(before), leaves(after), strict=True):
            assert (old.shape, old.dtype) == (new.shape, new.dtype)
            assert np.isfinite(new).all()
        assert all(np.isfinite(value).all() for value in metrics.values())
        assert after.nu.shape == (K,)
        assert not all(map(np.array_equal, leaves(before.policy), leaves(after.policy)))

    def test_it_compiles_once(self, name):
        algorithm = make(name)
        learner = algorithm.init(jax.random.key(0))
        learner, _, _ = algorithm.update(learner, make_batch(0), jax.random.key(0))
        with jax.log_compiles(False), count_compilations() as compiled:
            algorithm.update(learner, make_batch(1, costs=(9.0, 40.0)), jax.random.key(1))
        assert compiled == []

    def test_nothing_to_gain_and_nothing_to_fix_leaves_the_policy_alone(self, name):
        algorithm = make(name)
        before = algorithm.init(jax.random.key(0))
        # Critics that say zero everywhere and rewards of zero: all advantages are zero.
        before = before._replace(critics=jax.tree.map(jnp.zeros_like, before.critics))
        batch = make_batch(costs=(0.0, 0.0), zero=True)
        after, _, _ = algorithm.update(before, batch, jax.random.key(1))
        for old, new in zip(leaves(before.policy), leaves(after.policy), strict=True):
            np.testing.assert_array_equal(old, new)


KINDS = ("cup", "cpo", "ppo")
"""One of each kind of update; the distribution of actions is the same code for all."""


@pytest.mark.parametrize(
    "name",
    [n if n in KINDS else pytest.param(n, marks=pytest.mark.slow) for n in algos.names()],
)
def test_discrete_actions_are_learned_and_left_alone(name):
    """Without advantages nothing moves; with them the better choice becomes likelier."""
    algorithm = make(name, problem=PROBLEM._replace(discrete=True))
    before = algorithm.init(jax.random.key(0))
    idle = before._replace(critics=jax.tree.map(jnp.zeros_like, before.critics))
    first = np.zeros((T, N, A), np.float32)
    first[..., 0] = 1.0
    first[::2] = first[::2, :, ::-1]  # either choice in turn
    batch = make_batch(costs=(0.0, 0.0), zero=True)
    batch = batch._replace(rollout=batch.rollout._replace(actions=first))
    after, _, _ = algorithm.update(idle, batch, jax.random.key(1))
    for old, new in zip(leaves(idle.policy), leaves(after.policy), strict=True):
        np.testing.assert_array_equal(old, new)
    ends = np.ones((T, N), bool)
    rollout = batch.rollout._replace(rewards=first[..., 0], terminated=ends)
    batch = batch._replace(rollout=rollout)
    after, metrics, _ = algorithm.update(idle, batch, jax.random.key(1))
    assert all(np.isfinite(value).all() for value in metrics.values())
    preference = [
        np.diff(nets.apply_policy(learner.policy, rollout.obs)[0]).mean()
        for learner in (idle, after)
    ]
    assert preference[1] < preference[0]


class count_compilations:  # noqa: N801
    """Names of the functions compiled within the block."""

    def __enter__(self) -> list[str]:
        self.names: list[str] = []
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self.names

    def _listen(self, event: str, duration: float, **kwargs: object) -> None:
        if event.endswith("backend_compile_duration"):
            self.names.append(str(kwargs.get("fun_name", event)))

    def __exit__(self, *exception: object) -> None:
        from jax._src import monitoring

        monitoring.unregister_event_duration_listener(self._listen)
