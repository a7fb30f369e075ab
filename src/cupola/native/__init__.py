"""The compiled part of cupola: kernels.c, called through ctypes, which releases the GIL.

The library is compiled when cupola is installed (hatch_build.py in the sources). Where that was not
possible there is none, and tasks do the same in NumPy, slower. Structures are those of kernels.c.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "kernels.c"
LIBRARY = FOLDER / "kernels.bin"
"""A shared library on all systems; ctypes does not mind the name."""

PTR, INT, NUM = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


def digest(source: Path = SOURCE) -> str:
    """What tells versions of the source apart."""
    return hashlib.sha256(source.read_bytes()).hexdigest()[:16]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions; None where there are none, or those of another version."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.source.restype = ctypes.c_char_p
        if found.source().decode() != digest():
            return None
    except (OSError, AttributeError):
        return None
    for name in ("robot_play", "world_play"):
        getattr(found, name).restype = INT
        getattr(found, name).argtypes = [PTR, PTR, PTR, INT, INT, INT]
    for name in ("robot_begin", "world_observe", "world_finish"):
        getattr(found, name).argtypes = [PTR, INT]
    for name in ("world_advance", "world_move", "world_step"):
        getattr(found, name).argtypes = [PTR, PTR, INT, PTR]
    found.robot_drive.argtypes = [PTR, INT, INT, INT, PTR, INT, INT]
    found.world_drive.argtypes = [PTR, INT, INT, INT, PTR]
    found.physics_step.argtypes = [PTR, PTR, INT, INT]
    found.physics_forward.argtypes = [PTR, PTR, INT]
    return found


class Structure(ctypes.Structure):
    """A structure of pointers and numbers that keeps alive what it points to."""

    def fill(self, **values: Any) -> None:
        """Set fields: to numbers, or to where arrays and other structures lie."""
        for name, value in values.items():
            self.keep(value)
            if isinstance(value, np.ndarray):
                assert value.flags.c_contiguous, name
                setattr(self, name, value.ctypes.data)
            elif isinstance(value, ctypes.Array | ctypes.Structure):
                setattr(self, name, ctypes.addressof(value))
            else:
                setattr(self, name, value)

    def keep(self, *values: Any) -> None:
        self.__dict__.setdefault("kept", []).extend(values)

    @property
    def at(self) -> int:
        return ctypes.addressof(self)


class Field(Structure):
    _fields_ = (("from_", PTR), ("to", PTR), ("size", INT))


class Physics(Structure):
    _fields_ = (
        *((name, PTR) for name in ("step", "step2", "forward", "set_state", "get_state")),
        *((name, PTR) for name in ("model", "data", "state", "loaded", "stage")),
        *((name, INT) for name in ("size", "signature")),
        ("fields", PTR),
        ("field_count", INT),
    )


class Policy(Structure):
    _fields_ = (
        ("layers", INT),
        *((name, PTR) for name in ("sizes", "weights", "biases", "shift", "scale", "std")),
        ("clip", NUM),
    )


class Rollout(Structure):
    _fields_ = (
        ("steps", INT),
        ("inputs", PTR),
        *((name, INT) for name in ("input_count", "act_size", "cost_count", "stride")),
        *((name, PTR) for name in ("noise", "obs", "next_obs", "actions", "rewards", "costs")),
        *((name, PTR) for name in ("terminated", "truncated", "before", "after", "scratch")),
        ("widest", INT),
    )


class Clock(Structure):
    _fields_ = (
        ("elapsed", PTR),
        ("limit", INT),
        ("terminated", PTR),
        ("truncated", PTR),
    )


class Robot(Structure):
    _fields_ = (
        ("physics", PTR),
        ("clock", Clock),
        *((name, PTR) for name in ("qpos", "qvel", "ctrl", "places", "dynamics")),
        ("dynamics_count", INT),
        ("shares", PTR),
        *((name, INT) for name in ("bodies", "nq", "nv", "skip_qpos", "obs_size", "axes")),
        ("frame_skip", INT),
        ("velocity_clip", NUM),
        ("height", INT),
        *((name, NUM) for name in ("low", "high", "angle", "bound")),
        *((name, PTR) for name in ("obs", "position")),
    )


class World(Structure):
    _fields_ = (
        ("physics", PTR),
        ("clock", Clock),
        *((name, PTR) for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat", "applied")),
        *((name, PTR) for name in ("sensors", "position", "frame")),
        *((name, INT) for name in ("nq", "nv", "sensor_count", "sensors_seen", "obs_size")),
        ("substeps", INT),
        ("kinds", PTR),
        *((name, INT) for name in ("kind_count", "envs", "goal", "moving", "loose", "gremlins")),
        *((name, INT) for name in ("buttons", "hazards", "hazards_end", "fragile")),
        *((name, NUM) for name in ("timestep", "goal_size", "hazard_size", "travel")),
        *((name, NUM) for name in ("gremlin_height", "gremlin_at_rest", "vase_at_rest")),
        ("weld_excess", NUM),
        *((name, PTR) for name in ("masks", "objects", "centres", "distance", "button", "timer")),
        *((name, PTR) for name in ("obs", "reward", "parts", "met")),
    )


def field_array(fields: Sequence[tuple[np.ndarray, np.ndarray | None, int]]) -> ctypes.Array[Field]:
    """Fields of (addresses [N], array [N, size] or None, size)."""
    array = (Field * len(fields))()
    for entry, (addresses, target, size) in zip(array, fields, strict=True):
        entry.from_ = addresses.ctypes.data
        entry.to = None if target is None else target.ctypes.data
        entry.size = size
    return array
