"""The claims of the paper's Section 3, as printed and corrected, on many cases at once.

Throughout, ``new`` is pi_theta and ``old`` is pi_theta', the policy that samples come from; a case
is a CMDP, the two policies, lambda and a function phi on the states. docs/theory.md has the
statements and the proofs of the corrected ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from cupola.theory import exact
from cupola.theory.cmdp import Cmdp
from cupola.theory.exact import dot

Version: TypeAlias = Literal["printed", "corrected", "products"]
"""As printed; corrected with the printed surrogate; corrected with products of ratios."""

SERIES_TOLERANCE = 1e-13
"""Share of a series' bound below which its remainder is dropped."""


class Bound(NamedTuple):
    """``lower`` <= ``truth`` <= ``upper`` is what a claim says, all [M]."""

    truth: np.ndarray
    surrogate: np.ndarray  # what the claim takes for the truth
    lower: np.ndarray  # minus infinity where the claim is an upper bound
    upper: np.ndarray
    floor: np.ndarray  # what is known anyway: floor <= truth <= ceiling
    ceiling: np.ndarray

    @property
    def excess(self) -> np.ndarray:
        """By how much the truth lies outside, [M]; negative inside."""
        return np.maximum(self.lower - self.truth, self.truth - self.upper)

    @property
    def tightness(self) -> np.ndarray:
        """Error of the surrogate over the error that the claim allows, [M]; above 1 it fails.

        NaN where a one-sided claim's surrogate errs on the harmless side.
        """
        allowed = np.fmin(self.surrogate - self.lower, self.upper - self.surrogate)
        error = self.truth - self.surrogate
        harmless = np.where(error > 0, self.upper, -self.lower) == np.inf
        error = np.abs(error)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(allowed > 0, error / allowed, np.where(error > 1e-12, np.inf, 1.0))
        return np.where(harmless, np.nan, ratio)

    @property
    def vacuous(self) -> np.ndarray:
        """Whether the claim says no more than what is known anyway, [M] bool."""
        return (self.lower <= self.floor) & (self.upper >= self.ceiling)


@dataclass(frozen=True)
class Cases:
    """M cases and what the claims share about them; the signal is the reward or a cost."""

    cmdp: Cmdp
    new: np.ndarray  # [M, S, A]
    old: np.ndarray  # [M, S, A]
    lam: np.ndarray  # [M]
    phi: np.ndarray  # [M, S]
    signal: np.ndarray  # [M, S, A, S]

    @cached_property
    def p_new(self) -> np.ndarray:
        return exact.state_transitions(self.cmdp, self.new)

    @cached_property
    def p_old(self) -> np.ndarray:
        return exact.state_transitions(self.cmdp, self.old)

    @cached_property
    def visits_new(self) -> np.ndarray:
        """d^lambda of the new policy, [M, S]."""
        return exact.lambda_visits(self.cmdp.start, self.p_new, self.cmdp.gamma, self.lam)

    @cached_property
    def visits_old(self) -> np.ndarray:
        return exact.lambda_visits(self.cmdp.start, self.p_old, self.cmdp.gamma, self.lam)

    @cached_property
    def delta_new(self) -> np.ndarray:
        """delta^phi_{new,0} [M, S]."""
        return exact.mean_td_error(self.cmdp, self.new, self.signal, self.phi)

    @cached_property
    def delta_old(self) -> np.ndarray:
        return exact.mean_td_error(self.cmdp, self.old, self.signal, self.phi)

    @cached_property
    def mean_size(self) -> np.ndarray:
        """max_s E_{a ~ new}|delta^phi|, [M]: the most generous reading of the paper's epsilon."""
        size = np.abs(exact.td_errors(self.cmdp, self.signal, self.phi))
        per_state = np.einsum("...sa,...sa->...s", self.new, exact.expected(self.cmdp, size))
        return per_state.max(axis=-1)

    @cached_property
    def gain(self) -> np.ndarray:
        """J(new) - J(old), [M]."""
        return exact.objective(self.cmdp, self.new, self.signal) - self.value_old

    @cached_property
    def value_old(self) -> np.ndarray:
        return exact.objective(self.cmdp, self.old, self.signal)

    @cached_property
    def divergence(self) -> np.ndarray:
        """D_TV(old, new) [M, S]."""
        return exact.total_variation(self.old, self.new)

    @cached_property
    def mean_divergence(self) -> np.ndarray:
        """E[D_TV] over d^lambda of the old policy, [M]."""
        return dot(self.visits_old, self.divergence)

    @cached_property
    def root_kl(self) -> np.ndarray:
        """sqrt(E[KL(old, new)] / 2) over d^lambda of the old policy, [M]; at least E[D_TV]."""
        return np.sqrt(0.5 * dot(self.visits_old, exact.kl(self.old, self.new)))

    @cached_property
    def horizon(self) -> np.ndarray:
        """1/(1 - gamma~) = (1 - gamma lambda)/(1 - gamma), [M]."""
        return (1 - self.cmdp.gamma * self.lam) / (1 - self.cmdp.gamma)

    @cached_property
    def iota(self) -> np.ndarray:
        """The constant of the printed Lemma, [M]."""
        gamma, tilde = self.cmdp.gamma, exact.gamma_tilde(self.cmdp.gamma, self.lam)
        rate = gamma * self.lam
        return tilde * (rate * (self.cmdp.states - 1) + 1) / ((1 - tilde) * (1 - rate))

    def bound(self, surrogate: np.ndarray, below: np.ndarray, above: np.ndarray) -> Bound:
        """surrogate - below <= J(new) - J(old) <= surrogate + above."""
        mean = exact.expected(self.cmdp, self.signal) / (1 - self.cmdp.gamma)[:, None, None]
        return Bound(
            self.gain,
            surrogate,
            surrogate - below,
            surrogate + above,
            mean.min(axis=(1, 2)) - self.value_old,
            mean.max(axis=(1, 2)) - self.value_old,
        )


