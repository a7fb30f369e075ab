"""Checkpoints: named arrays in safetensors files, written atomically, verified when read.

Nothing in them can run code: a file is a JSON header and raw arrays (docs/decisions/0005).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as deserialise
from safetensors.numpy import save as serialise

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.files import MAX_CHECKPOINT, Folder

Arrays = dict[str, np.ndarray]
SUFFIX = ".safetensors"
_HEADER = schema.Table({"__metadata__": schema.Table({"cupola": schema.Text()})})


class Checkpoint(NamedTuple):
    iteration: int
    arrays: Arrays
    metrics: str = ""
    """Check value of the metrics up to this iteration."""


def flatten(prefix: str, tree: Any) -> Arrays:
    """The leaves of a pytree by their path, for example ``learner.policy.log_std``."""
    import jax  # here: a run can be looked at without waiting for it

    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(prefix: str, arrays: Arrays, like: Any) -> Any:
    """The pytree of the shape of ``like`` from arrays saved with `flatten`."""
    import jax

    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = prefix + jax.tree_util.keystr(path)
        array = array_of(arrays, name, np.shape(leaf), leaf.dtype.kind)
        found.append(jax.numpy.asarray(array, dtype=leaf.dtype))
    return jax.tree_util.tree_unflatten(tree, found)


def array_of(arrays: Arrays, name: str, shape: tuple[int | None, ...], kinds: str) -> np.ndarray:
    """An array of this shape, in which None is any size, and of one of these kinds of numbers."""
    if name not in arrays:
        raise CupolaError(f"the checkpoint has no array {name!r}: it is of another algorithm.")
    array = arrays[name]
    fits = len(shape) == array.ndim and all(
        size in (None, found) for size, found in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise CupolaError(
            f"the checkpoint's array {name!r} has shape {array.shape}, expected {shape}: it is of"
            " another task or network size."
        )
    if array.dtype.kind not in kinds:
        raise CupolaError(f"the checkpoint's array {name!r} holds {array.dtype}: it is damaged.")
    return array


def json_array(value: Any) -> np.ndarray:
    """A JSON value as an array of bytes."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def from_json_array(arrays: Arrays, name: str, kind: schema.Kind) -> Any:
    """The way back from `json_array`; a sentence where it is damaged."""
    try:
        return schema.parse(array_of(arrays, name, (None,), "u").tobytes(), kind)
    except ValueError as error:
        raise CupolaError(f"the checkpoint's array {name!r} is damaged ({error}).") from None


def name_of(iteration: int) -> str:
    return f"{iteration:08d}{SUFFIX}"


def iterations(folder: Folder) -> list[int]:
    """Iterations that have a checkpoint, oldest first."""
    found = (re.fullmatch(rf"([0-9]{{8,18}}){SUFFIX}", name) for name in folder.names())
    return sorted(int(match[1]) for match in found if match and name_of(int(match[1])) == match[0])


def misnamed(folder: Folder) -> list[str]:
    """Files whose names are numbers, but not as checkpoints have them: somebody renamed them."""
    names = {name_of(iteration) for iteration in iterations(folder)}
    return [
        name
        for name in folder.names()
        if name.endswith(SUFFIX) and name.removesuffix(SUFFIX).isdigit() and name not in names
    ]


def write(folder: Folder, checkpoint: Checkpoint, keep: int) -> None:
    """Write a checkpoint whole or not at all, then forget all but the last ``keep``."""
    arrays = {name: np.array(array, order="C") for name, array in checkpoint.arrays.items()}
    digest = _digest(checkpoint._replace(arrays=arrays))
    about = {"iteration": checkpoint.iteration, "metrics": checkpoint.metrics, "sha256": digest}
    data = serialise(arrays, metadata={"cupola": json.dumps(about)})
    folder.write(name_of(checkpoint.iteration), data)
    forget_old(folder, keep)


def forget_old(folder: Folder, keep: int) -> None:
    """Remove all checkpoints but the last ``keep``."""
    for old in iterations(folder)[:-keep]:
        folder.remove(name_of(old))


def read(folder: Folder, name: str) -> Checkpoint:
    """A checkpoint; a sentence where it is damaged."""
    path = folder.path / name
    data = folder.read(name, MAX_CHECKPOINT)
    if data is None:
        raise CupolaError(f"there is no checkpoint {path}.")
    try:
        about = schema.parse(_metadata(data), schema.CHECKPOINT)
        arrays = {key: array.copy() for key, array in deserialise(data).items()}
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise CupolaError(f"{path} is not a readable checkpoint ({reason}).") from None
    found = Checkpoint(about["iteration"], arrays, about["metrics"])
    if _digest(found) != about["sha256"]:
        raise CupolaError(f"{path} is damaged: its contents do not match their checksum.")
    stem = name.removesuffix(SUFFIX)
    if stem.isdecimal() and int(stem) != found.iteration:
        raise CupolaError(f"{path} is of iteration {found.iteration}: it was renamed.")
    return found


def newest(folder: Folder) -> tuple[Checkpoint | None, list[str]]:
    """The newest readable checkpoint, and a sentence for each newer one that is damaged."""
    faults: list[str] = []
    for iteration in reversed(iterations(folder)):
        try:
            return read(folder, name_of(iteration)), faults
        except CupolaError as error:
            faults.append(str(error))
    return None, faults


def _metadata(data: bytes) -> bytes:
    """What cupola wrote into the header of a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    header = schema.parse(data[8 : 8 + size], _HEADER)
    return header["__metadata__"]["cupola"].encode()


def _digest(checkpoint: Checkpoint) -> str:
    total = hashlib.sha256(f"{checkpoint.iteration} {checkpoint.metrics}".encode())
    for name in sorted(checkpoint.arrays):
        array = checkpoint.arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()
