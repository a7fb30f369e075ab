"""Saving a Gymnasium environment as arrays, and putting it back.

The rule, from the outermost wrapper inwards:

1. an object with `save_state() -> dict of plain data` and `restore_state(state)` speaks for itself
   and all that it wraps;
2. else its attributes are taken, if all of them are plain data (numbers, strings, arrays, random
   generators, `mujoco.MjData`, and lists, tuples, dicts, named tuples and dataclasses of these) or
   do not change (spaces, functions, classes, models);
3. else the environment cannot be restored.

Nothing is pickled: structure is JSON, numbers are arrays.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import logging
import random
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.registration import EnvSpec

from cupola.errors import CupolaError
from cupola.tasks.base import State

STRUCTURE = "structure"

_UNCHANGING = (
    gymnasium.Space,
    EnvSpec,
    mujoco.MjModel,
    mujoco.MjSpec,
    enum.Enum,
    logging.Logger,
    np.dtype,
    range,
    bytes,
    frozenset,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
)


_BITS = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}


class CannotSaveError(CupolaError):
    """What stands in the way, in a few words."""


def layers(env: Any) -> Iterator[Any]:
    """The wrappers from the outermost to the environment itself, or to one that saves itself."""
    while True:
        yield env
        if _saves_itself(env) or not isinstance(env, gymnasium.Wrapper):
            return
        env = env.env


def _saves_itself(env: Any) -> bool:
    return callable(getattr(env, "save_state", None)) and callable(
        getattr(env, "restore_state", None)
    )


def save(env: Any, extra: Any = None) -> State:
    """An environment, and ``extra`` plain data, as named arrays."""
    arrays: list[np.ndarray] = []
    parts: list[Any] = [_encode(extra, arrays, "the observation")]
    for layer in layers(env):
        if _saves_itself(layer):
            parts.append(_encode(dict(layer.save_state()), arrays, "save_state()"))
        else:
            parts.append(_encode_attributes(layer, arrays))
    found = {str(i): array for i, array in enumerate(arrays)}
    return {STRUCTURE: np.frombuffer(json.dumps(parts).encode(), np.uint8), **found}


def restore(env: Any, state: State) -> Any:
    """Put a saved state into an environment of the same make; the ``extra`` data."""
    extra, *parts = json.loads(state[STRUCTURE].tobytes())
    for layer, part in zip(layers(env), parts, strict=True):
        if _saves_itself(layer):
            layer.restore_state(_decode(part, state, None))
            continue
        attributes = vars(layer)
        for name, value in part.items():
            if name in _left_out(layer) or isinstance(attributes.get(name), _UNCHANGING):
                raise ValueError(f"{name!r} of {type(layer).__name__} is never saved")
            attributes[name] = _decode(value, state, attributes.get(name))
    return _decode(extra, state, None)


def _encode_attributes(layer: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    try:
        attributes = vars(layer)
    except TypeError:
        raise CannotSaveError(f"{type(layer).__name__} keeps no attributes to save") from None
    found = {}
    for name, value in attributes.items():
        if name in _left_out(layer) or _is_unchanging(value):
            continue
        where = f"attribute {name!r} of {type(layer).__name__}"
        fields = _fields(value)
        if fields is None:
            found[name] = _encode(value, arrays, where)
        else:
            parts = {field: _encode(part, arrays, where) for field, part in fields.items()}
            found[name] = {"record": parts}
    return found


def _left_out(layer: Any) -> tuple[str, ...]:
    """Attributes that belong to Gymnasium."""
    return ("env", "_saved_kwargs") if isinstance(layer, gymnasium.Wrapper) else ()


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a named tuple or a dataclass."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _is_unchanging(value: Any) -> bool:
    if type(value) in (list, tuple, dict) and value:
        parts = value.values() if isinstance(value, dict) else value
        return all(map(_is_unchanging, parts))
    # Gymnasium's renderer needs packages of its own, so it is known only where it is in use.
    rendering = sys.modules.get("gymnasium.envs.mujoco.mujoco_rendering")
    return isinstance(value, _UNCHANGING) or (
        rendering is not None and isinstance(value, rendering.MujocoRenderer)
    )


def _encode(value: Any, arrays: list[np.ndarray], where: str) -> Any:
    """Plain data as JSON that refers to arrays by number."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "SU":
            arrays.append(np.frombuffer(value.tobytes(), np.uint8))
            return {"text": len(arrays) - 1, "dtype": value.dtype.str, "shape": value.shape}
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
            raise CannotSaveError(f"{where} is an array of {value.dtype}")
        arrays.append(np.array(value))
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: len(arrays) - 1}
    if type(value) in (list, tuple, deque):
        parts = [_encode(part, arrays, where) for part in value]
        if isinstance(value, deque):
            return {"deque": parts, "maxlen": value.maxlen}
        return {type(value).__name__: parts}
    if type(value) is dict:
        pairs = [[_encode(k, arrays, where), _encode(v, arrays, where)] for k, v in value.items()]
        return {"dict": pairs}
    if isinstance(value, np.random.Generator) and type(value.bit_generator).__name__ in _BITS:
        bits = value.bit_generator
        return {"generator": type(bits).__name__, "state": _encode(bits.state, arrays, where)}
    if isinstance(value, random.Random):
        return {"random": _encode(value.getstate(), arrays, where)}
    if isinstance(value, mujoco.MjData):
        return {"mujoco": _encode(_physics(value), arrays, where)}
    raise CannotSaveError(f"{where} is a {type(value).__module__}.{type(value).__qualname__}")


