"""PPO: Proximal Policy Optimisation (Schulman et al., 2017), the clipped form.

Maximise mean_t min(rho_t A_t, g(eps, A_t)) by minibatch Adam; costs are measured and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import MinibatchConfig
from cupola.algos.update import Context, one_loss
from cupola.checks import check_positive
from cupola.core import surrogates
from cupola.core.samples import ratio_of
from cupola.types import Algorithm, Problem, Samples


@dataclass(frozen=True, kw_only=True)
class Config(MinibatchConfig):
    """PPO's switches; the defaults are the preset `paper`."""

    clip: float = 0.2
    """Epsilon of the clipped objective."""
    value_l2: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "clip")


PRESETS = {"paper": Config()}
CONSTRAINED = False


def loss(
    mean: jax.Array, log_std: nets.LogStd, sample: Samples, context: Context, *, config: Config
) -> jax.Array:
    """What is minimised on a minibatch."""
    return -jnp.mean(surrogates.clipped(ratio_of(mean, log_std, sample), sample.adv_r, config.clip))


def make(config: Config, problem: Problem) -> Algorithm:
    """PPO as a value."""
    return one_loss(config, problem, partial(loss, config=config))
