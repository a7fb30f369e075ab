"""CUP in policy space on finite CMDPs: no networks, no samples, every step solved to optimality.

One iteration, with d = d^lambda, A and A^{c_i} exact for pi_k and kappa = 1/(1 - gamma~):

1. improvement   pi_{k+1/2} = argmax_pi  E_{d, a ~ pi}[A] - tau E_d KL(pi, pi_k)
                 = pi_k exp(A / tau), normalised in every state
2. projection    pi_{k+1} = argmin_pi  E_d KL(pi, pi_{k+1/2})
                 subject to J^{c_i}(pi_k) + kappa E_{d, a ~ pi}[A^{c_i}] <= b_i
                 = pi_{k+1/2} exp(-kappa sum_i nu_i A^{c_i}), normalised
3. dual step     nu = the projection's own multipliers, which maximise its concave dual

Where pi_{k+1} = pi_k, A - tau kappa sum_i nu_i A^{c_i} is constant over the actions of pi_k:
pi_k is optimal for the multipliers tau kappa nu, whatever lambda. But only lambda = 0 gets there:
with lambda > 0 the predicted change of a cost is too small already to first order (docs/theory.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cupola.theory import exact
from cupola.theory.cmdp import Cmdp

NEWTON = 50
STRONGEST = 1e3
"""Bound on nu times the largest rise, reached where no policy is predicted to be safe."""
RECOVERY = 0.5
"""Share of a violation that one projection takes back: predictions reach only so far."""
FAINTEST = -30.0
"""Log probability below which no action falls, so that none is lost for good."""


class Path(NamedTuple):
    """I iterations on M CMDPs; entry 0 is the first policy."""

    returns: np.ndarray  # [I + 1, M]
    costs: np.ndarray  # [I + 1, M, K]
    multipliers: np.ndarray  # [I + 1, M, K], in units of reward: tau kappa nu
    policy: np.ndarray  # [M, S, A], the last one


def run(
    cmdp: Cmdp,
    iterations: int = 300,
    *,
    lam: float = 0.0,
    temperature: float = 0.25,
    policy: np.ndarray | None = None,
) -> Path:
    """CUP from ``policy`` [M, S, A] (uniform by default), on M CMDPs or on a single one (M = 1).

    tau is ``temperature`` times the largest advantage of the iteration.
    """
    if not cmdp.cases:
        cmdp = Cmdp(*(array[None] for array in cmdp))
    cases = cmdp.cases
    if policy is None:
        policy = np.full((*cases, cmdp.states, cmdp.actions), 1 / cmdp.actions)
    lams = np.full(cases, lam)
    kappa = (1 - cmdp.gamma * lams) / (1 - cmdp.gamma)
    log_policy = np.log(policy)
    returns, costs, multipliers = [], [], [np.zeros_like(cmdp.limits)]
    for _ in range(iterations):
        value, cost = exact.returns(cmdp, policy)
        returns.append(value)
        costs.append(cost)
        visits = exact.lambda_visits(
            cmdp.start, exact.state_transitions(cmdp, policy), cmdp.gamma, lams
        )
        gain = exact.advantages(cmdp, policy, cmdp.reward)
        rises = np.stack(
            [exact.advantages(cmdp, policy, cmdp.costs[:, k]) for k in range(cmdp.limits.shape[1])],
            axis=1,
        )
        rises = kappa[:, None, None, None] * rises
        tau = temperature * np.abs(gain).max(axis=(1, 2)).clip(1e-12)
        log_half = _normalised(log_policy + gain / tau[:, None, None])
        slack = cmdp.limits - cost
        slack = np.where(slack < 0, RECOVERY * slack, slack)
        log_policy, nu = project(log_half, rises, visits, slack)
        log_policy = _normalised(log_policy.clip(FAINTEST))
        policy = np.exp(log_policy)
        multipliers.append((tau * kappa)[:, None] * nu)
    value, cost = exact.returns(cmdp, policy)
    return Path(
        np.stack([*returns, value]), np.stack([*costs, cost]), np.stack(multipliers), policy
    )


def project(
    log_half: np.ndarray, rises: np.ndarray, visits: np.ndarray, slack: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Steps 2 and 3: log pi_{k+1} [M, S, A] and the multipliers [M, K].

    ``rises`` [M, K, S, A] are the scaled cost advantages, ``slack`` [M, K] limits minus J^c(pi_k).
    Projected Newton ascent on -E_d log sum_a pi_{k+1/2} exp(-nu rise) - nu slack.
    """
    cases, count = slack.shape
    nu = np.zeros((cases, count))
    size = np.abs(rises).max(axis=(2, 3)).clip(1e-300)
    cap = STRONGEST / size
    close = 1e-11 * (size + np.abs(slack))

    def at(nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tilted = log_half - np.einsum("mk,mksa->msa", nu, rises)
        top = tilted.max(axis=-1)
        total = top + np.log(np.exp(tilted - top[..., None]).sum(axis=-1))
        dual = -exact.dot(visits, total) - exact.dot(nu, slack)
        return tilted - total[..., None], dual

    log_policy, dual = at(nu)
    for _ in range(NEWTON):
        policy = np.exp(log_policy)
        means = np.einsum("msa,mksa->mks", policy, rises)
        gradient = np.einsum("ms,mks->mk", visits, means) - slack
        free = ~((nu <= 0) & (gradient < 0)) & ~((nu >= cap) & (gradient > 0))
        if np.all(np.abs(gradient * free) < close):
            break
        centred = rises - means[..., None]
        weighted = centred * (visits[:, None, :, None] * policy[:, None])
        hessian = np.einsum("mksa,mlsa->mkl", weighted, centred)
        # Multipliers that their own curvature sends to zero move by themselves (Bertsekas, 1982).
        curvature = np.einsum("mkk->mk", hessian) + 1e-300
        alone = free & (gradient < 0) & (nu * curvature <= -gradient)
        joint = free & ~alone
        hessian = hessian * (joint[:, :, None] & joint[:, None, :])
        ridge = 1e-12 * np.trace(hessian, axis1=1, axis2=2) + 1e-300
        hessian += np.eye(count) * (ridge[:, None] + ~joint)[:, :, None]
        step = np.linalg.solve(hessian, (gradient * joint)[..., None])[..., 0]
        step = np.where(alone, gradient / curvature, step)
        # Where policies are nearly deterministic the curvature vanishes; no step tilts beyond e^10.
        length = np.minimum(1, (10 / (size * np.abs(step)).clip(1e-300)).min(axis=1, keepdims=True))
        for _ in range(30):
            trial = np.clip(nu + length * step, 0, cap)
            log_trial, dual_trial = at(trial)
            worse = dual_trial < dual
            if not worse.any():
                break
            length[worse] /= 2
        done = dual_trial - dual <= 1e-14 * (1 + np.abs(dual))
        nu = np.where(worse[:, None], nu, trial)
        log_policy = np.where(worse[:, None, None], log_policy, log_trial)
        dual = np.where(worse, dual, dual_trial)
        if done.all():
            break
    return log_policy, nu


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    top = log_weights.max(axis=-1, keepdims=True)
    return log_weights - top - np.log(np.exp(log_weights - top).sum(axis=-1, keepdims=True))
