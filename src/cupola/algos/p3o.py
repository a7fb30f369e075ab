"""P3O: Penalised Proximal Policy Optimisation (Zhang et al., IJCAI 2022, Algorithm 1).

Each iteration, by minibatch Adam, minimise the exact penalty

    -mean_t min(rho_t A_t, clip(rho_t) A_t)
    + kappa sum_i max(0, mean_t max(rho_t A^{c_i}_t, clip(rho_t) A^{c_i}_t) + (1-gamma)(J^_i - b_i))

with clip(rho) in [1 - eps, 1 + eps]. If kappa is at least the largest Lagrange multiplier of the
constrained problem, both have the same solution; no multiplier is learnt. Advantages are
standardised, and the violations with them, so that one kappa serves many tasks. For an undiscounted
limit, 1/mean length stands for 1 - gamma. See docs/algorithms/p3o.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import CostConfig, MinibatchConfig
from cupola.algos.update import Context, one_loss
from cupola.checks import check_not_negative, check_positive
from cupola.core import surrogates
from cupola.core.samples import ratio_of
from cupola.types import Algorithm, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig, CostConfig):
    """P3O's switches; the defaults are the preset `paper`."""

    clip: float = 0.2
    """Epsilon of both clipped surrogates."""
    kappa: float = 20.0
    """Penalty factor on each cost's violation."""
    delta: float = 0.02
    """KL divergence that ends the step early; inf never does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip")
        check_not_negative(self, "kappa")


PRESETS = {"paper": Config()}


def loss(
    mean: jax.Array, log_std: nets.LogStd, sample: Samples, context: Context, *, config: Config
) -> jax.Array:
    """What is minimised on a minibatch."""
    rho = ratio_of(mean, log_std, sample)
    gain = jnp.mean(surrogates.clipped(rho, sample.adv_r, config.clip))
    rise = jnp.mean(surrogates.clipped_cost(rho[:, None], sample.adv_c, config.clip), axis=0)  # [K]
    return config.kappa * jnp.sum(jnp.maximum(rise + context.violation, 0.0)) - gain


def make(config: Config, problem: Problem) -> Algorithm:
    """P3O as a value."""
    return one_loss(config, problem, partial(loss, config=config))