def identity(cases: Cases) -> np.ndarray:
    """Error [M] of the lambda-return identity for the new policy.

    J(pi) = E[phi(s_0)] + 1/(1 - gamma~) sum_t (gamma lambda)^t <d^lambda, delta_{pi,t}>.
    """
    rate = cases.cmdp.gamma * cases.lam
    series = exact.discounted_sum(cases.p_new, cases.delta_new, rate)
    claimed = dot(cases.cmdp.start, cases.phi) + cases.horizon * dot(cases.visits_new, series)
    return np.abs(cases.gain + cases.value_old - claimed)


def lemma(cases: Cases, version: Version) -> Bound:
    """The L1 distance of the two policies' d^lambda.

    Corrected: gamma/(1-gamma) E_{d^lambda_new}[2 D_TV], for every lambda and without |S|.
    """
    truth = np.abs(cases.visits_new - cases.visits_old).sum(axis=-1)
    gamma = cases.cmdp.gamma
    constant = cases.iota if version == "printed" else gamma / (1 - gamma)
    upper = constant * 2 * dot(cases.visits_new, cases.divergence)
    none = np.zeros_like(truth)
    return Bound(truth, none, none - np.inf, upper, none, none + 2)


def theorem_1(cases: Cases, p: float, version: Version) -> Bound:
    """The two-sided bound for the exponents p and q, 1/p + 1/q = 1.

    As printed, Delta_t = P_old^t (delta_new - delta_old): one ratio at time t. Corrected,
    Delta_t = P_new^t delta_new - P_old^t delta_old: the product of the ratios up to t.
    """
    rate = cases.cmdp.gamma * cases.lam
    if version == "printed":
        change = exact.discounted_sum(cases.p_old, cases.delta_new - cases.delta_old, rate)
    else:
        change = exact.discounted_sum(cases.p_new, cases.delta_new, rate)
        change = change - exact.discounted_sum(cases.p_old, cases.delta_old, rate)
    distance = np.linalg.norm(cases.visits_new - cases.visits_old, ord=p, axis=-1)
    error = distance * norm_series(cases.p_new, cases.delta_new, rate, conjugate(p))
    error = cases.horizon * error
    return cases.bound(cases.horizon * dot(cases.visits_old, change), error, error)


