"""Policy and critics: networks of hidden tanh layers, initialised and applied by pure functions."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Mlp: TypeAlias = tuple[tuple[jax.Array, jax.Array], ...]


LogStd: TypeAlias = jax.Array | None
"""Log standard deviations [A] of a Gaussian; None says that actions are discrete."""


class Policy(NamedTuple):
    """A Gaussian whose mean is a network of the observation, with one free log-std vector.

    For discrete actions ``log_std`` is None, and the network gives the logits of A choices.
    """

    mean: Mlp
    log_std: LogStd


def init_mlp(key: jax.Array, sizes: tuple[int, ...], last_scale: float) -> Mlp:
    """Weights [in, out] and biases uniform in +-1/sqrt(in); last layer scaled, its bias zero."""
    layers = []
    for i, layer_key in enumerate(jax.random.split(key, len(sizes) - 1)):
        fan_in, fan_out = sizes[i], sizes[i + 1]
        bound = fan_in**-0.5
        weight_key, bias_key = jax.random.split(layer_key)
        weight = jax.random.uniform(weight_key, (fan_in, fan_out), minval=-bound, maxval=bound)
        bias = jax.random.uniform(bias_key, (fan_out,), minval=-bound, maxval=bound)
        if i == len(sizes) - 2:
            weight, bias = weight * last_scale, jnp.zeros_like(bias)
        layers.append((weight, bias))
    return tuple(layers)


def apply_mlp(mlp: Mlp, x: jax.Array) -> jax.Array:
    for weight, bias in mlp[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = mlp[-1]
    return x @ weight + bias


def init_policy(
    key: jax.Array,
    obs_size: int,
    act_size: int,
    hidden: tuple[int, ...],
    log_std: float | None,
    last_scale: float,
) -> Policy:
    mean = init_mlp(key, (obs_size, *hidden, act_size), last_scale)
    return Policy(mean, None if log_std is None else jnp.full(act_size, log_std, dtype=float))


def apply_policy(policy: Policy, obs: jax.Array) -> tuple[jax.Array, LogStd]:
    """Mean (or logits) [..., A] and log standard deviation of the action in ``obs`` [..., O]."""
    return apply_mlp(policy.mean, obs), policy.log_std


def init_critics(
    key: jax.Array, obs_size: int, count: int, hidden: tuple[int, ...], last_scale: float
) -> Mlp:
    """``count`` critics stacked: every leaf has a leading axis [count]."""
    keys = jax.random.split(key, count)
    return jax.vmap(lambda k: init_mlp(k, (obs_size, *hidden, 1), last_scale))(keys)


def apply_critics(critics: Mlp, obs: jax.Array) -> jax.Array:
    """Values [..., count] of ``obs`` [..., O]."""
    return jax.vmap(apply_mlp, in_axes=(0, None), out_axes=-1)(critics, obs)[..., 0, :]
