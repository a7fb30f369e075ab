"""Advantages of a rollout whose episodes end, by hand: gamma 0.5, lam 0.5, constant critics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cupola import nets
from cupola.algos import cup
from cupola.algos.assembly import endless_costs
from cupola.core.samples import build_samples, time_weights
from cupola.types import Problem, Rollout

VALUES = (4.0, 10.0, 20.0)  # of the reward and two costs, in every state


@pytest.fixture(name="critics")
def critics_fixture():
    fresh = nets.init_critics(jax.random.key(0), 1, len(VALUES), (2,), 1.0)
    flat = jax.tree.map(jnp.zeros_like, fresh)
    *hidden, (weight, bias) = flat
    return (*hidden, (weight, bias + jnp.reshape(jnp.array(VALUES), (-1, *(1,) * (bias.ndim - 1)))))


def samples_of(critics, terminated, truncated, **switches):
    """Of one environment that earns 1 and costs 2 and 3 a step."""
    steps = len(terminated)
    rollout = Rollout(
        obs=np.zeros((steps, 1, 1), np.float32),
        next_obs=np.zeros((steps, 1, 1), np.float32),
        actions=np.zeros((steps, 1, 1), np.float32),
        rewards=np.ones((steps, 1), np.float32),
        costs=np.broadcast_to(np.float32([2, 3]), (steps, 1, 2)),
        terminated=np.array(terminated)[:, None],
        truncated=np.array(truncated)[:, None],
        times=np.arange(steps, dtype=np.int32)[:, None],
    )
    policy = nets.init_policy(jax.random.key(0), 1, 1, (2,), -0.5, 1.0)
    return build_samples(policy, critics, rollout, gamma=0.5, lam=0.5, **switches)


def advantages(*args, **switches):
    """[T, 1 + K] of these samples."""
    samples = samples_of(*args, **switches)
    found = np.asarray(samples.advantages)
    np.testing.assert_array_equal(samples.adv_c, found[:, 1:])
    reward = found[:, 0] - found[:, 0].mean()
    np.testing.assert_allclose(samples.adv_r, reward / max(found[:, 0].std(), 1e-8), atol=1e-6)
    np.testing.assert_allclose(samples.targets, found + VALUES)
    return found


GOES_ON = (1 + 2 - 4, 2 + 5 - 10, 3 + 10 - 20)  # delta where V of the next state counts
ENDS = (1 - 4, 2 - 10, 3 - 20)  # and where it does not


def test_a_termination_ends_reward_and_costs(critics):
    found = advantages(critics, [False, True], [False, False], time_limit="bootstrap")
    np.testing.assert_allclose(found[1], ENDS)
    np.testing.assert_allclose(found[0], np.add(GOES_ON, np.multiply(0.25, ENDS)))


def test_a_termination_can_be_a_time_limit_for_a_cost(critics):
    """What it would have been after it is not saved; all else ends with the episode."""
    switches = {"time_limit": "bootstrap", "endless": (True, False)}
    found = advantages(critics, [False, True, False], [False, False, False], **switches)
    last = (ENDS[0], GOES_ON[1], ENDS[2])
    np.testing.assert_allclose(found[1], last)
    np.testing.assert_allclose(found[0], np.add(GOES_ON, np.multiply(0.25, last)))
    np.testing.assert_allclose(found[2], GOES_ON)  # the next episode does not enter


@pytest.mark.parametrize("endless", [(), (False, False), (True, True)])
@pytest.mark.parametrize(("time_limit", "expected"), [("bootstrap", GOES_ON), ("terminal", ENDS)])
def test_time_limits_are_the_same_for_all(critics, endless, time_limit, expected):
    switches = {"time_limit": time_limit, "endless": endless}
    np.testing.assert_allclose(advantages(critics, [False], [True], **switches)[0], expected)


def test_where_time_limits_are_terminal_so_are_the_terminations_that_count_as_one(critics):
    switches = {"time_limit": "terminal", "endless": (True, True)}
    np.testing.assert_allclose(advantages(critics, [True], [False], **switches)[0], ENDS)


def test_critics_can_learn_with_another_lambda_than_the_advantages_have(critics):
    """With lambda 1 the targets are the sums of what comes, whatever the advantages have."""
    ends = ([False, True], [False, False])
    samples = samples_of(critics, *ends, time_limit="bootstrap", lam_critic=1.0)
    np.testing.assert_allclose(samples.targets, [(1.5, 3.0, 4.5), (1, 2, 3)])
    np.testing.assert_allclose(samples.values, [VALUES, VALUES])
    usual = advantages(critics, *ends, time_limit="bootstrap")
    np.testing.assert_allclose(samples.advantages, usual)


def test_only_costs_with_a_discounted_limit_are_endless_and_only_on_request():
    problem = Problem(1, 1, ("far", "fast"), (1.0, 1.0), (True, False), discrete=False)
    assert endless_costs(cup.PRESETS["steady"], problem) == (True, False)
    assert endless_costs(cup.PRESETS["release"], problem) == (False, False)


@pytest.mark.parametrize(("gamma", "first"), [(0.0, 1), (0.1, 60), (0.5, 3)])
def test_weights_of_time_are_in_proportion_however_late_the_samples_are(critics, gamma, first):
    """0 and 0.1^60 are no float32 to divide by."""
    samples = samples_of(critics, [False] * 3, [False] * 3, time_limit="bootstrap")
    late = samples._replace(times=first + jnp.arange(3))
    weights = time_weights(late, gamma, (True, False))
    assert jnp.allclose(weights[:, 0] / weights[0, 0], jnp.array([1.0, gamma, gamma**2]))
    assert jnp.array_equal(weights[:, 1], jnp.ones(3))


def test_behind_a_termination_a_cost_can_go_on_as_it_was(critics):
    """At its rate for ever: 2 / (1 - 0.5) for the endless cost of 2 a step, whatever V says."""
    switches = {"time_limit": "bootstrap", "endless": (True, False), "goes_on": True}
    found = advantages(critics, [False, True, False], [False, False, False], **switches)
    last = (ENDS[0], 2 + 0.5 * 4 - 10, ENDS[2])
    np.testing.assert_allclose(found[1], last)
    np.testing.assert_allclose(found[0], np.add(GOES_ON, np.multiply(0.25, last)))
    np.testing.assert_allclose(found[2], GOES_ON)


def test_behind_a_time_limit_the_critic_says_what_comes(critics):
    switches = {"time_limit": "bootstrap", "endless": (True, True), "goes_on": True}
    np.testing.assert_allclose(advantages(critics, [False], [True], **switches)[0], GOES_ON)
