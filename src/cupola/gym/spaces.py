"""Spaces of Gymnasium as vectors: observations flattened, actions from a policy's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from cupola.errors import CupolaError
from cupola.tasks.base import Choice, Scaled
from cupola.tasks.observation import Part

_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def flattener(space: Any, name: str) -> Callable[[Any], np.ndarray]:
    """Of an observation of ``space``: the same as a vector [O] of float64.

    Spaces that are not a fixed number of numbers are refused.
    """
    inner = _unsupported(space)
    if inner is not None:
        raise CupolaError(
            f"{name} has observations of the space {_short(inner)}, which cannot be flattened: wrap"
            " it so that it has Box, Discrete, MultiBinary or MultiDiscrete observations, or a Dict"
            " or Tuple of them."
        )
    size = spaces.flatdim(space)
    if size == 0:
        raise CupolaError(f"{name} has empty observations: give it at least one number to observe.")

    box = isinstance(space, spaces.Box)  # what nearly all are, and quickly done

    def flatten(obs: Any) -> np.ndarray:
        raw = np.asarray(obs, space.dtype).reshape(-1) if box else spaces.flatten(space, obs)
        flat = np.array(raw, np.float64)  # a copy: environments may use theirs again
        if flat.shape != (size,):
            raise ValueError(
                f"an observation of shape {np.shape(obs)} does not fit {_short(space)}"
            )
        return flat

    return flatten


def parts_of(space: Any) -> tuple[Part, ...]:
    """The parts of an observation in the order of `flattener`; none of one that is a vector.

    A Dict whose keys are neither texts nor whole numbers has none that could be written down.
    """
    if isinstance(space, spaces.Box | spaces.MultiBinary) and len(space.shape) == 1:
        return ()
    parts = _parts(space, ())
    known = all(type(key) in (str, int) for part in parts for key in part.path)
    return tuple(parts) if known else ()


def _parts(space: Any, path: tuple[Any, ...]) -> list[Part]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [part for key, one in inner for part in _parts(one, (*path, key))]
    if isinstance(space, spaces.Discrete):
        return [Part(path, (), (int(space.n),), (int(space.start),))]
    if isinstance(space, spaces.MultiDiscrete):
        sizes, first = (tuple(x.reshape(-1).tolist()) for x in (space.nvec, space.start))
        return [Part(path, space.shape, sizes, first)]
    return [Part(path, space.shape)]


def _short(space: Any) -> str:
    """A space on one line."""
    return " ".join(repr(space).split())


def _unsupported(space: Any) -> Any | None:
    if isinstance(space, spaces.Dict):
        parts = list(space.spaces.values())
    elif isinstance(space, spaces.Tuple):
        parts = list(space.spaces)
    else:
        return None if isinstance(space, _LEAVES) else space
    return next((bad for bad in map(_unsupported, parts) if bad is not None), None)


def actions_of(space: Any, name: str) -> tuple[int, Scaled | Choice]:
    """How many numbers a policy gives for a space of actions, and what they mean."""
    if isinstance(space, spaces.Discrete):
        return int(space.n), Choice(int(space.start))
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
        raise CupolaError(
            f"{name} has actions of the space {_short(space)}: cupola needs a bounded Box of floats"
            " or a Discrete space, so wrap it in gymnasium.wrappers.TransformAction."
        )
    if not space.is_bounded():
        raise CupolaError(
            f"{name} has an unbounded Box action, of shape {space.shape}: give it finite bounds,"
            " with gymnasium.wrappers.TransformAction(env, lambda a: a, Box(-1, 1, shape))."
        )
    if space.low.size == 0:
        raise CupolaError(f"{name} has empty actions: give it at least one number to act with.")
    return space.low.size, Scaled(space.low.copy(), space.high.copy())
