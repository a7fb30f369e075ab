"""The policy as tasks play it: plain arrays instead of compiled functions of JAX."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NetworkActor:
    """Actions for observations: a network with tanh, on normalised inputs, then a random draw.

    Calling it is plain NumPy: for a few rows at a time a compiled call costs more.
    """

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]  # weights [in, out] and biases [out]
    shift: np.ndarray | None  # [I]; None: observations are taken as they are
    scale: np.ndarray | None  # [I]
    clip: float  # on normalised observations
    std: np.ndarray | None  # [A], of Gaussian actions; None: choices

    def __call__(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Actions [N, A] for the inputs of raw observations [N, I] and unit noise [N, A]."""
        x = obs
        if self.shift is not None:
            x = (x - self.shift) * self.scale
            np.minimum(np.maximum(x, -self.clip, out=x), self.clip, out=x)  # np.clip is slower
        for weight, bias in self.layers[:-1]:
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        weight, bias = self.layers[-1]
        x = x @ weight
        x += bias
        return one_hot(x, noise) if self.std is None else gaussian(x, self.std, noise)


def gaussian(mean: np.ndarray, std: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Samples [N, A] around means [N, A], which are overwritten."""
    mean += std * noise
    return mean


def one_hot(logits: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Samples [N, A] of choices with ``logits`` [N, A], by the Gumbel noise of each choice."""
    chosen = np.argmax(logits + noise, axis=-1)
    return (chosen[..., None] == np.arange(logits.shape[-1])).astype(np.float32)
