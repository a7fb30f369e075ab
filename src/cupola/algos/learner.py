"""A fresh learner."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from cupola import nets
from cupola.algos.config import CostConfig, LagrangianConfig, MinibatchConfig, OnPolicyConfig
from cupola.core.critics import empty_memory
from cupola.core.optimisers import adam, each
from cupola.types import Learner, Problem

REMEMBERED = 0.25
"""Share of a batch that stays in the critics' memory: neighbouring samples say much the same."""


def init_learner(key: jax.Array, config: OnPolicyConfig, problem: Problem) -> Learner:
    """New networks, optimisers and multipliers; what a kind of config does not use stays empty."""
    policy_key, critic_key = jax.random.split(key)
    policy = nets.init_policy(
        policy_key,
        problem.obs_size,
        problem.act_size,
        config.hidden,
        None if problem.discrete else initial_log_std(config, problem.act_bound),
        config.last_layer_scale,
    )
    critics = nets.init_critics(
        critic_key, problem.obs_size, 1 + len(problem.costs), config.hidden, config.last_layer_scale
    )
    nu_init = config.nu_init if isinstance(config, LagrangianConfig) else 0.0
    nu = jnp.full(len(problem.costs), nu_init, dtype=float)
    return Learner(
        policy=policy,
        critics=critics,
        policy_opt=(
            adam(config.max_grad_norm).init(policy) if isinstance(config, MinibatchConfig) else ()
        ),
        critic_opt=each(adam()).init(critics),
        nu=nu,
        multiplier_state=(
            config.multiplier_rule().init(nu) if isinstance(config, LagrangianConfig) else ()
        ),
        critic_memory=(
            empty_memory(
                config.critic_memory,
                math.ceil(REMEMBERED * config.batch_size),
                problem.obs_size,
                1 + len(problem.costs),
            )
            if config.critic_memory
            else ()
        ),
        cost_variance=(
            jnp.zeros(len(problem.costs))
            if isinstance(config, CostConfig) and config.cost_advantage == "running"
            else ()
        ),
    )


def initial_log_std(config: OnPolicyConfig, act_bound: float) -> float:
    """Of the actions of a new policy, in their own unit."""
    return config.log_std + math.log(std_unit(config, act_bound))


def least_log_std(config: OnPolicyConfig, act_bound: float) -> float:
    """Below which that of a policy never falls, in the unit of the actions."""
    least = config.min_std * std_unit(config, act_bound)
    return math.log(least) if least > 0 else -math.inf


def std_unit(config: OnPolicyConfig, act_bound: float) -> float:
    return act_bound if config.std_unit == "bound" and act_bound < math.inf else 1.0
