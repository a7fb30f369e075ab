"""First-order algorithms against recorded updates, independent losses and their gradients."""

from __future__ import annotations

import functools
import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from cupola import nets
from cupola.algos import focops, p3o, ppo, ppo_lag, ppo_pid
from cupola.algos.update import Context
from cupola.types import Batch, Problem, Samples

GOLDEN = Path(__file__).parents[1] / "golden" / "focops_updates.npz"
PROBLEM = Problem(4, 2, ("first", "second"), (10.0, 20.0), (True, False))
SMALL = {"batch_size": 96, "num_envs": 4, "minibatch_size": 16, "hidden": (8, 8), "epochs": 3}
NU = np.array([0.4, 0.7])


@pytest.mark.parametrize("case", ["active", "early_stop", "inactive", "capped"])
def test_focops_release_reproduces_the_authors_updates(x64, replay, case):
    with np.load(GOLDEN, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file if key.startswith(f"{case}/")}
    gaps = replay.replay(replay.Recording(arrays, case), "focops")
    assert max(gaps.values()) < 1e-8


def density(mean: np.ndarray, std: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Density of the actions [B, A] under a diagonal Gaussian, factor by factor."""
    factors = np.exp(-0.5 * ((actions - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    return np.prod(factors, axis=1)


def divergence(mean_p, std_p, mean_q, std_q) -> np.ndarray:
    """KL(p || q) of each state."""
    terms = np.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5
    return terms.sum(axis=1)


def make_samples(policy: nets.Policy, size: int = 96) -> Samples:
    rng = np.random.default_rng(0)
    obs, actions = rng.normal(size=(size, 4)), rng.normal(size=(size, 2))
    mean, log_std = nets.apply_policy(policy, jnp.asarray(obs))
    adv_r, adv_c = rng.normal(size=size), rng.normal(size=(size, 2))
    log_prob = np.log(density(np.asarray(mean), np.exp(np.asarray(log_std)), actions))
    return Samples(
        obs=jnp.asarray(obs),
        actions=jnp.asarray(actions),
        mean=mean,
        log_prob=jnp.asarray(log_prob),
        advantages=jnp.asarray(np.column_stack([adv_r, adv_c])),
        adv_r=jnp.asarray(adv_r),
        adv_c=jnp.asarray(adv_c),
        values=jnp.zeros((size, 3)),
        targets=jnp.asarray(rng.normal(size=(size, 3))),
        times=jnp.asarray(rng.integers(0, 50, size)),
    )


class Setting:
    """pi_k with its samples, and another policy, theta, to take losses and gradients at."""

    def __init__(self) -> None:
        self.old = nets.init_policy(jax.random.key(0), 4, 2, (5, 5), -0.5, 1.0)
        self.samples = make_samples(self.old, size=24)
        theta, self.policy = ravel_pytree(self.old)
        noise = np.random.default_rng(1).normal(size=theta.shape)
        self.theta = np.asarray(theta) + 0.05 * noise
        self.actions = np.asarray(self.samples.actions)
        self.adv_r, self.adv_c = np.asarray(self.samples.adv_r), np.asarray(self.samples.adv_c)
        self.old_mean, self.old_std = np.asarray(self.samples.mean), np.exp(self.old.log_std)

    def gaussian(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean [B, A] and standard deviation [A] of theta's policy, in numpy."""
        policy = self.policy(theta)
        x = np.asarray(self.samples.obs)
        for weight, bias in policy.mean[:-1]:
            x = np.tanh(x @ np.asarray(weight) + np.asarray(bias))
        weight, bias = policy.mean[-1]
        return x @ np.asarray(weight) + np.asarray(bias), np.exp(np.asarray(policy.log_std))

    def ratio(self, theta: np.ndarray) -> np.ndarray:
        old = density(self.old_mean, self.old_std, self.actions)
        return density(*self.gaussian(theta), self.actions) / old

    def kl(self, theta: np.ndarray) -> np.ndarray:
        return divergence(*self.gaussian(theta), self.old_mean, self.old_std)

    def context(self) -> Context:
        return Context(jnp.asarray(NU), jnp.zeros(2), self.old.log_std)

    def clipped(self, theta: np.ndarray) -> float:
        """mean_t min(rho A, clip(rho, 0.8, 1.2) A)."""
        rho = self.ratio(theta)
        return np.mean(np.minimum(rho * self.adv_r, np.clip(rho, 0.8, 1.2) * self.adv_r))

    def check(self, loss, independent) -> None:
        """``loss`` of what a policy says against ``independent`` of its parameters: value and
        gradient."""

        def ours(theta):
            return loss(*nets.apply_policy(self.policy(theta), self.samples.obs))

        assert float(ours(self.theta)) == pytest.approx(independent(self.theta), rel=1e-10)
        steps = 1e-6 * np.eye(len(self.theta))
        slopes = [
            (independent(self.theta + step) - independent(self.theta - step)) / 2e-6
            for step in steps
        ]
        np.testing.assert_allclose(jax.grad(ours)(self.theta), slopes, atol=1e-7)


@pytest.fixture
def setting(x64) -> Setting:
    return Setting()


def test_the_indicator_of_focops_is_each_states_own_and_carries_no_gradient(setting):
    """States beyond the bound add nothing, and those within it their whole term."""
    bound = float(np.median(setting.kl(setting.theta)))
    inside = setting.kl(setting.theta) <= bound
    assert 0 < inside.sum() < len(inside)
    advantage = setting.adv_r - setting.adv_c @ NU
    config = focops.Config(indicator=bound, temperature=1.5)

    def independent(theta):
        terms = setting.kl(theta) - setting.ratio(theta) * advantage / 1.5
        return np.sum(terms[inside]) / len(inside)

    setting.check(
        partial(
            focops.loss,
            sample=setting.samples,
            context=setting.context(),
            config=config,
        ),
        independent,
    )


def test_the_loss_of_ppo_lag_is_divided_by_one_plus_the_sum_of_the_multipliers(setting):
    """Reward's and costs' terms alike, with two costs."""

    def independent(theta):
        costs = np.mean(setting.ratio(theta)[:, None] * setting.adv_c, axis=0)
        return -(setting.clipped(theta) - NU[0] * costs[0] - NU[1] * costs[1]) / 2.1

    config = ppo_lag.Config()
    setting.check(
        lambda *said: ppo_lag.loss(*said, setting.samples, setting.context(), config=config),
        independent,
    )


def test_the_loss_of_ppo_is_the_clipped_surrogate(setting):
    rho = setting.ratio(setting.theta)
    assert (rho > 1.2).any()
    assert (rho < 0.8).any()
    setting.check(
        lambda *said: ppo.loss(*said, setting.samples, setting.context(), config=ppo.Config()),
        lambda theta: -setting.clipped(theta),
    )


@pytest.mark.parametrize("violation", [(0.3, -0.2), (-5.0, -5.0), (-np.inf, 0.4)])
def test_the_loss_of_p3o_is_the_exact_penalty(setting, violation):
    """Both surrogates clipped, each on its bad side; a cost counts where it exceeds its limit."""
    config = p3o.Config(kappa=3.0)
    context = setting.context()._replace(violation=jnp.asarray(violation))

    def independent(theta):
        rho = setting.ratio(theta)
        bound = np.clip(rho, 0.8, 1.2)
        total = -setting.clipped(theta)
        for i in range(2):
            cost = setting.adv_c[:, i]
            total += 3.0 * max(0.0, np.mean(np.maximum(rho * cost, bound * cost)) + violation[i])
        return total

    setting.check(
        lambda *said: p3o.loss(*said, setting.samples, context, config=config), independent
    )


def test_the_loss_of_ppo_pid_clips_reward_and_costs_each_on_its_bad_side(setting):
    def independent(theta):
        rho = setting.ratio(theta)
        bound = np.clip(rho, 0.8, 1.2)
        costs = [np.mean(np.maximum(rho * c, bound * c)) for c in setting.adv_c.T]
        return (NU @ costs - setting.clipped(theta)) / (1 + NU.sum())

    setting.check(
        lambda *said: ppo_pid.loss(
            *said, setting.samples, setting.context(), config=ppo_pid.Config()
        ),
        independent,
    )


@pytest.mark.parametrize("module", [ppo_pid, pytest.param(focops, marks=pytest.mark.slow)])
def test_multipliers_of_a_pid_follow_its_formula(module):
    """The first update: proportional and integral term of the first violation, no derivative."""
    config = module.Config(
        **SMALL, multiplier="pid", pid_kp=0.02, pid_ki=0.01, pid_kd=5.0, nu_max=0.5
    )
    _, after, metrics = update(module, config, costs=(15.0, 40.0))
    np.testing.assert_allclose(after.nu, [0.15, 0.5], rtol=1e-5)  # 0.6 is cut
    np.testing.assert_allclose(metrics["nu"], after.nu)


@functools.cache
def make(module, config):
    """Compiled once for all tests."""
    return module.make(config, PROBLEM)


def update(module, config, costs=(0.0, 0.0), nu=(0.0, 0.0)):
    """Learner before and after one update of samples, and its metrics."""
    algorithm = make(module, config)
    learner = algorithm.init(jax.random.key(0))._replace(nu=jnp.asarray(nu))
    batch = Batch(None, jnp.asarray(costs), jnp.array([50.0, 100.0]), jnp.zeros(()))
    samples = make_samples(learner.policy)
    return learner, *algorithm.learn(learner, samples, batch, jax.random.key(1), 1)


def equal(a, b) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


def test_the_indicator_and_the_stopping_rule_of_focops_are_independent():
    """A narrow indicator leaves out states and no epoch, a narrow delta epochs and no state."""
    fields = SMALL | {"learning_rate": 3e-3, "indicator": math.inf, "delta": math.inf}
    learner, free, plain = update(focops, focops.Config(**fields))
    _, held, narrow = update(focops, focops.Config(**fields | {"indicator": 1e-3}))
    _, _, early = update(focops, focops.Config(**fields | {"delta": 1e-3}))
    assert (int(plain["epochs"]), int(narrow["epochs"]), int(early["epochs"])) == (3, 3, 1)
    assert float(narrow["kl"]) < float(plain["kl"])
    assert not equal(held.policy, free.policy)
    samples = make_samples(learner.policy)
    context = Context(free.nu, jnp.zeros(2), learner.policy.log_std)
    wide, tight = (
        focops.loss(
            *nets.apply_policy(free.policy, samples.obs),
            samples,
            context,
            config=focops.Config(**fields | {"delta": delta}),
        )
        for delta in (math.inf, 1e-3)
    )
    assert float(wide) == float(tight)


@pytest.mark.parametrize("module", [focops, ppo_lag])
def test_multipliers_rise_before_the_policy_uses_them(module):
    """From nu = 0, an update with violated limits equals one that begins with their multipliers."""
    config = module.Config(**SMALL)
    violated, met = (15.0, 40.0), PROBLEM.limits
    _, risen, _ = update(module, config, costs=violated)
    _, given, _ = update(module, config, costs=met, nu=(0.05, 0.2))
    _, without, _ = update(module, config, costs=met)
    np.testing.assert_allclose(risen.nu, [0.05, 0.2], atol=1e-7)
    for one, two in zip(jax.tree.leaves(risen.policy), jax.tree.leaves(given.policy), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)
    assert not equal(risen.policy, without.policy)


def test_multipliers_of_ppo_lag_end_at_one_and_those_of_focops_at_two():
    for module, cap in ((ppo_lag, 1.0), (focops, 2.0)):
        _, after, _ = update(module, module.Config(**SMALL), costs=(1e4, 1e4))
        np.testing.assert_array_equal(after.nu, [cap, cap])


def test_without_multipliers_ppo_lag_is_ppo():
    _, ours, metrics = update(ppo_lag, ppo_lag.Config(**SMALL))
    _, theirs, others = update(ppo, ppo.Config(**SMALL))
    assert equal(ours.policy, theirs.policy)
    assert equal(ours.critics, theirs.critics)
    assert equal(metrics, others)
    _, paid, _ = update(ppo_lag, ppo_lag.Config(**SMALL), nu=(0.5, 0.5))
    assert not equal(paid.policy, theirs.policy)
