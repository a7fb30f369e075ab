"""Every claim on thousands of random cases, and exact CUP against the linear programme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cupola.errors import CupolaError
from cupola.theory import bounds, exact, exact_cup, lp, steps
from cupola.theory.bounds import Bound, Cases, Update, Version
from cupola.theory.cmdp import Cmdp, neighbours, random_cmdps, random_policies

Record: TypeAlias = dict[str, Any]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is done: a title, how many and of how many."""

SIZES = tuple((states, actions) for states in range(2, 9) for actions in range(2, 5))
CHUNK = 250
"""Cases of one size that are computed together: enough for speed, small in memory."""
TOLERANCE = 1e-9
"""Excess over a bound, in units of the largest possible return, that counts as rounding."""
EXPONENTS = (1.0, 2.0, 3.0)
"""p of Theorem 1."""


class Sample(NamedTuple):
    """Random cases: rewards with some phi, with phi = V, a cost with phi = V^c, and an update."""

    some_phi: Cases
    reward: Cases
    cost: Cases
    updated_reward: Cases
    updated_cost: Cases
    update: Update


def random_cases(
    rng: np.random.Generator, count: int, states: int, actions: int, sparse: bool
) -> Sample:
    """``count`` cases of one size.

    lambda is 0 in an eighth of the cases, 1 in a sixteenth and uniform in the others; the new
    policy lies between a thousandth and all of the way to a random one; phi is V in half of them.
    """
    cmdp = random_cmdps(rng, count, states, actions, sparse=sparse)
    old = random_policies(rng, count, states, actions)
    new = neighbours(rng, old, 10 ** rng.uniform(-3, 0, count))
    kind = rng.random(count)
    lam = np.where(kind < 1 / 8, 0.0, np.where(kind > 15 / 16, 1.0, rng.uniform(0, 1, count)))
    paid = cmdp.costs[:, 0]
    values, cost_values = exact.values(cmdp, old, cmdp.reward), exact.values(cmdp, old, paid)
    scale = np.abs(values).max(axis=1, keepdims=True)
    random_phi = scale * rng.normal(size=values.shape)
    phi = np.where(rng.random((count, 1)) < 0.5, values, random_phi)
    update, after = _update(rng, cmdp, old, lam)
    return Sample(
        Cases(cmdp, new, old, lam, phi, cmdp.reward),
        Cases(cmdp, new, old, lam, values, cmdp.reward),
        Cases(cmdp, new, old, lam, cost_values, paid),
        Cases(cmdp, after, old, lam, values, cmdp.reward),
        Cases(cmdp, after, old, lam, cost_values, paid),
        update,
    )


def _update(
    rng: np.random.Generator, cmdp: Cmdp, old: np.ndarray, lam: np.ndarray
) -> tuple[Update, np.ndarray]:
    """One exact CUP iteration with random alpha, beta and a limit that pi_k meets."""
    count = len(lam)
    visits = exact.lambda_visits(cmdp.start, exact.state_transitions(cmdp, old), cmdp.gamma, lam)
    horizon = (1 - cmdp.gamma * lam) / (1 - cmdp.gamma)
    gain = exact.advantages(cmdp, old, cmdp.reward)
    rise = horizon[:, None, None] * exact.advantages(cmdp, old, cmdp.costs[:, 0])
    kink = np.sqrt(2) * steps.spread(old, gain, visits)
    alpha = rng.uniform(0.1, 0.95, count) * kink
    half = steps.improve(old, gain, visits, alpha)
    beta = rng.uniform(0, 1, count) * steps.spread(old, rise, visits)
    predicted = np.abs(exact.dot(visits, np.sum(half * rise, axis=-1)))
    slack = rng.uniform(0.05, 0.95, count) * predicted.clip(1e-9)
    after = steps.project(old, half, rise, visits, beta, slack)
    limit = exact.objective(cmdp, old, cmdp.costs[:, 0]) + slack
    return Update(half, alpha, beta, limit), after


def claims(sample: Sample) -> Iterator[tuple[str, str, Bound]]:
    """Claim, version and its bound on the sample."""
    both: tuple[Version, ...] = ("printed", "corrected")
    three: tuple[Version, ...] = ("printed", "corrected", "products")
    for version in both:
        yield "Lemma", version, bounds.lemma(sample.some_phi, version)
    for p in EXPONENTS:
        q = bounds.conjugate(p)
        title = f"Theorem 1 ({p:g}, {q:g})"
        for version in both:
            yield title, version, bounds.theorem_1(sample.some_phi, p, version)
    for version in three:
        bound = bounds.proposition(sample.reward, "lower", version)
        yield "Proposition 1", version, bound
    for version in three:
        bound = bounds.proposition(sample.cost, "upper", version)
        yield "Proposition 2", version, bound
    yield "Proposition 3, TV-KL", "printed", bounds.pinsker(sample.reward)
    for version in three:
        bound = bounds.proposition(sample.reward, "lower", version, "kl")
        yield "Proposition 3 (of 1)", version, bound
    for version in three:
        bound = bounds.proposition(sample.cost, "upper", version, "kl")
        yield "Proposition 3 (of 2)", version, bound
    for version in both:
        on_return, on_cost = bounds.theorem_2(
            sample.updated_reward, sample.updated_cost, sample.update, version
        )
        yield "Theorem 2, return", version, on_return
        yield "Theorem 2, cost", version, on_cost


