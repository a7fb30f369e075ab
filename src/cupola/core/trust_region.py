"""Natural-gradient steps: Fisher products, conjugate gradients, line search.

Everything works on flat vectors [P] of a policy's parameters. The Fisher matrix H is the Hessian,
at theta_k, of the mean KL divergence to pi_k over the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from cupola import nets
from cupola.core import distributions
from cupola.types import Params

Vector = jax.Array
Product = Callable[[Vector], Vector]


class Flat(NamedTuple):
    """A policy as one vector, and the way back."""

    theta: Vector  # [P]
    policy: Callable[[Vector], nets.Policy]

    @classmethod
    def of(cls, policy: nets.Policy) -> Flat:
        return cls(*ravel_pytree(policy))


def fisher_product(policy: nets.Policy, obs: jax.Array, damping: float) -> Product:
    """v -> (H + damping I) v, with H never formed; ``obs`` [B, O].

    The Hessian of KL(pi_k || pi_theta) at theta_k is J'R'RJ with J the Jacobian of the policy's
    mean and log-std (or logits) and R'R the Fisher information about these. One linearisation
    serves all products.
    """
    flat = Flat.of(policy)
    root = distributions.fisher_root(*nets.apply_policy(policy, obs))

    def statistics(theta: Vector) -> Params:
        return root(*nets.apply_policy(flat.policy(theta), obs))

    _, forward = jax.linearize(statistics, flat.theta)
    backward = jax.linear_transpose(forward, flat.theta)

    def product(vector: Vector) -> Vector:
        (result,) = backward(forward(vector))
        return result + damping * vector

    return product


class Residual(NamedTuple):
    """Where conjugate gradients stand."""

    x: Vector
    residual: Vector  # target - product(x)
    direction: Vector
    square: jax.Array  # [], residual'residual


def conjugate_gradients(
    product: Product, target: Vector, iterations: int, tolerance: float = 1e-10
) -> Vector:
    """x with product(x) ~ target, from x = 0.

    Stops where the squared residual falls to ``tolerance`` times that of the start; a target of
    zero gives zero.
    """
    enough = tolerance * (target @ target)

    def step(state: Residual, _: None) -> tuple[Residual, None]:
        x, residual, direction, square = state
        image = product(direction)
        curvature = direction @ image
        going = (square > enough) & (curvature > 0)
        length = jnp.where(going, square / jnp.where(going, curvature, 1.0), 0.0)
        x, residual = x + length * direction, residual - length * image
        new_square = residual @ residual
        ratio = jnp.where(going, new_square / jnp.where(going, square, 1.0), 0.0)
        return Residual(x, residual, residual + ratio * direction, new_square), None

    begin = Residual(jnp.zeros_like(target), target, target, target @ target)
    end, _ = jax.lax.scan(step, begin, None, length=iterations)
    return end.x


def natural_gradient(product: Product, gradient: Vector, iterations: int, delta: float) -> Vector:
    """The step of descent x = -sqrt(2 delta / y'Hy) y, H y = gradient: x'Hx / 2 = delta."""
    direction = conjugate_gradients(product, gradient, iterations)
    square = direction @ product(direction)
    length = jnp.where(square > 0, jnp.sqrt(2 * delta / jnp.where(square > 0, square, 1.0)), 0.0)
    return -length * direction


class Search(NamedTuple):
    """Where a line search ended."""

    theta: Vector  # [P]
    kl: jax.Array  # [], mean divergence of the accepted step
    tries: jax.Array  # [], lengths refused before it; all of them where none was accepted


def line_search(
    theta: Vector,
    step: Vector,
    acceptable: Callable[[Vector], tuple[jax.Array, jax.Array]],
    shrink: float,
    tries: int,
) -> Search:
    """The longest of step, shrink step, shrink^2 step, ... that is acceptable, else no step.

    ``acceptable`` gives, for new parameters, whether they will do and their divergence.
    """

    def refused(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        tried, good, _ = state
        return ~good & (tried < tries)

    def shorten(
        state: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        tried, _, _ = state
        good, kl = acceptable(theta + shrink**tried * step)
        return tried + 1, good, kl

    start = (jnp.int32(0), jnp.bool_(False), jnp.zeros((), theta.dtype))
    tried, good, kl = jax.lax.while_loop(refused, shorten, start)
    new = jnp.where(good, theta + shrink ** (tried - 1) * step, theta)
    return Search(new, jnp.where(good, kl, 0.0), jnp.where(good, tried - 1, tries))
