"""PPO-L: PPO with prices on the costs (Ray et al., 2019, "Benchmarking Safe Exploration").

Each iteration, with nu_i <- clip(nu_i + eta (J^_i - b_i), 0, nu_max), minimise

    -(mean_t min(rho_t A_t, g(eps, A_t)) - sum_i nu_i mean_t rho_t A^{c_i}_t) / (1 + sum_i nu_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import MinibatchConfig, PricedConfig
from cupola.algos.update import Learn, assembled, one_descent
from cupola.checks import check_positive
from cupola.core import surrogates
from cupola.core.samples import Samples, ratio
from cupola.types import Algorithm, Problem


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, PricedConfig):
    """PPO-L's switches; the defaults are the preset `paper`."""

    clip: float = 0.2
    """Epsilon of the clipped objective."""
    nu_max: float = 1.0
    value_l2: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip")


PRESETS = {"paper": Config()}


def loss(policy: nets.Policy, sample: Samples, nu: jax.Array, config: Config) -> jax.Array:
    """What is minimised on a minibatch, at prices ``nu`` [K]."""
    rho = ratio(policy, sample)
    gain = jnp.mean(surrogates.clipped(rho, sample.adv_r, config.clip))
    return -(gain - jnp.mean(rho * (sample.adv_c @ nu))) / (1 + jnp.sum(nu))


def make_learn(config: Config, problem: Problem, threads: int = 1) -> Learn:
    return one_descent(
        config, problem, threads, lambda policy, sample, nu, _: loss(policy, sample, nu, config)
    )


def make(config: Config, problem: Problem, threads: int = 1) -> Algorithm:
    """PPO-L as a value; ``threads`` > 1 fits the critics beside the policy on a second core."""
    return assembled(config, problem, make_learn(config, problem, threads))
