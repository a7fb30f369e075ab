"""PPO-PID: PPO with Lagrange multipliers that a PID controller moves (Stooke et al., ICML 2020).

Each iteration the multipliers nu_i move first, by the rule `pid` of core/multipliers.py. Then
minimise, by minibatch Adam,

    ( -mean_t min(rho_t A_t, clip(rho_t) A_t)
      + sum_i nu_i mean_t max(rho_t A^{c_i}_t, clip(rho_t) A^{c_i}_t) ) / (1 + sum_i nu_i)

with clip(rho) in [1 - eps, 1 + eps]. Costs are clipped as the reward is, where PPO-L leaves them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

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
    """PPO-PID's switches; the defaults are the preset `paper`."""

    clip: float = 0.2
    """Epsilon of the clipped objective."""
    delta: float = 0.02
    """KL divergence that ends the step early; inf never does."""
    multiplier: Literal["integral", "pid"] = "pid"
    """Rule of the multipliers: they add up the violations, or follow a PID controller of them."""
    nu_max: float = math.inf
    """Bound on the multipliers; the division by 1 + nu bounds the loss without one."""

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
    rise = jnp.mean(surrogates.clipped_cost(rho[:, None], sample.adv_c, config.clip), axis=0)  # [K]
    return (rise @ nu - gain) / (1 + jnp.sum(nu))


def make(config: Config, problem: Problem) -> Algorithm:
    """PPO-PID as a value."""
    return one_loss(config, problem, partial(loss, config=config))
