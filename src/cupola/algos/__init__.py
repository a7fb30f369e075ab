"""The algorithms: one file each, and the folder is the registry.

A file of this folder is an algorithm when it has `Config`, `PRESETS` (with a preset `paper`; the
first one is the default) and `make(config, problem) -> Algorithm`.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any

from cupola.errors import unknown

_NOT_ALGORITHMS = {"assembly", "config", "learner", "trust_region", "update"}


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name not in _NOT_ALGORITHMS)


def load_algorithm(name: str) -> Any:
    """The module of an algorithm; dashes and case do not matter."""
    folded = name.lower().replace("-", "_")
    if folded not in names():
        raise unknown("algorithm", name, names())
    return importlib.import_module(f"{__name__}.{folded}")


def owners(field: str) -> list[str]:
    """The algorithms whose config has this field."""
    configs = ((name, load_algorithm(name).Config) for name in names())
    return [name for name, kind in configs if field in {f.name for f in dataclasses.fields(kind)}]


def default_preset(module: Any) -> str:
    """The preset that an algorithm takes where none is named: the first."""
    return next(iter(module.PRESETS))
