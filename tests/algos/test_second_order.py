"""TRPO, TRPO-L, CPO and PCPO against a model of the whole update in numpy and scipy.

The model writes the policy out, differentiates by complex steps and solves with the dense Fisher
matrix; it takes nothing from cupola but the parameters and the samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize, nnls

from cupola.algos import cpo, crpo, pcpo, trpo, trpo_lag
from cupola.types import Batch, Learner, Problem, Samples

OBS, ACT, SIZE = 3, 2, 120
DELTA, DAMPING, GAMMA = 0.01, 0.1, 0.99
LIMITS, HORIZONS = np.array([10.0, 20.0]), np.array([50.0, 100.0])
DISCOUNTED = np.array([True, False])
SETTINGS = {
    "batch_size": SIZE,
    "num_envs": 4,
    "hidden": (4, 3),
    "last_layer_scale": 1.0,
    "cg_iterations": 60,
    "damping": DAMPING,
    "value_iterations": 1,
}


def make_problem(costs: int) -> Problem:
    names = ("first", "second")[:costs]
    return Problem(OBS, ACT, names, tuple(LIMITS[:costs]), tuple(DISCOUNTED[:costs]))


@functools.cache
def make_learn(module, costs: int, **settings):
    """Compiled once for all tests."""
    return module.make(module.Config(**SETTINGS, **settings), make_problem(costs)).learn


class Model:
    """A learner's policy pi_k, samples of it, and what follows from both, in numpy."""

    def __init__(self, module, costs: int, seed: int) -> None:
        config = module.Config(**SETTINGS)
        self.learner: Learner = module.make(config, make_problem(costs)).init(jax.random.key(seed))
        theta, _ = ravel_pytree(self.learner.policy)
        self.theta = np.asarray(theta)
        self.shapes = [leaf.shape for leaf in jax.tree.leaves(self.learner.policy)]
        rng = np.random.default_rng(seed)
        self.obs = rng.normal(size=(SIZE, OBS))
        self.mean, self.std = self.gaussian(self.theta)
        self.actions = self.mean + self.std * rng.normal(size=(SIZE, ACT))
        # Advantages that the actions explain in part, as real ones.
        slopes = rng.normal(size=(ACT, 1 + costs))
        adv = np.tanh(self.actions) @ slopes + 0.5 * rng.normal(size=(SIZE, 1 + costs))
        self.adv_r, self.adv_c = (adv[:, 0] - adv[:, 0].mean()) / adv[:, 0].std(), adv[:, 1:]
        self.fisher = self.make_fisher()

    def gaussian(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean [B, A] and standard deviation [A]; differentiable by complex steps."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        *layers, log_std = (
            part.reshape(shape)
            for part, shape in zip(np.split(theta, ends[:-1]), self.shapes, strict=True)
        )
        x = self.obs
        for weight, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
            x = np.tanh(x @ weight + bias)
        return x @ layers[-2] + layers[-1], np.exp(log_std)

    def log_prob(self, theta: np.ndarray) -> np.ndarray:
        mean, std = self.gaussian(theta)
        z = (self.actions - mean) / std
        return np.sum(-0.5 * z**2 - np.log(std) - 0.5 * math.log(2 * math.pi), axis=1)

    def expected(self, advantage: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """theta -> mean rho A."""
        old = self.log_prob(self.theta)
        return lambda theta: np.exp(self.log_prob(theta) - old) @ advantage / SIZE

    def kl(self, theta: np.ndarray) -> float:
        """Mean KL(pi_k || pi_theta)."""
        mean, std = self.gaussian(theta)
        terms = np.log(std / self.std) + (self.std**2 + (self.mean - mean) ** 2) / (2 * std**2)
        return np.mean(np.sum(terms - 0.5, axis=1))

    def derivative(self, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """[..., P] at theta_k, exact to rounding."""
        steps = 1e-30j * np.eye(len(self.theta))
        return np.stack([np.imag(function(self.theta + s)) for s in steps], axis=-1) / 1e-30

    def make_fisher(self) -> np.ndarray:
        """Hessian of the mean KL, and the damping, [P, P]."""
        jacobian = self.derivative(lambda theta: self.gaussian(theta)[0]) / self.std[:, None]
        fisher = np.einsum("bap,baq->pq", jacobian, jacobian) / SIZE
        fisher[-ACT:, -ACT:] += 2 * np.eye(ACT)
        return fisher + DAMPING * np.eye(len(self.theta))

    def samples(self) -> Samples:
        count = 1 + self.adv_c.shape[1]
        arrays = (
            self.obs,
            self.actions,
            self.mean,
            self.log_prob(self.theta),
            np.column_stack([self.adv_r, self.adv_c]),
            self.adv_r,
            self.adv_c,
            np.zeros((SIZE, count)),
            np.zeros((SIZE, count)),
            np.zeros(SIZE, int),
        )
        return Samples(*map(jnp.asarray, arrays))

    def update(self, learn, cost_returns: np.ndarray) -> tuple[np.ndarray, Learner, dict]:
        """The parameters after cupola's update, the learner, and the metrics."""
        horizons = HORIZONS[: len(cost_returns)]
        batch = Batch(None, jnp.asarray(cost_returns), jnp.asarray(horizons), jnp.zeros(()))
        after, metrics = learn(self.learner, self.samples(), batch, jax.random.key(0), 1)
        return np.asarray(ravel_pytree(after.policy)[0]), after, metrics


def shortened(
    model: Model, step: np.ndarray, good: Callable[[np.ndarray], bool]
) -> tuple[np.ndarray, int]:
    """theta_k + 0.8^j step for the first j < 10 that is within the trust region and good."""
    for tries in range(10):
        theta = model.theta + 0.8**tries * step
        if model.kl(theta) <= DELTA and good(theta):
            return theta, tries
    return model.theta, 10


def close(ours: np.ndarray, expected: np.ndarray, step: np.ndarray) -> bool:
    """Equal but for what conjugate gradients leave."""
    return np.linalg.norm(ours - expected) < 1e-3 * np.linalg.norm(step)


def lowering_step(model: Model, advantage: np.ndarray) -> np.ndarray:
    """TRPO's, for the loss -mean rho A."""
    gradient = -model.derivative(model.expected(advantage))
    direction = np.linalg.solve(model.fisher, gradient)
    return -np.sqrt(2 * DELTA / (direction @ model.fisher @ direction)) * direction


@pytest.mark.parametrize("seed", range(6))
def test_trpo_takes_the_shortened_natural_gradient(x64, seed):
    model = Model(trpo, 2, seed)
    ours, _, metrics = model.update(make_learn(trpo, 2), LIMITS)
    objective = model.expected(model.adv_r)
    step = lowering_step(model, model.adv_r)
    expected, tries = shortened(model, step, lambda t: objective(t) >= objective(model.theta))
    assert close(ours, expected, step)
    assert int(metrics["backtracks"]) == tries < 10
    assert float(metrics["kl"]) == pytest.approx(model.kl(ours), rel=1e-6)
    assert model.kl(ours) <= DELTA
    assert objective(ours) >= objective(model.theta)


@pytest.mark.parametrize("seed", range(6))
def test_trpo_l_takes_the_shortened_natural_gradient_of_the_priced_advantage(x64, seed):
    model = Model(trpo_lag, 2, seed)
    costs = LIMITS + np.random.default_rng(seed).uniform(-10, 100, 2)
    ours, after, metrics = model.update(make_learn(trpo_lag, 2), costs)
    nu = np.clip(0.01 * (costs - LIMITS), 0, 2)
    np.testing.assert_allclose(after.nu, nu, atol=1e-12)
    adv_c = (model.adv_c - model.adv_c.mean(0)) / model.adv_c.std(0)
    advantage = (model.adv_r - adv_c @ nu) / (1 + nu.sum())
    objective, step = model.expected(advantage), lowering_step(model, advantage)
    expected, tries = shortened(model, step, lambda t: objective(t) >= objective(model.theta))
    assert close(ours, expected, step)
    assert int(metrics["backtracks"]) == tries < 10
    assert model.kl(ours) <= DELTA
    assert objective(ours) >= objective(model.theta)


@pytest.mark.parametrize(
    ("excess", "lowered"),
    [
        ((-1.0, -1.0), None),  # both limits hold: the reward's step
        ((3.0, -1.0), 0),
        ((-1.0, 3.0), 1),
        ((3.0, 9.0), 1),  # 0.03 and 0.09 per step
        ((9.0, 9.0), 0),  # equal per step: the first
        ((0.4, 0.6), 1),  # the other one is within its tolerance
        ((0.4, math.nan), None),  # within the tolerance, or not known yet
    ],
)
def test_crpo_lowers_the_cost_that_is_furthest_above_its_limit(x64, excess, lowered):
    model = Model(crpo, 2, 0)
    learn = make_learn(crpo, 2, tolerance=0.5)
    ours, _, metrics = model.update(learn, LIMITS + np.array(excess))
    cost = model.adv_c[:, lowered or 0]
    advantage = model.adv_r if lowered is None else cost.mean() - cost
    objective, step = model.expected(advantage), lowering_step(model, advantage)
    expected, tries = shortened(model, step, lambda t: objective(t) >= objective(model.theta))
    assert close(ours, expected, step)
    assert int(metrics["backtracks"]) == tries < 10
    assert int(metrics["rectifies"]) == (lowered is not None)


def test_trpo_l_loss_and_gradient(x64):
    model, nu = Model(trpo_lag, 2, 0), np.array([0.4, 0.7])
    _, policy = ravel_pytree(model.learner.policy)
    samples = model.samples()
    model.theta = model.theta + 0.05 * np.random.default_rng(1).normal(size=model.theta.shape)
    old = np.asarray(samples.log_prob)

    def independent(theta):
        rho = np.exp(model.log_prob(theta) - old)
        costs = sum(nu[i] * np.mean(rho * model.adv_c[:, i]) for i in range(2))
        return -(np.mean(rho * model.adv_r) - costs) / (1 + nu[0] + nu[1])

    value, gradient = jax.jit(
        jax.value_and_grad(lambda theta: trpo_lag.loss(policy(theta), samples, jnp.asarray(nu)))
    )(jnp.asarray(model.theta))
    assert float(value) == pytest.approx(independent(model.theta), rel=1e-12)
    np.testing.assert_allclose(gradient, model.derivative(independent), atol=1e-12)


def test_violations_per_step_by_hand():
    """0.01 (15 - 10) for the discounted limit, (40 - 20) / 100 for the other; NaN: not known."""
    batch = Batch(None, jnp.array([15.0, 40.0]), jnp.asarray(HORIZONS), jnp.zeros(()))
    np.testing.assert_allclose(
        cpo.violation_per_step(batch, make_problem(2), GAMMA), [0.05, 0.2], rtol=1e-5
    )
    batch = batch._replace(cost_returns=jnp.array([jnp.nan, 0.0]))
    np.testing.assert_allclose(
        cpo.violation_per_step(batch, make_problem(2), GAMMA), [-np.inf, -0.2], rtol=1e-5
    )


class Constrained(Model):
    """The linearised problem of CPO and PCPO with violations of ``levels`` times their reach."""

    def __init__(self, module, levels: tuple[float, ...], seed: int) -> None:
        costs = len(levels)
        super().__init__(module, costs, seed)
        self.objective = self.expected(self.adv_r)
        self.cost = self.expected(self.adv_c - self.adv_c.mean(0))
        self.g, self.rows = -self.derivative(self.objective), self.derivative(self.cost)
        self.inverse = np.linalg.inv(self.fisher)
        self.reach = np.sqrt(2 * DELTA * np.diag(self.rows @ self.inverse @ self.rows.T))
        self.c = np.array(levels) * self.reach
        unit = np.where(DISCOUNTED, 1 / (1 - GAMMA), HORIZONS)[:costs]
        self.cost_returns = LIMITS[:costs] + self.c * unit

    def accepted(self, step: np.ndarray, improves: bool) -> tuple[np.ndarray, int]:
        slack = np.maximum(np.maximum(-self.c, 0), self.rows @ step) + 1e-9

        def good(theta):
            better = self.objective(theta) >= self.objective(self.theta) or not improves
            return better and np.all(self.cost(theta) - self.cost(self.theta) <= slack)

        return shortened(self, step, good)


def cpo_step(model: Constrained) -> tuple[np.ndarray, bool]:
    """By SLSQP over the span of H^-1 g and H^-1 G', orthonormal in H; and whether c can be met."""
    vectors = np.vstack([model.g, model.rows])
    root = np.linalg.cholesky(vectors @ model.inverse @ vectors.T)  # x = basis z, |z|^2 = x'Hx
    basis = model.inverse @ vectors.T @ np.linalg.inv(root).T
    radius, size = math.sqrt(2 * DELTA), len(vectors)
    levels = model.c / radius
    inside = {"type": "ineq", "fun": lambda z: 1 - z[:size] @ z[:size]}
    # The largest violation, each divided by its reach.
    reach = np.linalg.norm(root[1:], axis=1)
    below = {"type": "ineq", "fun": lambda z: z[size] - (root[1:] @ z[:size] + levels) / reach}
    start = np.append(np.zeros(size), (levels / reach).max() + 1)
    lowest = minimize(
        lambda z: z[size], start, method="SLSQP", constraints=[inside, below], tol=1e-14
    )
    if lowest.fun > 0:
        return radius * basis @ lowest.x[:size], False
    below = {"type": "ineq", "fun": lambda z: -root[1:] @ z - levels}
    best = minimize(
        lambda z: root[0] @ z / root[0, 0],
        lowest.x[:size],
        method="SLSQP",
        constraints=[inside, below],
        tol=1e-14,
    )
    return radius * basis @ best.x, True


ONE = [(-2.0,), (-0.3,), (0.0,), (0.5,), (1.5,)]
TWO = [(-2.0, -1.5), (-0.2, -0.3), (0.4, -0.5), (-3.0, 0.1), (1.5, -0.5), (1.4, 1.2)]


@pytest.mark.parametrize("levels", ONE + TWO, ids=str)
def test_cpo_takes_the_shortened_solution_of_its_linearised_problem(x64, levels):
    for seed in range(2):
        model = Constrained(cpo, levels, seed)
        ours, _, metrics = model.update(make_learn(cpo, len(levels)), model.cost_returns)
        step, feasible = cpo_step(model)
        assert bool(metrics["feasible"]) == feasible
        if feasible:
            assert np.all(model.rows @ step + model.c < 1e-6)
        safe = max(levels) < 0
        expected, tries = model.accepted(step, improves=safe)
        assert int(metrics["backtracks"]) == tries
        assert close(ours, expected, step)
        assert model.kl(ours) <= DELTA
        # At the very limit the least curvature makes every length raise the cost.
        assert tries < 10 or levels == (0.0,)
        if safe:
            assert model.objective(ours) >= model.objective(model.theta)
        if len(levels) == 1 and levels[0] > 1:
            recovery = model.inverse @ model.rows[0]
            recovery *= -math.sqrt(2 * DELTA / (model.rows[0] @ recovery))
            assert close(step, recovery, recovery)


@pytest.mark.parametrize("levels", [(1.5,), (3.0,), (1.5, 1.2)], ids=str)
def test_beyond_reach_of_the_limits_the_largest_violation_falls(x64, levels):
    for seed in range(4):
        model = Constrained(cpo, levels, seed)
        ours, _, metrics = model.update(make_learn(cpo, len(levels)), model.cost_returns)
        assert int(metrics["backtracks"]) < 10
        violation = model.c + model.cost(ours) - model.cost(model.theta)
        assert np.max(violation / model.reach) < max(levels)


@pytest.mark.parametrize("levels", TWO, ids=str)
@pytest.mark.parametrize("metric", ["kl", "l2"])
def test_pcpo_takes_the_shortened_projection_of_the_natural_gradient(x64, metric, levels):
    for seed in range(2):
        model = Constrained(pcpo, levels, seed)
        learn = make_learn(pcpo, 2, projection=metric)
        ours, _, metrics = model.update(learn, model.cost_returns)
        start = lowering_step(model, model.adv_r)
        columns = (model.inverse if metric == "kl" else np.eye(len(start))) @ model.rows.T
        # min mu'S mu / 2 - mu'd over mu >= 0 is least squares with R'R = S.
        root = np.linalg.cholesky(model.rows @ columns).T
        mu, _ = nnls(root, np.linalg.solve(root.T, model.rows @ start + model.c))
        step = start - columns @ mu
        assert np.all(model.rows @ step + model.c < 1e-8)
        expected, tries = model.accepted(step, improves=False)
        assert int(metrics["backtracks"]) == tries < 10
        assert close(ours, expected, step)
        assert model.kl(ours) <= DELTA
