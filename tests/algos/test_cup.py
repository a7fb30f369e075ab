"""CUP against the authors' recorded updates, hand-derived values and independent gradients."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from cupola import nets
from cupola.algos import cup
from cupola.algos.update import Context, relative_violation
from cupola.core import distributions, surrogates
from cupola.core.minibatch import shuffles
from cupola.core.samples import ratio
from cupola.types import Batch, Problem, Samples

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "cup_updates.npz"
PROBLEM = Problem(4, 2, ("first", "second"), (10.0, 20.0), (True, False))
SMALL = {"batch_size": 96, "num_envs": 4, "minibatch_size": 16, "hidden": (8, 8), "epochs": 3}
LIMITED = dataclasses.replace(cup.PAPER, **SMALL)
STEADY = cup.Config(**SMALL, cost_estimate="episodes")  # these batches have no rollout


@pytest.mark.parametrize("case", ["active", "early_stop", "inactive", "capped"])
def test_preset_release_reproduces_the_authors_updates(x64, replay, case):
    with np.load(GOLDEN, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file if key.startswith(f"{case}/")}
    gaps = replay.replay(replay.Recording(arrays, case), "cup")
    assert gaps["critics"] < 1e-8
    assert gaps["nu"] < 1e-8
    # With nu = 0 the release lets Adam's momentum move the policy; ours stays where it is.
    assert (gaps["policy"] < 1e-8) == (case != "inactive")


def make_samples(policy: nets.Policy, size: int = 96, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    obs, actions = rng.normal(size=(size, 4)), rng.normal(size=(size, 2))
    mean, log_std = nets.apply_policy(policy, jnp.asarray(obs))
    adv_r, adv_c = rng.normal(size=size), rng.normal(size=(size, 2))
    z = (actions - np.asarray(mean)) / np.exp(np.asarray(log_std))
    log_prob = np.sum(-0.5 * z**2 - np.asarray(log_std) - 0.5 * math.log(2 * math.pi), axis=1)
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


def make_batch(costs: tuple[float, float], progress: float = 0.0) -> Batch:
    return Batch(None, jnp.asarray(costs), jnp.array([50.0, 100.0]), jnp.asarray(progress))


@functools.cache
def make(config: cup.Config):
    """Compiled once for all tests."""
    return cup.make(config, PROBLEM)


def update(config: cup.Config, costs: tuple[float, float], nu: tuple[float, float] = (0.0, 0.0)):
    algorithm = make(config)
    learner = algorithm.init(jax.random.key(0))._replace(nu=jnp.asarray(nu))
    samples = make_samples(learner.policy)
    after = algorithm.learn(learner, samples, make_batch(costs), jax.random.key(1), 1)
    return learner, samples, *after


def equal(a, b) -> bool:
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.mark.parametrize("rule", ["integral", "pid", "predicted"])
def test_without_a_multiplier_the_projection_is_exactly_the_identity(rule):
    config = cup.Config(**{**vars(LIMITED), "multiplier": rule})
    learner, samples, after, metrics = update(config, costs=(-100.0, -100.0))
    key, fitted = jax.random.split(jax.random.key(1))[0], 96 - config.held_out
    orders = shuffles(key, 6, fitted, 16)
    half = cup.improve(
        learner,
        samples,
        make_batch((-100.0, -100.0)),
        jnp.asarray(orders.reshape(2, 3, -1, 16)[0]),
        config=config,
        problem=PROBLEM,
    ).learner
    assert float(metrics["epochs_project"]) == 0
    assert np.all(np.asarray(after.nu) == 0)
    for ours, expected in zip(
        jax.tree.leaves(after.policy), jax.tree.leaves(half.policy), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


def test_multipliers_rise_before_the_projection_uses_them():
    _, _, after, metrics = update(LIMITED, costs=(15.0, 19.0))
    np.testing.assert_allclose(after.nu, [0.05, 0.0], atol=1e-7)
    assert float(metrics["epochs_project"]) > 0


def test_unknown_costs_leave_the_multipliers_alone():
    _, _, after, _ = update(LIMITED, costs=(math.nan, 40.0), nu=(0.3, 0.1))
    np.testing.assert_allclose(after.nu, [0.3, 0.3], atol=1e-6)


def gaussian_kl(mean_p, std_p, mean_q, std_q):
    return np.sum(
        np.log(std_q / std_p) + (std_p**2 + (mean_p - mean_q) ** 2) / (2 * std_q**2) - 0.5, axis=1
    )


def forward(flat: np.ndarray, like: nets.Policy, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The policy in numpy, from a flat vector of its parameters."""
    leaves, at = [], 0
    for leaf in jax.tree.leaves(like):
        leaves.append(flat[at : at + leaf.size].reshape(leaf.shape))
        at += leaf.size
    x = obs
    for weight, bias in ((leaves[0], leaves[1]), (leaves[2], leaves[3])):
        x = np.tanh(x @ weight + bias)
    return x @ leaves[4] + leaves[5], np.exp(leaves[6])


