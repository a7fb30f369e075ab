"""Checkpoints: named arrays in safetensors files, written atomically, verified when read.

Nothing in them can run code: a file is a JSON header and raw arrays (docs/decisions/0005).
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialise

from cupola.errors import CupolaError

Arrays = dict[str, np.ndarray]
SUFFIX = ".safetensors"


def flatten(prefix: str, tree: Any) -> Arrays:
    """The leaves of a pytree by their path, for example ``learner.policy.log_std``."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(prefix: str, arrays: Arrays, like: Any) -> Any:
    """The pytree of the shape of ``like`` from arrays saved with `flatten`."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays:
            raise CupolaError(f"the checkpoint has no array {name!r}: it is of another algorithm.")
        if arrays[name].shape != np.shape(leaf):
            raise CupolaError(
                f"the checkpoint's array {name!r} has shape {arrays[name].shape},"
                f" expected {np.shape(leaf)}: it is of another task or network size."
            )
        found.append(jax.numpy.asarray(arrays[name], dtype=np.asarray(leaf).dtype))
    return jax.tree_util.tree_unflatten(tree, found)


def path_of(folder: Path, iteration: int) -> Path:
    return folder / f"{iteration:08d}{SUFFIX}"


def iterations(folder: Path) -> list[int]:
    """Iterations that have a checkpoint, oldest first."""
    return sorted(int(p.stem) for p in folder.glob(f"*{SUFFIX}") if p.stem.isdigit())


def write(folder: Path, iteration: int, arrays: Arrays, keep: int) -> None:
    """Write a checkpoint whole or not at all, then forget all but the last ``keep``."""
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    digest = _digest(iteration, arrays)
    meta = {"cupola": json.dumps({"iteration": iteration, "sha256": digest})}
    write_atomically(path_of(folder, iteration), serialise(arrays, metadata=meta))
    for old in iterations(folder)[:-keep]:
        path_of(folder, old).unlink(missing_ok=True)


def read(path: Path) -> tuple[int, Arrays]:
    """The iteration and arrays of a checkpoint; a sentence where it is damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            meta = json.loads((file.metadata() or {})["cupola"])
            iteration, digest = int(meta["iteration"]), meta["sha256"]
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise CupolaError(f"{path} is not a readable checkpoint ({error}).") from None
    if _digest(iteration, arrays) != digest:
        raise CupolaError(f"{path} is damaged: its contents do not match their checksum.")
    return iteration, arrays


def newest(folder: Path) -> tuple[int, Arrays, list[str]]:
    """The newest readable checkpoint, and a sentence for each newer one that is damaged.

    Without any it is iteration 0 and no arrays: the beginning.
    """
    damaged: list[str] = []
    for iteration in reversed(iterations(folder)):
        try:
            found, arrays = read(path_of(folder, iteration))
        except CupolaError as error:
            damaged.append(str(error))
            continue
        return found, arrays, damaged
    return 0, {}, damaged


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file's contents so that a crash leaves either the old or the new ones."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def append(file: io.FileIO, data: bytes) -> None:
    """Write all of ``data`` to an unbuffered file, or fail."""
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _digest(iteration: int, arrays: Arrays) -> str:
    total = hashlib.sha256(str(iteration).encode())
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()
