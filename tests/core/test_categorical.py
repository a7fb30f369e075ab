"""Distributions of choices against sums over all choices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import special

from cupola import nets
from cupola.core import categorical, distributions
from cupola.core.trust_region import fisher_product
from cupola.tasks.actor import one_hot

RNG = np.random.default_rng(0)
LOGITS_P, LOGITS_Q = RNG.normal(scale=2, size=(2, 6, 4))
CHOICES = np.eye(4)[RNG.integers(0, 4, 6)]


def test_log_probabilities_are_those_of_the_softmax(x64):
    p = special.softmax(LOGITS_P, axis=1)
    ours = categorical.log_prob(jnp.asarray(LOGITS_P), jnp.asarray(CHOICES))
    np.testing.assert_allclose(ours, np.log((p * CHOICES).sum(1)), rtol=1e-12)


def test_kl_is_the_sum_over_all_choices(x64):
    p, q = special.softmax(LOGITS_P, axis=1), special.softmax(LOGITS_Q, axis=1)
    ours = distributions.kl(jnp.asarray(LOGITS_P), None, jnp.asarray(LOGITS_Q), None)
    np.testing.assert_allclose(ours, special.rel_entr(p, q).sum(1), rtol=1e-10)


def test_kl_and_its_gradients_are_exactly_zero_between_equals():
    """In single precision too: Adam would blow up what rounding leaves."""
    logits = jnp.asarray(LOGITS_P, jnp.float32)
    for argument in (0, 1):
        value, gradient = jax.value_and_grad(
            lambda p, q: jnp.sum(categorical.kl(p, q)), argnums=argument
        )(logits, logits)
        assert value == 0
        assert not np.any(gradient)


def test_fisher_products_are_those_of_the_hessian_of_the_divergence(x64):
    policy = nets.init_policy(jax.random.key(0), 3, 4, (5,), None, 1.0)
    policy = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), policy)
    obs = jnp.asarray(RNG.normal(size=(7, 3)))
    theta, policy_of = ravel_pytree(policy)
    logits, _ = nets.apply_policy(policy, obs)

    def divergence(theta):
        new, _ = nets.apply_policy(policy_of(theta), obs)
        return jnp.mean(jnp.sum(jax.nn.softmax(logits) * -jax.nn.log_softmax(new), axis=1))

    vector = jnp.asarray(RNG.normal(size=theta.shape))
    expected = jax.hessian(divergence)(theta) @ vector + 0.1 * vector
    product = fisher_product(policy, obs, damping=0.1)
    np.testing.assert_allclose(product(vector), expected, rtol=1e-9, atol=1e-12)


def test_samples_are_as_frequent_as_their_probabilities():
    logits = np.array([0.5, -1.0, 2.0])
    key, count = jax.random.key(3), 200_000
    noise = np.asarray(distributions.unit_noise(key, (count, 3), discrete=True))
    frequencies = one_hot(np.broadcast_to(logits, noise.shape), noise).mean(axis=0)
    error = 4 * np.sqrt(0.25 / count)
    np.testing.assert_allclose(frequencies, special.softmax(logits), atol=error)
    np.testing.assert_array_equal(one_hot(logits, np.zeros(3)), [0, 0, 1])