def numerical_gradient(function, flat: np.ndarray) -> np.ndarray:
    grads = np.zeros_like(flat)
    for i in range(len(flat)):
        step = np.zeros_like(flat)
        step[i] = 1e-6
        grads[i] = (function(flat + step) - function(flat - step)) / 2e-6
    return grads


def ratio_of(mean, std, samples):
    z = (np.asarray(samples.actions) - mean) / std
    log_prob = np.sum(-0.5 * z**2 - np.log(std) - 0.5 * math.log(2 * math.pi), axis=1)
    return np.exp(log_prob - np.asarray(samples.log_prob))


@pytest.fixture
def setting(x64):
    """pi_k, another policy to differentiate at, and samples of pi_k."""
    old = nets.init_policy(jax.random.key(0), 4, 2, (5, 5), -0.5, 1.0)
    noise = jax.tree.map(
        lambda leaf: 0.05 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), old
    )
    new = jax.tree.map(jnp.add, old, noise)
    return old, new, make_samples(old, size=24)


@pytest.mark.parametrize("improvement", ["clip", "kl", "focops"])
def test_improvement_losses_and_gradients(setting, improvement):
    old, new, samples = setting
    config = cup.Config(improvement=improvement, delta=0.05, alpha=0.3)
    flat, unflatten = jax.flatten_util.ravel_pytree(new)
    old_mean, old_std = np.asarray(samples.mean), np.exp(np.asarray(old.log_std))
    advantage = np.asarray(samples.adv_r)

    def independent(vector):
        mean, std = forward(vector, new, np.asarray(samples.obs))
        ratio = ratio_of(mean, std, samples)
        if improvement == "clip":
            g = np.where(advantage >= 0, 1.2 * advantage, 0.8 * advantage)
            return -np.mean(np.minimum(ratio * advantage, g))
        if improvement == "kl":
            kl = np.mean(gaussian_kl(old_mean, old_std, mean, std))
            return -np.mean(ratio * advantage) + 0.3 * np.sqrt(kl + 1e-12)
        kl = gaussian_kl(mean, std, old_mean, old_std)
        return np.mean((kl <= 0.05) * (kl - ratio * advantage / 1.5))

    def ours(vector):
        context = Context(jnp.zeros(2), jnp.zeros(2), old.log_std)
        policy = nets.apply_policy(unflatten(vector), samples.obs)
        return cup.improvement_loss(*policy, samples, context, config=config)

    vector = np.asarray(flat)
    assert float(ours(flat)) == pytest.approx(independent(vector), rel=1e-10)
    np.testing.assert_allclose(
        jax.grad(ours)(flat), numerical_gradient(independent, vector), atol=1e-7
    )


