"""The algorithms: one file each, and the folder is the registry.

A file of this folder is an algorithm when it has `Config`, `PRESETS` (with a preset `paper`; the
first one is the default) and `make(config, problem) -> Algorithm`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from importlib import resources
from typing import Any

from cupola.errors import unknown

_NOT_ALGORITHMS = {"assembly", "config", "learner", "trust_region", "update"}


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in _NOT_ALGORITHMS)


def load_algorithm(name: str) -> Any:
    """The module of an algorithm; dashes and case do not matter."""
    return importlib.import_module(f"{__name__}.{_folded(name)}")


def _folded(name: str) -> str:
    folded = name.lower().replace("-", "_")
    if folded not in names():
        raise unknown("algorithm", name, names())
    return folded


def summary(name: str) -> str:
    """The first line of an algorithm's docstring, without loading it."""
    return (ast.get_docstring(_source(name)) or "").partition("\n")[0]


def presets(name: str) -> list[str]:
    """The names of an algorithm's presets, the default first, without loading it."""
    for statement in _source(name).body:
        match statement:
            case ast.Assign([ast.Name("PRESETS")], ast.Dict(keys)):
                return [ast.literal_eval(key) for key in keys if key]
    return []


def _source(name: str) -> ast.Module:
    """The text of an algorithm's file: to load it takes JAX, and that a second."""
    file = resources.files(__name__) / f"{_folded(name)}.py"
    return ast.parse(file.read_text(encoding="utf-8"))


def owners(field: str) -> list[str]:
    """The algorithms whose config has this field."""
    configs = ((name, load_algorithm(name).Config) for name in names())
    return [name for name, kind in configs if field in {f.name for f in dataclasses.fields(kind)}]


def default_preset(module: Any) -> str:
    """The preset that an algorithm takes where none is named: the first."""
    return next(iter(module.PRESETS))
