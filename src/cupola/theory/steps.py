"""CUP's two steps in policy space, each solved to optimality; all arrays [M, ...].

``old`` is pi_k, ``half`` pi_{k+1/2}; ``visits`` [M, S] weights the states, d^lambda of pi_k.
"""

from __future__ import annotations

import numpy as np
from scipy.special import wrightomega

from cupola.theory import exact
from cupola.theory.exact import dot

NEWTON = 60
"""Newton steps at most."""
HALVINGS = 50
FIXED_POINT = 12
"""Steffensen steps at most."""


def spread(old: np.ndarray, advantages: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """Standard deviation [M] of the advantages under pi_k."""
    mean = np.sum(old * advantages, axis=-1, keepdims=True)
    return np.sqrt(dot(visits, np.sum(old * (advantages - mean) ** 2, axis=-1)))


def improve(
    old: np.ndarray, advantages: np.ndarray, visits: np.ndarray, alpha: np.ndarray
) -> np.ndarray:
    """Step 1, argmax of E_{d, a ~ pi}[A] - alpha sqrt(E_d KL(pi_k, pi)): pi_{k+1/2} [M, S, A].

    The square root has a kink at pi_k: for alpha >= sqrt(2) `spread` the maximum is pi_k itself.
    Otherwise pi = tau pi_k / (mu - A), with mu making it a distribution and 2 tau sqrt(KL) = alpha.
    """
    scale = spread(old, advantages, visits)
    stays = alpha >= np.sqrt(2) * scale
    low, high = np.log(scale.clip(1e-300)) - 25, np.log(scale.clip(1e-300)) + 25
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        candidate = _tilted(old, advantages, np.exp(middle))
        root = np.sqrt(dot(visits, exact.kl(old, candidate)).clip(0))
        above = 2 * np.exp(middle) * root > alpha
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    best = _tilted(old, advantages, np.exp((low + high) / 2))
    return np.where(stays[:, None, None], old, best)


def _tilted(old: np.ndarray, advantages: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """tau old / (mu - A), mu [M, S] by Newton from the left, where the sum is above one."""
    weights = tau[:, None, None] * old
    mu = np.max(advantages + weights, axis=-1)
    for _ in range(NEWTON):
        policy = weights / (mu[..., None] - advantages).clip(1e-300)
        excess = policy.sum(axis=-1) - 1
        if np.max(np.abs(excess)) < 1e-12:
            break
        slope = np.sum(policy / (mu[..., None] - advantages).clip(1e-300), axis=-1)
        mu = mu + excess / slope
    return policy / policy.sum(axis=-1, keepdims=True)


def project(
    old: np.ndarray,
    half: np.ndarray,
    rise: np.ndarray,
    visits: np.ndarray,
    beta: np.ndarray,
    slack: np.ndarray,
) -> np.ndarray:
    """Step 2: the policy nearest to pi_{k+1/2} whose predicted cost is within the limit.

    Minimises E_d KL(pi, pi_{k+1/2}) subject to E_{d, a ~ pi}[rise] + beta sqrt(E_d KL(pi_k, pi))
    <= slack, with ``rise`` [M, S, A] the scaled cost advantages and ``slack`` [M] > 0 the limit
    minus J^c(pi_k). The multiplier nu and y = sqrt(KL) solve the first-order conditions
    log pi - w pi_k / pi = mu + log pi_{k+1/2} - nu rise, w = nu beta / (2 y).
    """

    best = half.copy()
    todo = np.flatnonzero(_predicted(half, old, rise, visits, beta)[0] > slack)
    if len(todo) == 0:
        return best
    old, half, rise, visits, beta, slack = (
        array[todo] for array in (old, half, rise, visits, beta, slack)
    )
    scale = np.sqrt(dot(visits, np.sum(old * rise**2, axis=-1))).clip(1e-300)
    low, high = -np.log(scale) - 15, -np.log(scale) + 15
    log_root = np.zeros(len(todo))
    found = half
    for _ in range(HALVINGS):
        nu = np.exp((low + high) / 2)
        candidate, cost, log_root = _priced(old, half, rise, visits, beta, nu, log_root)
        above = cost > slack
        found = np.where(above[:, None, None], found, candidate)
        low, high = np.where(above, (low + high) / 2, low), np.where(above, high, (low + high) / 2)
    best[todo] = found
    return best


def _predicted(
    policy: np.ndarray, old: np.ndarray, rise: np.ndarray, visits: np.ndarray, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The predicted rise of the cost and y = sqrt(E KL(pi_k, pi)), both [M]."""
    root = np.sqrt(dot(visits, exact.kl(old, policy)).clip(1e-24))
    return dot(visits, np.sum(policy * rise, axis=-1)) + beta * root, root


def _priced(
    old: np.ndarray,
    half: np.ndarray,
    rise: np.ndarray,
    visits: np.ndarray,
    beta: np.ndarray,
    nu: np.ndarray,
    log_root: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The projection at multiplier nu [M], its predicted rise and log y; ``log_root`` is a guess.

    y enters its own equation; Steffensen's iteration finds the fixed point.
    """

    def once(log_y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weight = nu * beta / (2 * np.exp(log_y))
        policy = _balanced(old, half, nu[:, None, None] * rise, weight)
        cost, root = _predicted(policy, old, rise, visits, beta)
        return policy, cost, np.log(root)

    for _ in range(FIXED_POINT):
        _, _, first = once(log_root)
        policy, cost, second = once(first)
        if np.max(np.abs(second - first)[beta > 0], initial=0.0) < 1e-10:
            break
        bend = second - 2 * first + log_root
        step = np.divide((first - log_root) ** 2, bend, out=np.zeros_like(bend), where=bend != 0)
        log_root = np.where(np.abs(step) < 3, log_root - step, second).clip(-27, 10)
    return policy, cost, second


def _balanced(
    old: np.ndarray, half: np.ndarray, push: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """The policy with log pi - weight old / pi = mu + log half - push, mu [M, S] by Newton."""
    target = np.log(half) - push
    pull = np.log((weight[:, None, None] * old).clip(1e-300))
    mu = -np.log(np.sum(np.exp(target - target.max(axis=-1, keepdims=True)), axis=-1))
    mu = mu - target.max(axis=-1)
    for _ in range(NEWTON):
        right = target + mu[..., None]
        log_policy = right + wrightomega(pull - right)
        policy = np.exp(log_policy)
        total = policy.sum(axis=-1)
        if np.max(np.abs(total - 1)) < 1e-12:
            break
        slope = np.sum(policy / (1 + weight[:, None, None] * old / policy), axis=-1) / total
        mu = mu - np.log(total) / slope
    return policy / policy.sum(axis=-1, keepdims=True)