@pytest.mark.parametrize("direction", ["new_half", "half_new"])
@pytest.mark.parametrize("beta", [0.0, 0.7])
@pytest.mark.parametrize("clip", [math.inf, 0.05])
def test_projection_loss_and_gradient(setting, direction, beta, clip):
    old, new, samples = setting
    config = dataclasses.replace(
        cup.PAPER, projection_kl=direction, beta=beta, projection_clip=clip
    )
    half = jax.tree.map(lambda a, b: a + 0.5 * (b - a), old, new)
    half_mean, _ = nets.apply_policy(half, samples.obs)
    nu = np.array([0.4, 0.1])
    adv_c = np.asarray(samples.adv_c)
    scaled = 5.95 * (adv_c - adv_c.mean(0)) / adv_c.std(0)
    learner = make(config).init(jax.random.key(0))
    priced_half = learner._replace(nu=jnp.asarray(nu))
    _, priced = cup.measured_costs(priced_half, learner, samples, config, PROBLEM)
    np.testing.assert_allclose(priced.adv_c, scaled, rtol=1e-10)
    assert bool(priced.active)
    np.testing.assert_array_equal(priced.next_nu(jnp.asarray(nu), half), nu)
    target = cup.Target(samples._replace(adv_c=jnp.asarray(scaled)), half_mean)
    flat, unflatten = jax.flatten_util.ravel_pytree(new)
    stds = np.exp(np.asarray(old.log_std)), np.exp(np.asarray(half.log_std))

    def independent(vector):
        mean, std = forward(vector, new, np.asarray(samples.obs))
        ratio = ratio_of(mean, std, samples)
        pair = (mean, std), (np.asarray(half_mean), stds[1])
        first, second = pair if direction == "new_half" else pair[::-1]
        bad_side = np.maximum(ratio, np.clip(ratio, 1 - clip, 1 + clip))
        good_side = np.minimum(ratio, np.clip(ratio, 1 - clip, 1 + clip))
        cost = scaled @ nu
        value = np.mean(
            gaussian_kl(*first, *second) + np.where(cost > 0, bad_side, good_side) * cost
        )
        moved = np.mean(gaussian_kl(np.asarray(samples.mean), stds[0], mean, std))
        return value + beta * nu.sum() * np.sqrt(moved + 1e-12)

    def ours(vector):
        context = Context(jnp.asarray(nu), jnp.zeros(2), old.log_std)
        policy = nets.apply_policy(unflatten(vector), target.obs)
        return cup.projection_loss(
            *policy, target, context, half_log_std=half.log_std, config=config
        )

    vector = np.asarray(flat)
    assert float(ours(flat)) == pytest.approx(independent(vector), rel=1e-10)
    np.testing.assert_allclose(
        jax.grad(ours)(flat), numerical_gradient(independent, vector), atol=1e-7
    )


@pytest.mark.parametrize("reference", ["start", "half"])
def test_the_projection_stops_by_its_reference(reference):
    """From pi_k = pi_{k+1/2} both references agree; from a far half they do not."""
    config = cup.Config(**{**vars(LIMITED), "stop_reference": reference, "learning_rate": 1e-6})
    end = project_from_afar(config, nu=0.1)
    # KL(half || start) is far above delta: one epoch; seen from the half itself: all of them.
    assert int(end.epochs) == (1 if reference == "start" else 3)


def far_learners(config: cup.Config, nu: float):
    """A learner at pi_k, and one at a pi_{k+1/2} that is far from it."""
    start = make(config).init(jax.random.key(0))._replace(nu=jnp.full(2, nu))
    far = start.policy._replace(log_std=start.policy.log_std + 0.5)
    return start, start._replace(policy=far)


def project_from_afar(config: cup.Config, nu: float, progress: float = 0.0):
    """The projection with costs at their limits, so that nu stays as it is."""
    start, half = far_learners(config, nu)
    orders = jnp.asarray(shuffles(jax.random.key(1), 3, 96, 16))
    batch = make_batch(PROBLEM.limits, progress)
    return cup.project(
        half, start, make_samples(start.policy), batch, orders, config=config, problem=PROBLEM
    )


