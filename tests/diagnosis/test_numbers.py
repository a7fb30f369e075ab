"""The numbers of a diagnosis against closed forms."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cupola import nets
from cupola.algos import cup, load_algorithm, ppo_lag
from cupola.algos.update import Context
from cupola.core.samples import build_samples, ratio
from cupola.diagnosis.critics import Returns, explained, look_ahead, squared_errors, variances
from cupola.diagnosis.estimates import over_pairs, over_rows
from cupola.diagnosis.gradients import compare
from cupola.diagnosis.multipliers import prices
from cupola.diagnosis.sampling import Drawn
from cupola.types import Batch, Learner, Problem, Rollout

GAMMA = 0.9
PROBLEM = Problem(2, 2, ("plain", "endless"), (1.0, 1.0), (False, True))


def constant_critics(values: list[float]) -> nets.Mlp:
    """Critics that say the same everywhere."""
    critics = nets.init_critics(jax.random.key(0), 2, len(values), (3,), 1.0)
    zero = jax.tree.map(jnp.zeros_like, critics)
    weight, _ = zero[-1]
    return (*zero[:-1], (weight, jnp.array(values)[:, None]))


def rollout_of(rewards: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> Rollout:
    """Both costs are the reward."""
    steps, envs = rewards.shape
    rng = np.random.default_rng(0)
    return Rollout(
        obs=rng.normal(size=(steps, envs, 2)).astype(np.float32),
        next_obs=rng.normal(size=(steps, envs, 2)).astype(np.float32),
        actions=rng.normal(size=(steps, envs, 2)).astype(np.float32),
        rewards=rewards.astype(np.float32),
        costs=np.repeat(rewards[..., None], 2, axis=2).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        times=np.zeros((steps, envs), np.int32),
    )


def config_of(**fields):
    return load_algorithm("cup").Config(gamma=GAMMA, **fields)


class TestLookAhead:
    """One environment, rewards of one: terminated after step 2, cut by its time after step 5, and
    by the end of the data after step 7. Critics say 10, 20 and 30."""

    rollout = rollout_of(
        np.ones((8, 1)), np.eye(8, dtype=bool)[2][:, None], np.eye(8, dtype=bool)[5][:, None]
    )
    lengths = np.array([3, 2, 1, 3, 2, 1, 2, 1])

    def returns(self, ahead: int, **fields) -> Returns:
        critics = constant_critics([10.0, 20.0, 30.0])
        found = look_ahead(self.rollout, critics, config_of(**fields), PROBLEM, ahead)
        return Returns(found.values[:, 0], found.known[:, 0])

    def test_a_critic_says_what_comes_behind_a_cut_and_nothing_comes_behind_an_end(self):
        values = self.returns(2, cost_termination="time_limit").values
        summed = (1 - GAMMA**self.lengths) / (1 - GAMMA)
        cut = np.arange(8) > 2
        for k, (said, endless) in enumerate([(10.0, False), (20.0, False), (30.0, True)]):
            expected = summed + GAMMA**self.lengths * said * (cut | endless)
            np.testing.assert_allclose(values[:, k], expected, rtol=1e-5)

    def test_a_time_limit_that_is_an_end_ends_returns(self):
        values = self.returns(2, time_limit="terminal").values
        summed = (1 - GAMMA**self.lengths) / (1 - GAMMA)
        np.testing.assert_allclose(values[:6, 0], summed[:6], rtol=1e-5)

    def test_what_is_cut_is_known_only_far_ahead_of_it(self):
        for known in self.returns(2).known.T:
            assert known.tolist() == [True, True, True, True, False, False, False, False]
        known = self.returns(2, time_limit="terminal").known[:, 0]
        assert known.tolist() == [True] * 6 + [False] * 2


def test_a_constant_critic_explains_less_than_nothing_by_its_distance_from_the_mean():
    """1 - mean (y - c)^2 / var y = -(mean y - c)^2 / var y; the right critic explains all."""
    rng = np.random.default_rng(1)
    obs = rng.normal(size=(50, 4, 2)).astype(np.float32)
    known = rng.random((50, 4, 3)) < 0.7
    values = rng.normal(2.0, 3.0, (50, 4, 3))
    returns = Returns(values, known)
    errors, counts = squared_errors(constant_critics([1.0, 2.0, 9.0]), obs, returns)
    share = 1 - errors / counts / variances(returns)
    for k, constant in enumerate([1.0, 2.0, 9.0]):
        y = values[..., k][known[..., k]]
        assert share[k] == pytest.approx(-((y.mean() - constant) ** 2) / y.var(), rel=1e-4)
    critics = nets.init_critics(jax.random.key(3), 2, 3, (8,), 1.0)
    right = Returns(np.asarray(nets.apply_critics(critics, obs)), known)
    np.testing.assert_allclose(squared_errors(critics, obs, right)[0], 0.0, atol=1e-8)


def test_own_and_fresh_batches_are_told_apart():
    """Rewards at the end of one-step episodes: 0 or 2 in turn in one batch, 4 or 6 in the other.

    The variance of all is 5. A critic fitted to the mean of its own batch (1 or 5) leaves 1 of it
    there, and 1 + 16 on the other one.
    """
    steps = np.tile([0.0, 2.0], 4)[:, None]
    rewards = np.concatenate([steps, 4 + steps])
    ends = np.ones_like(rewards, bool)
    stream = rollout_of(rewards, ends, ~ends)
    parts = [Rollout(*(array[rows] for array in stream)) for rows in (slice(8), slice(8, 16))]
    batches = [Batch(part, np.zeros(2), np.ones(2), np.float32(0)) for part in parts]
    drawn = Drawn(batches, stream, None, apart=1)
    learner = SimpleNamespace(critics=constant_critics([3.0, 3.0, 3.0]))
    subject = SimpleNamespace(
        learner=learner,
        config=config_of(cost_termination="terminal"),
        problem=PROBLEM,
        trainer=SimpleNamespace(spec=SimpleNamespace(time_limit=1)),
    )
    updated = {
        i: SimpleNamespace(critics=constant_critics([c, c, c])) for i, c in ((0, 1.0), (1, 5.0))
    }
    for found, name in zip(
        explained(subject, drawn, updated), ("return", *PROBLEM.costs), strict=True
    ):
        assert found.name == name
        assert found.before == pytest.approx(0.0, abs=1e-6)
        assert found.in_sample == pytest.approx(1 - 1 / 5)
        assert found.held_out == pytest.approx(1 - 17 / 5)


class TestCosines:
    """Gradients of a known signal and a known noise."""

    count, size = 60, 400

    def drawn(self, seed: int = 0):
        """Two signals whose true gradients have a cosine of 0.6, in noise of their own."""
        rng = np.random.default_rng(seed)
        first, second = np.zeros(self.size), np.zeros(self.size)
        first[0], second[0], second[1] = 1.0, 0.6, 0.8
        levels = np.array([0.03, 0.1])
        noise = rng.normal(size=(self.count, 2, self.size)) * levels[:, None]
        return np.stack([first, second]) + noise, levels

    def test_the_cosine_with_the_truth_is_that_of_signal_and_noise(self):
        plain, levels = self.drawn()
        found = compare(plain, plain, ("return", "cost"), apart=1)
        for gradient, level in zip(found, levels, strict=True):
            truth = 1 / math.sqrt(1 + self.size * level**2)
            assert gradient.plain.truth == pytest.approx(truth, abs=0.02)
            assert gradient.natural == gradient.plain  # with the identity for a metric
        assert found[0].with_reward is None
        crossed = found[1].with_reward
        assert crossed.truth == pytest.approx(0.6, abs=0.05)
        attenuated = 0.6 * found[0].plain.truth * found[1].plain.truth
        assert crossed.between.mean == pytest.approx(attenuated, abs=0.02)

    def test_natural_gradients_are_compared_in_the_metric_of_the_kl(self):
        """g'H^-1 g of the signal over that of signal and noise."""
        plain, levels = self.drawn()
        metric = np.linspace(0.5, 5.0, self.size)
        found = compare(plain, plain / metric, ("return", "cost"), apart=1)
        signals = [1 / metric[0], 0.36 / metric[0] + 0.64 / metric[1]]
        for gradient, signal, level in zip(found, signals, levels, strict=True):
            noise = level**2 * np.sum(1 / metric)
            truth = math.sqrt(signal / (signal + noise))
            assert gradient.natural.truth == pytest.approx(truth, abs=0.02)

    def test_noise_alone_has_a_cosine_of_about_zero(self):
        noise = np.random.default_rng(2).normal(size=(self.count, 1, self.size))
        (found,) = compare(noise, noise, ("return",), apart=1)
        assert abs(found.plain.between.mean) < 4 * found.plain.between.error
        assert found.plain.truth < 0.2
        opposite = np.stack([noise[0], -noise[0]])
        (found,) = compare(opposite, opposite, ("return",), apart=1)
        assert (found.plain.between.mean, found.plain.truth) == (pytest.approx(-1), 0.0)

    def test_batches_that_share_episodes_are_not_compared(self):
        """Neighbours share their noise, which would pass for signal."""
        shared = np.repeat(np.random.default_rng(3).normal(size=(30, 1, self.size)), 2, axis=0)
        (near,) = compare(shared, shared, ("return",), apart=1)
        (far,) = compare(shared, shared, ("return",), apart=2)
        assert near.plain.between.mean == pytest.approx(30 / (30 * 59), abs=0.01)
        assert near.plain.between.mean > far.plain.between.mean + 0.01
        assert abs(far.plain.between.mean) < 0.01

    def test_no_gradient_has_no_cosine(self):
        nothing = np.zeros((5, 1, 3))
        (found,) = compare(nothing, nothing, ("return",), apart=1)
        assert math.isnan(found.plain.truth)


