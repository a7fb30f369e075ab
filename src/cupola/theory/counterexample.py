"""The smallest counter-examples to printed claims, and their proof in exact rational arithmetic.

`search` screens small CMDPs in floating point; `check` computes one again with fractions and shares
no code with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cupola.errors import CupolaError
from cupola.theory import bounds, exact
from cupola.theory.bounds import Bound, Cases
from cupola.theory.cmdp import make_cmdp

Record: TypeAlias = dict[str, Any]
Vector: TypeAlias = list[Fraction]
Matrix: TypeAlias = list[Vector]

TERMS = 80
"""Terms of a series that are added exactly; the rest is bounded from above."""
GRAIN = Fraction(1, 10**9)
"""Fractions with larger denominators are rounded up to multiples of it, where a claim allows it."""


class Claim(NamedTuple):
    """A printed claim: its screening, and whether phi is the old policy's value function."""

    title: str
    screen: Callable[[Cases], Bound]
    with_values: bool


CLAIMS = {
    "lemma": Claim("Lemma (distance of the d^lambda)", lambda c: bounds.lemma(c, "printed"), False),
    "theorem_1": Claim(
        "Theorem 1, p = 1, q = inf", lambda c: bounds.theorem_1(c, 1, "printed"), False
    ),
    "proposition_1": Claim(
        "Proposition 1", lambda c: bounds.proposition(c, "lower", "printed"), True
    ),
}

HALF, ONE, ZERO = Fraction(1, 2), Fraction(1), Fraction(0)
LEVELS: tuple[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], ...] = (
    ((ZERO, ONE), (HALF,)),
    ((ZERO, ONE), (HALF, Fraction(3, 4), Fraction(9, 10))),
    ((ZERO, Fraction(1, 4), HALF, Fraction(3, 4), ONE), (HALF, Fraction(3, 4), Fraction(9, 10))),
)
"""Probabilities of a transition, and values of gamma and lambda: tried in this order."""


def search(name: str) -> Record:
    """The simplest counter-example with 2 states and 2 actions to a claim of `CLAIMS`."""
    claim = CLAIMS[name]
    for chances, rates in LEVELS:
        best: tuple[int, float, Record] | None = None
        for records, cases in _candidates(chances, rates, claim.with_values):
            bound = claim.screen(cases)
            for i in np.flatnonzero(bound.excess > 1e-6):
                record = records(int(i))
                rank = (_complexity(record), -float(bound.excess[i]), record)
                if best is None or rank[:2] < best[:2]:
                    best = rank
        if best is not None:
            record = {"claim": name, "title": claim.title, **best[2]}
            return record | _verdict(record)
    raise CupolaError(f"no small counter-example to {claim.title} was found.")


def _candidates(
    chances: tuple[Fraction, ...], rates: tuple[Fraction, ...], with_values: bool
) -> Iterator[tuple[Callable[[int], Record], Cases]]:
    """All CMDPs of a level, as floats [M, ...] and as records, one (gamma, lambda) at a time."""
    moves = np.array(list(itertools.product(chances, repeat=4)))  # P(1|s, a)
    rewards = np.array(list(itertools.product((ZERO, ONE), repeat=4)))
    policies = np.array(list(itertools.product((ZERO, HALF, ONE), repeat=2)))  # pi(1|s)
    old = np.array([[HALF, HALF]])
    grids = np.indices((len(moves), len(rewards), len(policies))).reshape(3, -1)
    table = [
        moves[grids[0]],
        rewards[grids[1]],
        policies[grids[2]],
        np.repeat(old, grids.shape[1], 0),
    ]

    for gamma, lam in itertools.product(rates, repeat=2):

        def record(i: int, gamma: Fraction = gamma, lam: Fraction = lam) -> Record:
            move, reward, new, before = (rows[i].tolist() for rows in table)
            return {
                "gamma": str(gamma),
                "lambda": str(lam),
                "start": ["1", "0"],
                "transitions": [[_pair(move[2 * s + a]) for a in (0, 1)] for s in (0, 1)],
                "reward": [[str(reward[2 * s + a]) for a in (0, 1)] for s in (0, 1)],
                "old": [_pair(before[s]) for s in (0, 1)],
                "new": [_pair(new[s]) for s in (0, 1)],
                "phi": "value function of the old policy" if with_values else ["0", "0"],
            }

        move, reward, new, before = (rows.astype(float) for rows in table)
        count = len(move)
        cmdp = make_cmdp(
            np.stack([1 - move, move], axis=-1).reshape(count, 2, 2, 2),
            reward.reshape(count, 2, 2),
            np.zeros((count, 0, 2, 2, 2)),
            np.zeros((count, 0)),
            np.array([1.0, 0.0]),
            float(gamma),
        )
        after = np.stack([1 - new, new], axis=-1)
        earlier = np.stack([1 - before, before], axis=-1)
        phi = exact.values(cmdp, earlier, cmdp.reward) if with_values else np.zeros((count, 2))
        yield record, Cases(cmdp, after, earlier, np.full(count, float(lam)), phi, cmdp.reward)


