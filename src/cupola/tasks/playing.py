"""Policy and rollout as the compiled part takes them (`Task.play`)."""

from __future__ import annotations

import numpy as np

from cupola import native
from cupola.tasks.actor import NetworkActor
from cupola.types import Rollout


def policy_of(actor: NetworkActor) -> native.Policy:
    assert actor.std is not None
    layers = [[np.ascontiguousarray(x, np.float32) for x in layer] for layer in actor.layers]
    policy = native.Policy()
    policy.keep(layers)
    policy.fill(
        layers=len(layers),
        sizes=np.array([layers[0][0].shape[0], *(len(bias) for _, bias in layers)], np.int64),
        weights=np.array([weight.ctypes.data for weight, _ in layers], np.uintp),
        biases=np.array([bias.ctypes.data for _, bias in layers], np.uintp),
        std=np.ascontiguousarray(actor.std, np.float32),
        clip=actor.clip,
    )
    if actor.shift is not None:
        policy.fill(
            shift=np.ascontiguousarray(actor.shift, np.float32),
            scale=np.ascontiguousarray(actor.scale, np.float32),
        )
    return policy


def rollout_of(
    into: Rollout, noise: np.ndarray, inputs: np.ndarray, actor: NetworkActor
) -> native.Rollout:
    """Where the arrays of ``into`` [T, n, ...] and ``noise`` [T, n, A] lie in those of N."""
    steps, count, act_size = noise.shape
    stride = into.rewards.strides[0] // into.rewards.itemsize
    widest = max(len(inputs), *(len(bias) for _, bias in actor.layers))
    arrays = {"noise": noise} | {
        name: getattr(into, name)
        for name in ("obs", "next_obs", "actions", "rewards", "costs", "terminated", "truncated")
    }
    for name, array in arrays.items():
        row = array.itemsize * int(np.prod(array.shape[2:]))
        kind = np.bool_ if name in ("terminated", "truncated") else np.float32
        assert array.dtype == kind, name
        assert not array.size or array.strides[:2] == (stride * row, row), name
    out = native.Rollout()
    out.keep(arrays)
    out.fill(
        **{name: array.ctypes.data for name, array in arrays.items()},
        steps=steps,
        inputs=np.ascontiguousarray(inputs, np.int64),
        input_count=len(inputs),
        act_size=act_size,
        cost_count=into.costs.shape[2],
        stride=stride,
        scratch=np.empty((count, 2 * widest), np.float32),
        widest=widest,
    )
    return out