def test_the_jackknife_knows_how_much_a_mean_over_pairs_varies():
    """Of products x_i x_j, over many draws: its error is the spread of the means."""
    rng = np.random.default_rng(4)
    used = ~np.eye(12, dtype=bool)
    found = [over_pairs(np.outer(x, x), used) for x in rng.normal(1.0, 0.5, (2000, 12))]
    means, errors = np.array(found).T
    assert means.mean() == pytest.approx(1.0, abs=0.02)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(means.std(), rel=0.1)


def test_estimates_of_few():
    assert over_rows(np.array([[1.0, 5.0], [3.0, 5.0]])) == [(2.0, 1.0), (5.0, 0.0)]
    [lonely] = over_rows(np.array([[7.0]]))
    assert lonely.mean == 7
    assert math.isnan(lonely.error)
    assert all(math.isnan(x) for x in over_rows(np.zeros((0, 1)))[0])
    one = np.zeros((3, 3), bool)
    one[0, 2] = True
    found = over_pairs(np.full((3, 3), 4.0), one)
    assert found.mean == 4
    assert math.isnan(found.error)


class TestPrices:
    """A price is what the loss itself weighs a unit of cost advantage with, times sigma."""

    policy = nets.init_policy(jax.random.key(0), 2, 2, (5,), -0.5, 1.0)
    nu = jnp.array([0.7, 1.9])

    @pytest.fixture
    def samples(self):
        rng = np.random.default_rng(5)
        rewards = rng.normal(size=(40, 3)) * 4
        ended = rng.random((40, 3)) < 0.1
        rollout = rollout_of(rewards, ended, ~ended & False)
        rollout = rollout._replace(
            costs=rng.normal(size=(40, 3, 2)).astype(np.float32) * [0.5, 3.0],
            times=rng.integers(0, 30, (40, 3)).astype(np.int32),
        )
        critics = nets.init_critics(jax.random.key(1), 2, 3, (5,), 1.0)
        return build_samples(
            self.policy, critics, rollout, gamma=GAMMA, lam=0.8, time_limit="bootstrap"
        )

    def gradient(self, advantages):
        """Of mean rho A, one after another."""

        def surrogate(policy, samples):
            return jnp.mean(ratio(policy, samples) * advantages)

        return lambda samples: jax.grad(surrogate)(self.policy, samples)

    @pytest.mark.parametrize("scaling", ["standardise", "centre"])
    def test_of_a_lagrangian(self, samples, scaling):
        config = ppo_lag.Config(gamma=GAMMA, lam=0.8, cost_advantage=scaling)
        price = self.nu * prices(samples, config, PROBLEM)
        scaled = samples.adv_c - samples.adv_c.mean(axis=0)
        if scaling == "standardise":
            scaled = scaled / samples.adv_c.std(axis=0)
        context = Context(self.nu, jnp.zeros(2), self.policy.log_std)
        sample = samples._replace(adv_c=scaled)

        def loss(policy):
            said = nets.apply_policy(policy, sample.obs)
            return ppo_lag.loss(*said, sample, context, config=config)

        slope = jax.grad(loss)(self.policy)
        raw, cost = samples.advantages[:, 0], samples.adv_c - samples.adv_c.mean(axis=0)
        sigma = raw.std()
        expected = self.gradient(raw - raw.mean() - cost @ price)(samples)
        unit = -1 / (sigma * (1 + self.nu.sum()))
        for ours, theirs in zip(jax.tree.leaves(slope), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, unit * theirs, rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("rule", ["integral", "predicted"])
    def test_of_cups_projection(self, samples, rule):
        config = dataclasses.replace(
            cup.PAPER, gamma=GAMMA, lam=0.8, lam_c=0.8, multiplier=rule, cost_advantage="centre"
        )
        price = self.nu * prices(samples, config, PROBLEM)
        half = SimpleNamespace(policy=self.policy, multiplier_state=jnp.zeros(2), nu=self.nu)
        batch = SimpleNamespace(cost_returns=jnp.ones(2), horizons=jnp.ones(2))
        if rule == "predicted":
            costs = cup.predicted_costs(half, samples, batch, config, PROBLEM)
            weights = jnp.where(jnp.array([False, True]), GAMMA ** samples.times[:, None], 1.0)
            raw = samples.adv_c * weights / weights.mean(axis=0)
        else:
            half = Learner(self.policy, None, None, None, self.nu, None)
            _, costs = cup.measured_costs(half, half, samples, config, PROBLEM)
            raw = samples.adv_c - samples.adv_c.mean(axis=0)
        target = cup.Target(samples._replace(adv_c=costs.adv_c), samples.mean)
        context = Context(self.nu, jnp.zeros(2), self.policy.log_std)

        def loss(policy):
            return cup.projection_loss(
                *nets.apply_policy(policy, target.obs),
                target,
                context,
                half_log_std=self.policy.log_std,
                config=config,
            )

        slope = jax.grad(loss)(self.policy)  # of the costs alone: at pi_{k+1/2} the KL has none
        expected = self.gradient(raw @ price / samples.advantages[:, 0].std())(samples)
        for ours, theirs in zip(jax.tree.leaves(slope), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
