"""PPO-L: PPO with Lagrange multipliers (Ray et al., 2019, "Benchmarking Safe Exploration").

Each iteration the Lagrange multipliers nu_i move first (core/multipliers.py). Then minimise

    -(mean_t min(rho_t A_t, g(eps, A_t)) - sum_i nu_i mean_t rho_t A^{c_i}_t) / (1 + sum_i nu_i).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import LagrangianConfig, MinibatchConfig
from cupola.algos.update import Context, one_loss
from cupola.checks import check_positive
from cupola.core import surrogates
from cupola.core.samples import ratio_of
from cupola.types import Algorithm, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, LagrangianConfig):
    """PPO-L's switches; the defaults are the preset `paper`."""

    clip: float = 0.2
    """Epsilon of the clipped objective."""
    nu_max: float = 1.0
    value_l2: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip")


PRESETS = {"paper": Config()}


def loss(
    mean: jax.Array, log_std: nets.LogStd, sample: Samples, context: Context, *, config: Config
) -> jax.Array:
    """What is minimised on a minibatch."""
    rho, nu = ratio_of(mean, log_std, sample), context.nu
    gain = jnp.mean(surrogates.clipped(rho, sample.adv_r, config.clip))
    return -(gain - jnp.mean(rho * (sample.adv_c @ nu))) / (1 + jnp.sum(nu))


def make(config: Config, problem: Problem) -> Algorithm:
    """PPO-L as a value."""
    return one_loss(config, problem, partial(loss, config=config))