def _pair(chance: Fraction) -> list[str]:
    return [str(1 - chance), str(chance)]


def _complexity(record: Record) -> int:
    """How much there is to say: rewards, chances that are not 0 or 1, and large denominators."""
    chances = [Fraction(row[1]) for rows in record["transitions"] for row in rows]
    fractions = sum(chance.denominator.bit_length() for chance in chances)
    paid = sum(value != "0" for row in record["reward"] for value in row)
    moving = sum(chance not in (0, 1) for chance in chances) + sum(c != 0 for c in chances)
    changed = sum(a != b for a, b in zip(record["new"], record["old"], strict=True))
    rates = sum(Fraction(record[key]).denominator for key in ("gamma", "lambda"))
    return fractions + paid + moving + changed + rates


def check(record: Record) -> Fraction:
    """By how much the claim fails, exactly; an error where it does not or the record is damaged."""
    try:
        verdict = _verdict(record)
        stored = {key: record[key] for key in ("truth", "bound", "excess")}
    except (KeyError, TypeError, ValueError, ZeroDivisionError, IndexError) as error:
        raise CupolaError(f"the counter-example is incomplete or damaged ({error!r}).") from None
    if stored != verdict or Fraction(verdict["excess"]) <= 0:
        raise CupolaError(f"the counter-example to {record['claim']} does not hold: {verdict}.")
    return Fraction(verdict["excess"])


def _verdict(record: Record) -> Record:
    truth, bound, excess = PROOFS[record["claim"]](Instance.of(record))
    return {"truth": str(truth), "bound": str(bound), "excess": str(excess)}


class Instance(NamedTuple):
    """A case in fractions."""

    gamma: Fraction
    lam: Fraction
    start: Vector
    transitions: list[Matrix]
    reward: Matrix
    old: Matrix
    new: Matrix
    phi: Vector | None  # None: the old policy's value function

    @classmethod
    def of(cls, record: Record) -> Instance:
        for rows in (*record["transitions"], record["old"], record["new"], [record["start"]]):
            for row in rows:
                if sum(map(Fraction, row)) != 1 or min(map(Fraction, row)) < 0:
                    raise CupolaError(f"{row} is not a probability distribution.")
        given = record["phi"]
        return cls(
            Fraction(record["gamma"]),
            Fraction(record["lambda"]),
            [Fraction(x) for x in record["start"]],
            [[[Fraction(x) for x in row] for row in rows] for rows in record["transitions"]],
            [[Fraction(x) for x in row] for row in record["reward"]],
            [[Fraction(x) for x in row] for row in record["old"]],
            [[Fraction(x) for x in row] for row in record["new"]],
            None if isinstance(given, str) else [Fraction(x) for x in given],
        )

    def chain(self, policy: Matrix) -> Matrix:
        states = range(len(self.start))
        return [
            [sum((policy[s][a] * self.transitions[s][a][t] for a in range(len(policy[s]))), ZERO)
             for t in states]
            for s in states
        ]  # fmt: skip

    def values(self, policy: Matrix) -> Vector:
        mean = [_inner(policy[s], self.reward[s]) for s in range(len(self.start))]
        return _resolvent(self.chain(policy), self.gamma, mean)

    def visits(self, policy: Matrix) -> Vector:
        """d^lambda by its definition."""
        chain, rate = self.chain(policy), self.gamma * self.lam
        size = range(len(chain))
        columns = [_resolvent(chain, rate, [row[t] for row in chain]) for t in size]
        jump = [[(1 - rate) * columns[t][s] for t in size] for s in size]  # P^(lambda)
        tilde = self.gamma * (1 - self.lam) / (1 - rate)
        transposed = [[jump[s][t] for s in size] for t in size]
        return [(1 - tilde) * x for x in _resolvent(transposed, tilde, self.start)]

    def td(self, policy: Matrix, phi: Vector, size: bool = False) -> Vector:
        """E[delta | s], or E|delta| with ``size``."""
        total = []
        for s in range(len(phi)):
            mean = ZERO
            for a, chance in enumerate(policy[s]):
                for t, move in enumerate(self.transitions[s][a]):
                    delta = self.reward[s][a] + self.gamma * phi[t] - phi[s]
                    mean += chance * move * (abs(delta) if size else delta)
            total.append(mean)
        return total