@pytest.mark.parametrize(("origin", "nu"), [("half", 0.1), ("start", 0.1), ("start", 0.0)])
def test_the_projection_begins_where_it_is_told(origin, nu):
    """Without a learning rate it ends where it began, and without multipliers at the half."""
    config = cup.Config(**{**vars(LIMITED), "projection_start": origin})
    end = project_from_afar(config, nu, progress=1.0)
    start, half = far_learners(config, nu)
    expected = start.policy if (origin, nu) == ("start", 0.1) else half.policy
    for ours, wanted in zip(
        jax.tree.leaves(end.learner.policy), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_array_equal(ours, wanted)


def test_improvement_stops_after_the_epoch_that_exceeds_delta():
    eager = cup.Config(**{**vars(LIMITED), "learning_rate": 0.05, "epochs": 3})
    _, _, _, metrics = update(eager, costs=(0.0, 0.0))
    assert int(metrics["epochs_improve"]) == 1
    assert float(metrics["kl_improve"]) > eager.delta
    never = cup.Config(**{**vars(eager), "delta": math.inf})
    _, _, _, metrics = update(never, costs=(0.0, 0.0))
    assert int(metrics["epochs_improve"]) == 3


def test_the_excess_of_a_mean_is_counted_in_standard_deviations_beyond_its_reach():
    mean = jnp.array([[0.5, -0.5], [2.5, 0.0], [-3.0, 4.0]])
    excess = surrogates.excess(mean, jnp.log(jnp.array([0.5, 1.0])), jnp.array([1.0, 1.0]), 2.0)
    np.testing.assert_allclose(excess, [0.0, (0.5 / 0.5) ** 2, (1.0 / 0.5) ** 2 + 1.0], rtol=1e-6)


@pytest.mark.parametrize("nu", [0.0, 1.0])
def test_means_far_beyond_an_actuators_end_come_back(nu):
    """Without an advantage nothing else moves them; within their reach they stay."""
    problem = PROBLEM._replace(saturation=(1.0, 1.0))
    config = cup.Config(**{**vars(STEADY), "bounds_loss": 1.0, "learning_rate": 0.01})
    costs = (100.0, 100.0) if nu else (-100.0, -100.0)
    for settings, moves in ((config, True), (dataclasses.replace(config, bounds_loss=0.0), False)):
        algorithm = cup.make(settings, problem)
        learner = algorithm.init(jax.random.key(0))._replace(nu=jnp.full(2, nu))
        *layers, (weights, bias) = learner.policy.mean
        far = learner.policy._replace(mean=[*layers, (weights, bias + jnp.array([5.0, -1.5]))])
        learner = learner._replace(policy=far)
        samples = make_samples(far)
        none = {"adv_r": jnp.zeros(96), "adv_c": jnp.zeros((96, 2))}
        after, _ = algorithm.learn(
            learner, samples._replace(**none), make_batch(costs), jax.random.key(1), 1
        )
        before, now = (nets.apply_policy(p, samples.obs)[0] for p in (far, after.policy))
        assert (jnp.mean(before[:, 0] - now[:, 0]) > 0.01) == moves
        assert abs(jnp.mean(now[:, 1] - before[:, 1])) < 1e-6 or moves


def test_learning_rate_falls_linearly_where_it_should():
    for decay, policy, values in (("all", 0.75, 0.75), ("policy", 0.75, 1.0), ("none", 1.0, 1.0)):
        config = cup.Config(lr_decay=decay, learning_rate=1.0, critic_lr=0.0)
        assert float(cup.learning_rate(config, jnp.array(0.25), "policy")) == policy
        assert float(cup.learning_rate(config, jnp.array(0.25), "critics")) == values


def test_presets_are_the_columns_of_the_table():
    paper, release, omnisafe = (cup.PRESETS[name] for name in ("paper", "release", "omnisafe"))
    assert (paper.batch_size, paper.epochs, paper.delta) == (5000, 10, 0.02)
    assert (paper.time_limit, release.time_limit) == ("bootstrap", "terminal")
    assert (paper.multiplier, paper.cost_termination) == ("integral", "terminal")
    assert (release.cost_termination, omnisafe.cost_termination) == ("terminal", "terminal")
    assert (release.batch_size, release.epochs, release.clip) == (2048, 10, 0.2)
    assert (release.stop_reference, release.cost_advantage) == ("start", "standardise")
    assert (release.multiplier_lr, release.nu_max, release.nu_init) == (0.01, 2.0, 0.0)
    assert (release.log_std, release.last_layer_scale) == (-0.5, 0.1)
    assert (omnisafe.batch_size, omnisafe.epochs, omnisafe.delta) == (20000, 40, 0.01)
    assert (omnisafe.stop_reference, omnisafe.cost_advantage) == ("half", "centre")
    assert (omnisafe.multiplier_optimiser, omnisafe.multiplier_lr) == ("adam", 0.035)
    assert (omnisafe.cost_window, omnisafe.log_std, omnisafe.lr_decay) == (100, 0.0, "policy")


def test_omnisafe_multipliers_follow_adam():
    adam = {"multiplier_optimiser": "adam", "multiplier_lr": 0.035}
    config = cup.Config(**{**vars(LIMITED), **adam})
    learner, _, after, _ = update(config, costs=(15.0, 60.0))
    optimiser = optax.adam(0.035)
    step, _ = optimiser.update(jnp.array([-5.0, -40.0]), optimiser.init(learner.nu), learner.nu)
    np.testing.assert_allclose(after.nu, learner.nu + step, atol=1e-7)


def test_predicted_multipliers_follow_the_predicted_cost(x64):
    """Against the prediction written out: gamma^t weights, horizons, the last fifth of samples."""
    config = cup.Config(**{**vars(LIMITED), "multiplier": "predicted"})
    learner = make(config).init(jax.random.key(0))
    old = learner.policy
    new = old._replace(log_std=old.log_std + 0.1)
    samples, batch = make_samples(old), make_batch((12.0, 19.0))
    half = learner._replace(
        policy=new, nu=jnp.array([0.5, 0.01]), multiplier_state=jnp.array([1.0, 0.0])
    )
    adv_c, next_nu, active = cup.predicted_costs(half, samples, batch, config, PROBLEM)
    raw, times = np.asarray(samples.adv_c), np.asarray(samples.times)
    weights = np.stack([0.99**times / np.mean(0.99**times), np.ones(len(times))], axis=1)
    spread = np.std(weights * raw, axis=0)
    mean, log_std = (np.asarray(x) for x in nets.apply_policy(new, samples.obs))
    z = (np.asarray(samples.actions) - mean) / np.exp(log_std)
    log_prob = np.sum(-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi), axis=1)
    rho = np.exp(log_prob - np.asarray(samples.log_prob))
    unseen = weights[-19:] / weights[-19:].mean(axis=0)
    change = np.mean((rho - 1)[-19:, None] * unseen * raw[-19:], axis=0)
    change *= np.array([50.0, 100.0])
    predicted = (np.array([12.0, 19.0]) + change - np.array([9.0, 20.0])) / (
        np.array([50.0, 100.0]) * spread
    )
    np.testing.assert_allclose(adv_c, weights * raw / spread, rtol=1e-10)
    expected = np.clip(np.array([0.5, 0.01]) + 0.25 * predicted, 0, 2 * 5.95)
    np.testing.assert_allclose(next_nu(half.nu, new), expected, rtol=1e-10)
    assert bool(active) == bool((predicted > 0).any())


