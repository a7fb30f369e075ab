"""The parts of an observation: from a dict, a tuple or a picture to the vector that is learned."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cupola.errors import CupolaError


class Part(NamedTuple):
    """One array within an observation.

    A part of numbers is flattened. A part of choices becomes one-hot: choice i is one of
    ``sizes[i]`` whole numbers from ``first[i]`` on.
    """

    path: tuple[str | int, ...]  # keys that lead to it; (): the observation is this part alone
    shape: tuple[int, ...]
    sizes: tuple[int, ...] = ()  # (): numbers
    first: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Columns that it takes in the vector."""
        return sum(self.sizes) if self.sizes else math.prod(self.shape)

    def __str__(self) -> str:
        name = "".join(f"[{key!r}]" for key in self.path)
        return f"{name} {self.shape}".strip()

    def find(self, obs: Any) -> np.ndarray:
        """The part's own array within an observation; ValueError where there is none."""
        at = obs
        for key in self.path:
            inside = at.get(key) if isinstance(at, dict) else None
            if isinstance(at, list | tuple) and isinstance(key, int) and key < len(at):
                inside = at[key]
            if inside is None:
                raise ValueError(f"there is no {self}")
            at = inside
        try:
            array = np.asarray(at)
        except ValueError:
            raise ValueError(f"{self} is no array") from None
        if array.dtype.kind not in ("iub" if self.sizes else "iubf"):
            kind = "whole numbers" if self.sizes else "numbers"
            raise ValueError(f"{self} must be {kind}, not {array.dtype}")
        extra = array.ndim - len(self.shape)
        if extra not in (0, 1) or array.shape[extra:] != self.shape:
            raise ValueError(f"{self} has shape {array.shape}")
        return array

    def flatten(self, array: np.ndarray) -> np.ndarray:
        """[N, size] of an array [N, *shape]."""
        rows = array.reshape(len(array), -1)
        if not self.sizes:
            return rows
        columns = []
        for column, size, first in zip(rows.T, self.sizes, self.first, strict=True):
            chosen = column.astype(np.int64) - first
            if ((chosen < 0) | (chosen >= size)).any():
                raise ValueError(f"{self} must lie between {first} and {first + size - 1}")
            columns.append(chosen[:, None] == np.arange(size))
        return np.concatenate(columns, axis=1)


def flatten(parts: tuple[Part, ...], obs: Any) -> np.ndarray:
    """The vector [O] of an observation, or [N, O] where every part has a leading axis N.

    A ValueError says which part does not fit.
    """
    arrays = [part.find(obs) for part in parts]
    axes = {array.ndim - len(part.shape) for part, array in zip(parts, arrays, strict=True)}
    batched = axes == {1}
    if not batched and axes != {0}:
        raise ValueError("some parts have a leading axis and some have not")
    if batched and len({len(array) for array in arrays}) > 1:
        raise ValueError("the leading axes of the parts differ")
    rows = [array if batched else array[None] for array in arrays]
    flat = [part.flatten(row) for part, row in zip(parts, rows, strict=True)]
    vectors = np.concatenate(flat, axis=1, dtype=np.float32, casting="unsafe")
    return vectors if batched else vectors[0]


def as_vectors(parts: tuple[Part, ...], obs_size: int, obs: Any) -> np.ndarray:
    """Float32 vectors [O] or [N, O] of observations as an environment gives them, or flat ones."""
    expected = f"({obs_size},) or (N, {obs_size})"
    fault = ""
    if parts:
        try:
            return flatten(parts, obs)
        except ValueError as error:
            fault = str(error)
        own = f"{', '.join(map(str, parts))}, each perhaps with a leading axis N"
        expected = f"{own}; or, flat, {expected}"
    try:
        flat = np.asarray(obs, np.float32)
    except (ValueError, TypeError):
        fault = fault or f"a {type(obs).__name__} is no array of numbers"
    else:
        if flat.ndim in (1, 2) and flat.shape[-1] == obs_size:
            return flat
        if not parts:
            raise CupolaError(
                f"this policy takes observations of shape {expected}, not {flat.shape}."
            )
        if isinstance(obs, np.ndarray):
            fault = f"it has shape {flat.shape}"
    raise CupolaError(f"this policy takes observations of shape {expected}: {fault}.")
