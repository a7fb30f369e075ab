"""Costs of a Gymnasium environment: of a function, of a sixth value of `step`, or of `info`.

A cost function names the arguments that it wants, any of `ARGUMENTS`, and returns one number or a
dict of numbers by name.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from cupola.errors import CupolaError
from cupola.gym.failures import EnvironmentFailedError

CostFunction: TypeAlias = Callable[..., Any]

ARGUMENTS = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "info")
ONLY = "cost"
"""Name of a cost that is just a number."""


def arguments_of(function: CostFunction, task: str) -> tuple[str, ...]:
    """The names of a cost function's arguments, as far as they can be given."""
    known = ", ".join(ARGUMENTS)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise CupolaError(
            f"the cost of {task} must be a Python function with arguments from {known}, not"
            f" {function!r}."
        ) from None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return ARGUMENTS
    for parameter in parameters:
        if parameter.name not in ARGUMENTS and parameter.default is parameter.empty:
            raise CupolaError(
                f"the cost function {name_of(function)} of {task} asks for {parameter.name!r}:"
                f" name its arguments from {known}."
            )
    return tuple(p.name for p in parameters if p.name in ARGUMENTS)


def named(result: Any, source: str) -> dict[str, float]:
    """A number, or a mapping from names to numbers, as a dict; a sentence for anything else."""
    if isinstance(result, Mapping):
        return {str(name): _number(value, f"{source}[{name!r}]") for name, value in result.items()}
    return {ONLY: _number(result, source)}


def _number(value: Any, source: str) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    expected = "one finite number, or a dict of them by name"
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        what = f"an array of shape {array.shape}" if array.ndim else repr(value)
        raise EnvironmentFailedError(f"{source} is {what}: it must be {expected}.")
    if not math.isfinite(array):
        raise EnvironmentFailedError(f"{source} is {float(array)}: it must be {expected}.")
    return float(array)


def in_info(info: Mapping[str, Any], task: str) -> dict[str, float]:
    """`info["costs"]` by name and `info["cost"]`, as far as they are there."""
    found: dict[str, float] = {}
    for key in ("costs", "cost"):
        if key in info:
            found |= named(info[key], f'info["{key}"] of {task}')
    return found


def selected(found: dict[str, float], names: Iterable[str], task: str) -> list[float]:
    """The named costs; a cost that is just a number answers to the only name that is asked for."""
    names = tuple(names)
    if len(names) == 1 and names[0] not in found and set(found) == {ONLY}:
        return [found[ONLY]]
    for name in names:
        if name not in found:
            there = ", ".join(found) or "none"
            raise EnvironmentFailedError(
                f"a step of {task} has no cost {name!r} (there: {there}): report it in every step,"
                " or give a cost function."
            )
    return [found[name] for name in names]


def name_of(function: Any) -> str:
    """`package.module:name` where that leads back to the object, else its name alone."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    if module and module != "__main__" and getattr(function, "__qualname__", None):
        try:
            if load(f"{module}:{name}") is function:
                return f"{module}:{name}"
        except CupolaError:
            pass
    return str(name)


def is_own(module: str) -> bool:
    """Whether a module is one of gymnasium or cupola."""
    return re.fullmatch(r"(gymnasium|cupola)(\.\w+)*", module) is not None


def reach(module: str) -> None:
    """Let a module of others be imported from the working directory, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and not is_own(module):
        sys.path.append(here)


def load(name: str) -> Any:
    """What `package.module:name` stands for; modules of the working directory count."""
    module_name, colon, attribute = name.rpartition(":")
    if not colon or not module_name or not attribute:
        raise CupolaError(
            f"{name!r} is not a name to import: write package.module:function, for a module that"
            " is installed or lies in the working directory."
        )
    reach(module_name)
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        text = " ".join(str(error).split())
        raise CupolaError(
            f"cannot import {name!r} ({type(error).__name__}: {text}): write"
            " package.module:function, for a module that is installed or lies in the working"
            " directory."
        ) from error
    return found