def test_improvement_length_is_the_step_of_a_natural_gradient(x64):
    """A small step along alpha F^-1 g is found to have that alpha: F and g written out."""
    learner = make(STEADY).init(jax.random.key(0))
    samples = make_samples(learner.policy, size=400)
    flat, unflatten = jax.flatten_util.ravel_pytree(learner.policy)

    def divergence(vector):
        mean, log_std = nets.apply_policy(unflatten(vector), samples.obs)
        return jnp.mean(distributions.kl(mean, log_std, samples.mean, learner.policy.log_std))

    def gain(vector):
        return jnp.mean(ratio(unflatten(vector), samples) * samples.adv_r)

    # The pseudo-inverse: directions that change no distribution carry no gradient either.
    direction = jnp.linalg.pinv(jax.hessian(divergence)(flat), rtol=1e-6) @ jax.grad(gain)(flat)
    for alpha in (2e-5, 1e-4):
        moved = unflatten(flat + alpha * direction)
        found = cup.improvement_length(moved, learner.policy, samples)
        assert float(found) == pytest.approx(alpha, rel=0.03)


def test_costs_are_weighted_by_time_where_their_limit_is_discounted():
    learner = make(STEADY).init(jax.random.key(0))._replace(nu=jnp.ones(2))
    samples = make_samples(learner.policy)
    half = learner._replace(policy=learner.policy._replace(log_std=learner.policy.log_std + 0.1))
    weighing = dataclasses.replace(STEADY, cost_weights="time")
    after, costs = cup.measured_costs(half, learner, samples, weighing, PROBLEM)
    raw, times = np.asarray(samples.adv_c), np.asarray(samples.times)
    weights = np.stack([0.99**times / np.mean(0.99**times), np.ones(len(times))], axis=1)
    alpha = float(cup.improvement_length(half.policy, learner.policy, samples))
    weighted = weights * raw
    expected = alpha * (weighted - weighted.mean(0)) / weighted.std(0)  # the first variance seen
    np.testing.assert_allclose(costs.adv_c, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.cost_variance, weighted.var(0), rtol=1e-4)


