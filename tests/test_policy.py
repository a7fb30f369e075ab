"""A trained policy: its actions are those of the network in the checkpoint."""

import numpy as np
import pytest

import cupola
from cupola.errors import CupolaError
from cupola.runs.directory import RunDirectory


def test_predict_is_the_mean_of_the_network_on_normalised_observations(trained):
    policy = cupola.load(trained.path)
    arrays = RunDirectory(trained.path).newest_checkpoint("none").arrays
    assert (policy.iteration, policy.obs_size, policy.act_size) == (6, 11, 3)
    obs = np.random.default_rng(0).normal(0, 2, (50, 11))
    variance = arrays["moments.squares"] / arrays["moments.total"]
    hidden = np.clip((obs - arrays["moments.mean"]) / np.sqrt(variance + 1e-8), -5, 5)
    for layer in range(3):
        weight, bias = (arrays[f"learner.policy.mean[{layer}][{i}]"] for i in (0, 1))
        hidden = hidden @ weight + bias
        hidden = np.tanh(hidden) if layer < 2 else hidden
    actions = policy.predict(obs)
    assert actions.shape == (50, 3)
    np.testing.assert_allclose(actions, hidden, atol=1e-5)
    np.testing.assert_array_equal(actions, policy.predict(obs, deterministic=True))
    single = policy.predict(obs[0])
    assert single.shape == (3,)
    np.testing.assert_allclose(single, actions[0], atol=1e-6)
    np.testing.assert_array_equal(cupola.load(str(trained.path)).predict(obs), actions)


def test_sampled_actions_are_the_gaussian(trained):
    policy = cupola.load(trained.path)
    obs, count = np.random.default_rng(1).normal(size=11), 20_000
    repeated = np.tile(obs, (count, 1))
    actions = policy.predict(repeated, deterministic=False, rng=np.random.default_rng(2))
    std = np.exp(np.asarray(policy.network.log_std))
    standard = (actions - policy.predict(obs)) / std
    assert np.abs(standard.mean(axis=0)).max() < 4 / count**0.5
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=4 / (2 * count) ** 0.5)
    assert np.abs(np.corrcoef(standard, rowvar=False) - np.eye(3)).max() < 4 / count**0.5
    again = policy.predict(repeated, deterministic=False, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(actions, again)
    assert not np.array_equal(
        policy.predict(obs, deterministic=False), policy.predict(obs, deterministic=False)
    )


@pytest.mark.parametrize("shape", [(10,), (12,), (3, 10), (11, 3), (2, 3, 11), ()])
def test_observations_of_another_size_are_refused(trained, shape):
    with pytest.raises(CupolaError, match=r"takes observations of shape \(11,\) or \(N, 11\), not"):
        cupola.load(trained.path).predict(np.zeros(shape))


def test_load_of_one_checkpoint_is_that_policy(trained):
    policies = [
        cupola.load(trained.path / "checkpoints" / f"{i:08d}.safetensors") for i in (2, 4, 6)
    ]
    assert [policy.iteration for policy in policies] == [2, 4, 6]
    actions = [policy.predict(np.ones(11)) for policy in policies]
    assert not np.array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[2], cupola.load(trained.path).predict(np.ones(11)))
