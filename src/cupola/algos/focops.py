"""FOCOPS: First Order Constrained Optimisation in Policy Space (Zhang, Vuong & Ross, 2020).

Each iteration, with nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max), minimise

    mean_t 1[KL_t <= delta] (KL_t - rho_t (A_t - sum_i nu_i A^{c_i}_t) / temperature)

with KL_t = KL(pi_theta || pi_k)[s_t]. The indicator is each state's own and carries no gradient;
an epoch whose mean KL exceeds delta is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import MinibatchConfig, PricedConfig
from cupola.algos.update import Learn, assembled, one_descent
from cupola.checks import check_positive
from cupola.core import distributions
from cupola.core.samples import Samples
from cupola.types import Algorithm, Problem


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, PricedConfig):
    """FOCOPS' switches; the defaults are the preset `paper`."""

    delta: float = 0.02
    """KL divergence that ends the step early; inf never does."""
    indicator: float = 0.02
    """KL divergence beyond which a state no longer counts."""
    temperature: float = 1.5
    """Divisor of the surrogate, lambda in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "temperature", "indicator")


PRESETS = {
    "paper": Config(),
    "release": Config(batch_size=2048, num_envs=16, time_limit="terminal"),
}


def loss(
    policy: nets.Policy, sample: Samples, nu: jax.Array, log_std: nets.LogStd, config: Config
) -> jax.Array:
    """What is minimised on a minibatch, at prices ``nu`` [K]; ``log_std`` [A] is pi_k's."""
    mean, new_log_std = nets.apply_policy(policy, sample.obs)
    rho = jnp.exp(distributions.log_prob(mean, new_log_std, sample.actions) - sample.log_prob)
    divergence = distributions.kl(mean, new_log_std, sample.mean, log_std)
    inside = jax.lax.stop_gradient(divergence <= config.indicator)
    advantage = sample.adv_r - sample.adv_c @ nu
    return jnp.mean(inside * (divergence - rho * advantage / config.temperature))


def make_learn(config: Config, problem: Problem, threads: int = 1) -> Learn:
    return one_descent(config, problem, threads, partial(loss, config=config))


def make(config: Config, problem: Problem, threads: int = 1) -> Algorithm:
    """FOCOPS as a value; ``threads`` > 1 fits the critics beside the policy on a second core."""
    return assembled(config, problem, make_learn(config, problem, threads))