@pytest.mark.parametrize("overshoot", [1.0, 4.0])
def test_no_step_leaves_its_trust_region(overshoot):
    """However far a descent would go: the KL is looked at within an epoch, and it is shortened."""
    wild = dataclasses.replace(STEADY, learning_rate=0.3, nu_init=5.0, overshoot=overshoot)
    _, _, _, metrics = update(wild, costs=(15.0, 60.0), nu=(5.0, 5.0))
    assert 0 < float(metrics["kl_improve"]) <= 1.2 * wild.delta + 1e-6
    assert 0 < float(metrics["kl_project"]) <= 1.2 * wild.delta + 1e-6
    loose = dataclasses.replace(wild, check_every=0)
    _, _, _, metrics = update(loose, costs=(15.0, 60.0), nu=(5.0, 5.0))
    assert float(metrics["kl_improve"]) > 1.5 * wild.delta


def test_a_step_that_sees_the_whole_batch_gains_more_within_the_same_trust_region():
    """An advantage that is a hundredth signal: the gain on fresh samples, of steps whose KL to the
    policy is the same. At the first look beyond delta a step knows little of the batch."""
    size = 4000
    base = dataclasses.replace(
        STEADY, batch_size=size, epochs=10, delta=0.002, check_every=1, learning_rate=1e-3
    )
    gains = {}
    for overshoot in (1.0, 4.0):
        algorithm = make(dataclasses.replace(base, overshoot=overshoot))
        learner = algorithm.init(jax.random.key(0))
        seen, fresh = (
            with_signal(make_samples(learner.policy, size, seed), seed) for seed in (1, 2)
        )
        end, metrics = algorithm.learn(learner, seen, make_batch((0.0, 0.0)), jax.random.key(1), 1)
        assert 0.75 * base.delta < float(metrics["kl_improve"]) < 1.21 * base.delta
        gains[overshoot] = float(jnp.mean((ratio(end.policy, fresh) - 1) * fresh.adv_r))
    assert gains[4.0] > 1.5 * gains[1.0]


def with_signal(samples: Samples, seed: int) -> Samples:
    noise = np.random.default_rng([seed, 7]).normal(size=len(samples.obs))
    signal = np.asarray(samples.actions[:, 0] * samples.obs[:, 0])
    return samples._replace(adv_r=jnp.asarray(noise + 0.1 * signal))


def test_the_projections_own_adam_leaves_the_improvements_alone():
    _, _, own, _ = update(STEADY, costs=(15.0, 60.0))
    shared = dataclasses.replace(STEADY, projection_optimiser="shared")
    _, _, both, _ = update(shared, costs=(15.0, 60.0))
    counts = [jax.tree.leaves(end.policy_opt)[0] for end in (own, both)]
    assert counts[0] < counts[1]


def test_relative_violations_are_alike_for_costs_of_any_size():
    measured, limits = jnp.array([20.0, 5.0, 3.0, 0.0]), jnp.array([10.0, 10.0, 0.0, 0.0])
    np.testing.assert_allclose(relative_violation(measured, limits), [0.5, -0.5, 1.0, 0.0])
    assert np.isnan(relative_violation(jnp.array([jnp.nan]), jnp.array([1.0])))[0]
    config = dataclasses.replace(STEADY, aim=0.5)  # of the limits 10 and 20
    _, _, after, _ = update(config, costs=(10.0, 5.0))
    # P + I = 2 v + 0.1 v, with violations v of 0.5 and -0.5.
    np.testing.assert_allclose(after.nu, [2.1 * 0.5, 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("config", "nu", "share"),
    [
        (STEADY, (0.0, 0.0), 0.1),  # as the improvement's
        (STEADY, (0.5, 1.5), 0.3),  # it goes twice as far as the improvement, and settles
        (STEADY, (50.0, 50.0), 1.0),
        (cup.PAPER, (0.5, 1.5), 0.1),
    ],
)
def test_the_rate_of_the_projection(config, nu, share):
    found = cup.projection_rate(config, jnp.float32(0.9), jnp.asarray(nu))
    assert float(found) == pytest.approx(share * config.learning_rate, rel=1e-5)