def _inner(left: Vector, right: Vector) -> Fraction:
    return sum((x * y for x, y in zip(left, right, strict=True)), ZERO)


def _times(matrix: Matrix, vector: Vector) -> Vector:
    return [_inner(row, vector) for row in matrix]


def _resolvent(matrix: Matrix, rate: Fraction, vector: Vector) -> Vector:
    """x with (I - rate M) x = f, by elimination."""
    size = len(vector)
    rows = [
        [(ONE if i == j else ZERO) - rate * matrix[i][j] for j in range(size)] + [vector[i]]
        for i in range(size)
    ]
    for i in range(size):
        pivot = next(j for j in range(i, size) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i and rows[j][i] != 0:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[-1] for row in rows]


def _round_up(value: Fraction) -> Fraction:
    """A short fraction that is no smaller."""
    return value if value.denominator < 1 / GRAIN else -((-value) // GRAIN) * GRAIN


def _gain(case: Instance) -> Fraction:
    return _inner(case.start, case.values(case.new)) - _inner(case.start, case.values(case.old))


def _divergences(case: Instance) -> Vector:
    """2 D_TV in every state."""
    return [
        sum((abs(x - y) for x, y in zip(a, b, strict=True)), ZERO)
        for a, b in zip(case.new, case.old, strict=True)
    ]


def _printed_constant(case: Instance) -> Fraction:
    """iota of the paper."""
    rate = case.gamma * case.lam
    tilde = case.gamma * (1 - case.lam) / (1 - rate)
    return tilde * (rate * (len(case.start) - 1) + 1) / ((1 - tilde) * (1 - rate))


def _lemma(case: Instance) -> tuple[Fraction, Fraction, Fraction]:
    new, old = case.visits(case.new), case.visits(case.old)
    truth = sum((abs(x - y) for x, y in zip(new, old, strict=True)), ZERO)
    bound = _printed_constant(case) * _inner(new, _divergences(case))
    return truth, bound, truth - bound


def _theorem_1(case: Instance) -> tuple[Fraction, Fraction, Fraction]:
    """Whichever side fails more; the allowed error is rounded up, so the failure is certain."""
    phi = case.phi or case.values(case.old)
    rate = case.gamma * case.lam
    horizon = (1 - rate) / (1 - case.gamma)
    ahead, behind = case.td(case.new, phi), case.td(case.old, phi)
    new, old = case.visits(case.new), case.visits(case.old)
    change = [x - y for x, y in zip(ahead, behind, strict=True)]
    surrogate = horizon * _inner(old, _resolvent(case.chain(case.old), rate, change))
    chain, series, weight, vector = case.chain(case.new), ZERO, ONE, ahead
    for _ in range(TERMS):
        series += weight * max(map(abs, vector))
        weight, vector = weight * rate, _times(chain, vector)
    series += weight / (1 - rate) * max(map(abs, vector))  # the rest at most
    distance = sum((abs(x - y) for x, y in zip(new, old, strict=True)), ZERO)
    allowed = _round_up(horizon * distance * series)
    truth = _gain(case)
    bound = surrogate + allowed if truth > surrogate else surrogate - allowed
    return truth, bound, abs(truth - surrogate) - allowed


def _proposition_1(case: Instance) -> tuple[Fraction, Fraction, Fraction]:
    phi = case.values(case.old)
    horizon = (1 - case.gamma * case.lam) / (1 - case.gamma)
    old = case.visits(case.old)
    epsilon = max(case.td(case.new, phi, size=True))
    allowed = _printed_constant(case) * epsilon * _inner(old, _divergences(case))
    bound = horizon * (_inner(old, case.td(case.new, phi)) - allowed)
    truth = _gain(case)
    return truth, bound, bound - truth


PROOFS: dict[str, Callable[[Instance], tuple[Fraction, Fraction, Fraction]]] = {
    "lemma": _lemma,
    "theorem_1": _theorem_1,
    "proposition_1": _proposition_1,
}
"""Truth, bound, and by how much the truth is beyond it."""
