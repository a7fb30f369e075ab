"""FOCOPS: First Order Constrained Optimisation in Policy Space (Zhang, Vuong & Ross, 2020).

Each iteration the Lagrange multipliers nu_i move first (core/multipliers.py). Then minimise

    mean_t 1[KL_t <= indicator] (KL_t - rho_t (A_t - sum_i nu_i A^{c_i}_t) / temperature)

with KL_t = KL(pi_theta || pi_k)[s_t]. The indicator is each state's own and carries no gradient;
an epoch whose mean KL exceeds delta is the last.
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
from cupola.core import distributions
from cupola.core.samples import ratio_of
from cupola.types import Algorithm, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, LagrangianConfig):
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
    mean: jax.Array, log_std: nets.LogStd, sample: Samples, context: Context, *, config: Config
) -> jax.Array:
    """What is minimised on a minibatch."""
    rho = ratio_of(mean, log_std, sample)
    divergence = distributions.kl(mean, log_std, sample.mean, context.log_std)
    inside = jax.lax.stop_gradient(divergence <= config.indicator)
    advantage = sample.adv_r - sample.adv_c @ context.nu
    return jnp.mean(inside * (divergence - rho * advantage / config.temperature))


def make(config: Config, problem: Problem) -> Algorithm:
    """FOCOPS as a value."""
    return one_loss(config, problem, partial(loss, config=config))
