"""Everything that the paper's Section 3 names, computed exactly on finite CMDPs.

Axes: ... cases, S states, A actions. A signal is the reward or one cost, [..., S, A, S]; lam [...].
Vectors over states are columns: (P f)(s) = E[f(s') | s]; distributions are rows.
"""

from __future__ import annotations

import numpy as np

from cupola.theory.cmdp import Cmdp


def state_transitions(cmdp: Cmdp, policy: np.ndarray) -> np.ndarray:
    """P_pi [..., S, S]."""
    return np.einsum("...sa,...sat->...st", policy, cmdp.transitions)


def lambda_transitions(transitions: np.ndarray, gamma: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """P^(lambda) = (1 - gamma lambda) sum_t (gamma lambda)^t P^(t+1), [..., S, S], of P_pi."""
    rate = gamma * lam
    return _scaled(1 - rate, np.linalg.solve(_minus(rate, transitions), transitions))


def gamma_tilde(gamma: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """gamma~ = gamma (1 - lambda) / (1 - gamma lambda), [...]."""
    return gamma * (1 - lam) / (1 - gamma * lam)


def visits(start: np.ndarray, transitions: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """(1 - gamma) sum_t gamma^t P(s_t = s), [..., S]: discounted state distribution."""
    rows = np.swapaxes(_minus(gamma, transitions), -1, -2)
    return (1 - gamma)[..., None] * np.linalg.solve(rows, start[..., None])[..., 0]


def lambda_visits(
    start: np.ndarray, transitions: np.ndarray, gamma: np.ndarray, lam: np.ndarray
) -> np.ndarray:
    """d^lambda [..., S], by its definition: visits of P^(lambda) discounted by gamma~."""
    return visits(start, lambda_transitions(transitions, gamma, lam), gamma_tilde(gamma, lam))


def values(cmdp: Cmdp, policy: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """V_pi [..., S] of a signal."""
    mean = np.einsum("...sa,...sa->...s", policy, expected(cmdp, signal))
    return discounted_sum(state_transitions(cmdp, policy), mean, cmdp.gamma)


def action_values(cmdp: Cmdp, policy: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """Q_pi [..., S, A]."""
    ahead = np.einsum("...sat,...t->...sa", cmdp.transitions, values(cmdp, policy, signal))
    return expected(cmdp, signal) + cmdp.gamma[..., None, None] * ahead


def advantages(cmdp: Cmdp, policy: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """A_pi = Q_pi - V_pi, [..., S, A]."""
    return action_values(cmdp, policy, signal) - values(cmdp, policy, signal)[..., None]


def objective(cmdp: Cmdp, policy: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """J(pi) = E[V_pi(s_0)], [...]; J^c with a cost as the signal."""
    return dot(cmdp.start, values(cmdp, policy, signal))


def returns(cmdp: Cmdp, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J [...] and the cost returns [..., K]."""
    count = cmdp.costs.shape[-4]
    costs = [objective(cmdp, policy, cmdp.costs[..., k, :, :, :]) for k in range(count)]
    return objective(cmdp, policy, cmdp.reward), np.stack(costs, axis=-1)


def expected(cmdp: Cmdp, signal: np.ndarray) -> np.ndarray:
    """E[x | s, a], [..., S, A]."""
    return np.einsum("...sat,...sat->...sa", cmdp.transitions, signal)


def td_errors(cmdp: Cmdp, signal: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """delta^phi = x(s, a, s') + gamma phi(s') - phi(s), [..., S, A, S]; phi [..., S]."""
    ahead = cmdp.gamma[..., None, None, None] * phi[..., None, None, :]
    return signal + ahead - phi[..., :, None, None]


def mean_td_error(
    cmdp: Cmdp, policy: np.ndarray, signal: np.ndarray, phi: np.ndarray
) -> np.ndarray:
    """delta^phi_{pi,0}(s) = E[delta | s, a ~ pi], [..., S]; delta_{pi,t} is P_pi^t times it."""
    deltas = expected(cmdp, td_errors(cmdp, signal, phi))
    return np.einsum("...sa,...sa->...s", policy, deltas)


def expected_gae(
    cmdp: Cmdp, policy: np.ndarray, signal: np.ndarray, phi: np.ndarray, lam: np.ndarray
) -> np.ndarray:
    """E[sum_t (gamma lambda)^t delta^phi_t | s_0, a_0], then pi: [..., S, A].

    With phi = V_pi it is the advantage function, whatever lambda.
    """
    deltas = expected(cmdp, td_errors(cmdp, signal, phi))
    mean = np.einsum("...sa,...sa->...s", policy, deltas)
    later = discounted_sum(state_transitions(cmdp, policy), mean, cmdp.gamma * lam)
    ahead = np.einsum("...sat,...t->...sa", cmdp.transitions, later)
    return deltas + (cmdp.gamma * lam)[..., None, None] * ahead


def discounted_sum(transitions: np.ndarray, vector: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """sum_t rate^t P^t f = (I - rate P)^-1 f, [..., S]."""
    return np.linalg.solve(_minus(rate, transitions), vector[..., None])[..., 0]


def total_variation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """D_TV [..., S] of two policies [..., S, A]."""
    return 0.5 * np.abs(first - second).sum(axis=-1)


def kl(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """KL(first || second) [..., S]; infinite where second has no support and first has."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = first * (np.log(first) - np.log(second))
    return np.where(first > 0, terms, 0.0).sum(axis=-1)


def dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Inner product over the last axis."""
    return np.einsum("...s,...s->...", left, right)


def _minus(rate: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """I - rate P."""
    return np.eye(transitions.shape[-1]) - _scaled(np.asarray(rate), transitions)


def _scaled(factor: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    return np.asarray(factor)[..., None, None] * matrices
