"""All that a deterministic policy is made of, as named arrays."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple

import numpy as np

from cupola.core.moments import shift_and_scale
from cupola.errors import CupolaError
from cupola.policy import Policy
from cupola.tasks.base import Choice, Scaled
from cupola.version import __version__


class Network(NamedTuple):
    """tanh layers on clip((obs[inputs] - mean) * scale), and what the last numbers mean."""

    inputs: np.ndarray  # [I] int64, columns of an observation [O]
    mean: np.ndarray  # [I] float32
    scale: np.ndarray  # [I] float32
    clip: np.ndarray  # float32; infinity where observations are not normalised
    layers: list[tuple[np.ndarray, np.ndarray]]  # weight [in, out] and bias [out], float32
    actions: Scaled | Choice | None


def network_of(policy: Policy) -> Network:
    """The numbers of a policy, exactly as `Policy.predict` uses them."""
    if policy.discrete and not isinstance(policy.actions, Choice):
        raise CupolaError("the checkpoint does not say what its policy's choices mean.")
    algorithm = policy.config.algorithm
    mean, scale = (np.asarray(x, np.float32) for x in shift_and_scale(policy.moments))
    clip = algorithm.obs_clip
    if not algorithm.normalise_obs:
        mean, scale, clip = np.zeros_like(mean), np.ones_like(scale), np.inf
    layers = [
        (np.asarray(weight, np.float32), np.asarray(bias, np.float32))
        for weight, bias in policy.network.mean
    ]
    inputs = policy.inputs.astype(np.int64)
    return Network(inputs, mean, scale, np.array(clip, np.float32), layers, policy.actions)


def about(policy: Policy) -> dict[str, Any]:
    """Where a policy comes from."""
    config = policy.config
    return {
        "cupola": __version__,
        "algo": config.algo,
        "task": config.task,
        "limits": dict(config.limits),
        "seed": config.options.seed,
        "iteration": policy.iteration,
        "observation": policy.obs_size,
    }


def to_npz(policy: Policy) -> bytes:
    """The policy as an .npz file of plain arrays, which numpy reads without pickle."""
    network = network_of(policy)
    arrays = {
        "about": np.array(json.dumps(about(policy))),
        "inputs": network.inputs,
        "mean": network.mean,
        "scale": network.scale,
        "clip": network.clip,
        "layers": np.array(len(network.layers)),
    }
    for i, (weight, bias) in enumerate(network.layers):
        arrays |= {f"weight{i}": weight, f"bias{i}": bias}
    if network.actions is not None:
        arrays |= {name: np.asarray(value) for name, value in network.actions._asdict().items()}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()
