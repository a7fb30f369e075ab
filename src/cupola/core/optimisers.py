"""Optimisers for networks of a few small and perhaps one large layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from cupola.types import Params

if TYPE_CHECKING:  # the command line reads configurations without waiting for it
    import optax

LARGE = 16384
"""Numbers from which on a leaf is not copied into the common vector."""


def adam(max_grad_norm: float | None = None) -> optax.GradientTransformation:
    """Adam's direction for gradients of bounded norm; its length is the caller's."""
    import optax

    if max_grad_norm is None:
        return packed(optax.scale_by_adam())
    return packed(optax.chain(bounded(max_grad_norm), optax.scale_by_adam()))


def bounded(max_norm: float) -> optax.GradientTransformation:
    """`optax.clip_by_global_norm` as one factor, which costs no pass over a large gradient."""
    import optax

    def update(grads: Params, state: Params, params: Params | None = None) -> tuple[Params, Params]:
        factor = jnp.minimum(1.0, max_norm / optax.tree.norm(grads))
        return jax.tree.map(lambda g: g * factor, grads), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def each(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """The same optimiser for every network of a stack (leaves [count, ...]), each on its own."""
    import optax

    def update(grads: Params, state: Params, params: Params | None = None) -> tuple[Params, Params]:
        return jax.vmap(lambda g, s: inner.update(g, s))(grads, state)

    return optax.GradientTransformation(jax.vmap(inner.init), update)


def packed(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """The same optimiser, on one vector of all small leaves and the large leaves as they are.

    A dozen small operations cost more than two copies, and a large copy more than an operation.
    """
    import optax

    def pack(tree: Params) -> list[jax.Array]:
        leaves = jax.tree.leaves(tree)
        small = [leaf.reshape(-1) for leaf in leaves if leaf.size < LARGE]
        return [jnp.concatenate(small), *(leaf for leaf in leaves if leaf.size >= LARGE)]

    def unpack(arrays: list[jax.Array], like: Params) -> Params:
        leaves, tree = jax.tree.flatten(like)
        small, large, at = arrays[0], iter(arrays[1:]), 0
        found = []
        for leaf in leaves:
            if leaf.size >= LARGE:
                found.append(next(large))
            else:
                found.append(small[at : at + leaf.size].reshape(leaf.shape))
                at += leaf.size
        return jax.tree.unflatten(tree, found)

    def init(params: Params) -> Params:
        return inner.init(pack(params))

    def update(grads: Params, state: Params, params: Params | None = None) -> tuple[Params, Params]:
        directions, state = inner.update(pack(grads), state)
        return unpack(directions, grads), state

    return optax.GradientTransformation(init, update)
