"""The actor against the network, and how environments are shared."""

from __future__ import annotations

import jax
import numpy as np

from cupola import nets
from cupola.core import moments as obs_moments
from cupola.rollout import collector_sizes, make_actor


def test_the_actor_is_the_policy():
    """The numpy actor against the network that the update differentiates."""
    rng = np.random.default_rng(0)
    policy = nets.init_policy(jax.random.key(0), 5, 2, (8, 8), -0.5, 1.0)
    moments = obs_moments.absorb(obs_moments.empty(5), rng.normal(3.0, 2.0, size=(50, 5)))
    obs = rng.normal(3.0, 4.0, size=(7, 5)).astype(np.float32)
    noise = rng.normal(size=(7, 2)).astype(np.float32)
    mean, log_std = nets.apply_policy(policy, obs_moments.normalise(moments, obs, 1.5))
    expected = np.asarray(mean) + np.exp(np.asarray(log_std)) * noise
    ours = make_actor(policy, moments, obs_clip=1.5, normalise=True)(obs, noise)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_collectors_share_the_environments():
    assert [collector_sizes(n) for n in (1, 2, 5, 20)] == [[1], [1, 1], [3, 2], [10, 10]]