def _decode(code: Any, state: State, current: Any) -> Any:
    """What `_encode` encoded. Generators and physics are put back into the ``current`` ones, which
    others may hold as well; named tuples and dataclasses are of the kind of the current one."""
    if not isinstance(code, dict):
        return code
    kind, content = next(iter(code.items()))
    if kind == "array":
        return state[str(content)].copy()
    if kind == "scalar":
        return state[str(content)][()]
    if kind == "text":
        text = np.frombuffer(state[str(content)].tobytes(), code["dtype"])
        return text.reshape(code["shape"]).copy()
    if kind == "dict":
        return {_decode(k, state, None): _decode(v, state, None) for k, v in content}
    if kind in ("list", "tuple", "deque"):
        parts = [_decode(part, state, None) for part in content]
        if kind == "deque":
            return deque(parts, code["maxlen"])
        return tuple(parts) if kind == "tuple" else parts
    if kind == "record":
        fields = {name: _decode(part, state, None) for name, part in content.items()}
        if isinstance(current, tuple):
            return type(current)(**fields)
        return dataclasses.replace(current, **fields)
    if kind == "generator":
        if not isinstance(current, np.random.Generator):
            current = np.random.Generator(_BITS[content]())
        current.bit_generator.state = _decode(code["state"], state, None)
        return current
    if kind == "random":
        current = current if isinstance(current, random.Random) else random.Random()
        current.setstate(_decode(content, state, None))
        return current
    _put_physics(current, _decode(content, state, None))
    return current


def _physics(data: mujoco.MjData) -> dict[str, np.ndarray]:
    """The integrated state and everything derived from it, which lags it by one substep."""
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integrated = np.empty(mujoco.mj_stateSize(data.model, kind))
    mujoco.mj_getState(data.model, data, integrated, kind)
    derived = {name: array.copy() for name, array in _arrays(data)}
    return {"": integrated, **derived}


def _put_physics(data: mujoco.MjData, saved: dict[str, np.ndarray]) -> None:
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(data.model, data, saved[""], kind)
    mujoco.mj_forward(data.model, data)
    mujoco.mj_setState(data.model, data, saved[""], kind)
    for name, array in _arrays(data):
        if name in saved and saved[name].shape == array.shape:
            array[...] = saved[name]


def _arrays(data: mujoco.MjData) -> Iterator[tuple[str, np.ndarray]]:
    """Numbers whose count does not depend on the contacts of the moment; no indices or pointers."""
    for name in dir(data):
        if not name.startswith(("_", "efc_", "iefc_", "efm_")):
            array = getattr(data, name)
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size:
                yield name, array