def conjugate(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    return math.inf if p == 1 else 1.0 if p == math.inf else p / (p - 1)


def norm_series(
    transitions: np.ndarray, vector: np.ndarray, rate: np.ndarray, q: float
) -> np.ndarray:
    """sum_t rate^t ||P^t f||_q, [M]; a remainder below SERIES_TOLERANCE of the bound is dropped."""
    order = np.argsort(-rate, kind="stable")
    p, f, decay = transitions[order], vector[order], rate[order]
    total, weight = np.zeros(len(rate)), np.ones(len(rate))
    count = len(rate)
    while count:
        total[:count] += weight[:count] * np.linalg.norm(f[:count], ord=q, axis=-1)
        weight[:count] *= decay[:count]
        count = int(np.count_nonzero(weight[:count] > SERIES_TOLERANCE * (1 - decay[:count])))
        f = np.einsum("mst,mt->ms", p[:count], f[:count])
    result = np.empty_like(total)
    result[order] = total
    return result


def proposition(
    cases: Cases,
    side: Literal["lower", "upper"],
    version: Version,
    distance: Literal["tv", "kl"] = "tv",
) -> Bound:
    """Proposition 1 (lower, the reward) or 2 (upper, a cost), in its TV or KL form (Proposition 3).

    ``phi`` must be the old policy's value function, so that GAE is in expectation the advantage.
    """
    gamma, rate = cases.cmdp.gamma, cases.cmdp.gamma * cases.lam
    # a(s) = E_{a ~ new}[A_old(s, a)], which is delta_{new,0}.
    gain = cases.delta_new
    size = np.abs(gain).max(axis=-1)
    spread = cases.mean_divergence if distance == "tv" else cases.root_kl
    surrogate = cases.horizon * dot(cases.visits_old, gain)
    if version == "printed":
        error = cases.horizon * cases.iota * cases.mean_size * 2 * spread
    else:
        error = cases.horizon * gamma / (1 - gamma) * size * 2 * spread
        if version == "corrected":
            worst = -gain if side == "lower" else gain
            error = error + rate / (1 - gamma) * np.maximum(worst.max(axis=-1), 0)
        else:
            later = exact.discounted_sum(cases.p_new, gain, rate)
            surrogate = cases.horizon * dot(cases.visits_old, later)
            error = error / size.clip(1e-300) * np.abs(later).max(axis=-1)
    never = np.full_like(error, np.inf)
    below, above = (error, never) if side == "lower" else (never, error)
    return cases.bound(surrogate, below, above)


def pinsker(cases: Cases) -> Bound:
    """The substitution of Proposition 3: E[D_TV] <= sqrt(E[KL]/2)."""
    none = np.zeros_like(cases.root_kl)
    return Bound(cases.mean_divergence, none, none - np.inf, cases.root_kl, none, none + 1)


class Update(NamedTuple):
    """One exact iteration of CUP from pi_k = ``old`` with J^c(pi_k) <= ``limit``."""

    half: np.ndarray  # [M, S, A], pi_{k+1/2}
    alpha: np.ndarray  # [M]
    beta: np.ndarray  # [M]
    limit: np.ndarray  # [M]


def theorem_2(reward: Cases, cost: Cases, update: Update, version: Version) -> tuple[Bound, Bound]:
    """The two bounds: on J(pi_{k+1}) - J(pi_k) from below, on J^c(pi_{k+1}) - b from above.

    The cases hold pi_k as ``old``, pi_{k+1} as ``new`` and the value functions of pi_k as ``phi``.
    """
    cmdp, gamma, lam = reward.cmdp, reward.cmdp.gamma, reward.lam
    horizon, rate = reward.horizon, gamma * lam
    root = np.sqrt(dot(reward.visits_old, exact.kl(reward.old, update.half)))
    if version == "printed":
        drop = horizon * reward.iota * update.alpha * np.sqrt(2) * root * reward.mean_size
        rise = horizon * reward.iota * update.beta * np.sqrt(2) * root * cost.mean_size
    else:
        second_order = 2 * np.sqrt(2) * gamma / (1 - gamma) * root
        adv = exact.advantages(cmdp, reward.old, reward.signal)
        half_span = 0.5 * np.ptp(adv, axis=-1).max(axis=-1)
        gain, loss = reward.delta_new, cost.delta_new
        drop = horizon * (
            (np.sqrt(2) * half_span - update.alpha) * root
            + second_order * np.abs(gain).max(axis=-1)
        ) + rate / (1 - gamma) * np.maximum((-gain).max(axis=-1), 0)
        rise = (
            horizon * second_order * np.abs(loss).max(axis=-1)
            + rate / (1 - gamma) * np.maximum(loss.max(axis=-1), 0)
            - update.beta * np.sqrt(2) * reward.root_kl
        )
    never = np.full_like(drop, np.inf)
    nothing = np.zeros_like(drop)
    on_return = reward.bound(nothing, drop, never)
    on_cost = cost.bound(nothing, never, rise)
    shift = cost.value_old - update.limit  # the claim is about J^c(pi_{k+1}) - b
    return on_return, on_cost._replace(
        truth=on_cost.truth + shift,
        floor=on_cost.floor + shift,
        ceiling=on_cost.ceiling + shift,
    )