class Measured(NamedTuple):
    """One claim on all cases, [N]."""

    distance: np.ndarray  # mean D_TV of the two policies
    excess: np.ndarray
    violated: np.ndarray  # bool
    tightness: np.ndarray
    vacuous: np.ndarray  # bool


class Study(NamedTuple):
    """All claims on N cases."""

    lam: np.ndarray  # [N]
    identity: np.ndarray  # [N], relative error of the lambda-return identity
    claims: dict[tuple[str, str], Measured]


def run(
    rng: np.random.Generator,
    count: int,
    sparse: bool,
    progress: Progress = lambda title, done, total: None,
    sizes: Sequence[tuple[int, int]] = SIZES,
) -> Study:
    """``count`` cases, spread evenly over the ``sizes`` (states, actions)."""
    parts: list[Study] = []
    done = 0
    title = "sparse cases" if sparse else "dense cases"
    for i, (states, actions) in enumerate(sizes):
        left = count // len(sizes) + (i < count % len(sizes))
        while left:
            size = min(left, CHUNK)
            parts.append(_measure(random_cases(rng, size, states, actions, sparse)))
            left, done = left - size, done + size
            progress(title, done, count)
    return Study(
        np.concatenate([part.lam for part in parts]),
        np.concatenate([part.identity for part in parts]),
        {
            key: Measured(*map(np.concatenate, zip(*(p.claims[key] for p in parts), strict=True)))
            for key in parts[0].claims
        },
    )


def _measure(sample: Sample) -> Study:
    cases = sample.some_phi
    scales = [
        1 + np.abs(c.signal).max(axis=(1, 2, 3)) / (1 - c.cmdp.gamma)
        for c in (sample.reward, sample.cost)
    ]
    scale = np.maximum(*scales) + np.abs(cases.phi).max(axis=1)
    measured = {}
    for claim, version, bound in claims(sample):
        pair = sample.updated_reward if claim.startswith("Theorem 2") else cases
        violated = bound.excess > TOLERANCE * scale
        measured[claim, version] = Measured(
            pair.mean_divergence, bound.excess, violated, bound.tightness, bound.vacuous
        )
    return Study(cases.lam, bounds.identity(cases) / scale, measured)


def summary(study: Study) -> list[Record]:
    """One row a claim and version."""
    positive = study.lam > 0
    rows = []
    for (claim, version), measured in study.claims.items():
        violated = measured.violated
        rows.append(
            {
                "claim": claim,
                "version": version,
                "cases": len(violated),
                "violations": int(violated.sum()),
                "cases_lambda_0": int((~positive).sum()),
                "violations_lambda_0": int((violated & ~positive).sum()),
                "worst_violation": float(np.max(measured.excess[violated], initial=0.0)),
                "median_tightness": middle(measured.tightness),
                "vacuous": float(measured.vacuous.mean()),
            }
        )
    return rows


def middle(values: np.ndarray) -> float | None:
    """The median of what is known; None where nothing is, or where it is infinite."""
    known = values[~np.isnan(values)]
    median = float(np.median(known)) if len(known) else np.inf
    return median if np.isfinite(median) else None


class Race(NamedTuple):
    """Exact CUP on M feasible CMDPs against their optima."""

    cmdp: Cmdp
    optima: list[lp.Optimum]
    path: exact_cup.Path

    @property
    def gap(self) -> np.ndarray:
        """(J* - J) / |J*| of every iteration, [I + 1, M]."""
        best = np.array([optimum.value for optimum in self.optima])
        return (best - self.path.returns) / np.abs(best)

    @property
    def violation(self) -> np.ndarray:
        """Largest relative excess of a cost over its limit, [I + 1, M]."""
        return ((self.path.costs - self.cmdp.limits) / np.abs(self.cmdp.limits)).max(axis=-1)


def race(
    rng: np.random.Generator,
    count: int,
    states: int,
    actions: int,
    costs: int = 1,
    iterations: int = 200,
    lam: float = 0.0,
) -> Race:
    """Exact CUP from the uniform policy on CMDPs whose limits bind and can be met."""
    cmdp, optima = constrained(rng, count, states, actions, costs)
    return Race(cmdp, optima, exact_cup.run(cmdp, iterations, lam=lam))


def constrained(
    rng: np.random.Generator, count: int, states: int, actions: int, costs: int = 1
) -> tuple[Cmdp, list[lp.Optimum]]:
    """CMDPs with limits between the lowest cost and that of the unconstrained optimum."""
    cmdp = random_cmdps(rng, count, states, actions, costs)
    optima: list[lp.Optimum] = []
    for i in range(count):
        one = cmdp.case(i)
        free = lp.solve(one._replace(costs=one.costs[:0], limits=one.limits[:0]))
        spent = exact.returns(one, free.policy)[1]
        lowest = np.array([lp.lowest_cost(one, k) for k in range(costs)])
        share = rng.uniform(0.2, 0.8)
        while True:
            limits = lowest + share * (spent - lowest).clip(0.02 * spent)
            try:
                optima.append(lp.solve(one._replace(limits=limits)))
                break
            except CupolaError:  # each can be met, but not all at once
                share = (1 + share) / 2
        cmdp.limits[i] = limits
    return cmdp, optima
