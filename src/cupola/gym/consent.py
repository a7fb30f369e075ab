"""Consent: what the names in a run would import and call, found without importing any of it.

A run directory or an experiment file may come from a stranger. What it names is harmless where
nothing but gymnasium and cupola is imported and no function is called: an id that Gymnasium knows,
or a class of environments of these two. Everything else needs a word of the user, ``--trust`` or
``trust=True`` (docs/security.md). What users name themselves in a command or a call needs none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import gymnasium

from cupola.errors import CupolaError
from cupola.gym.costs import is_own, load
from cupola.gym.options import is_foreign


def require_consent(trust: bool, source: str, effects: Iterable[str]) -> None:
    """Refuse the ``effects`` of using ``source``, unless the user trusts it."""
    found = list(dict.fromkeys(effects))
    if found and not trust:
        raise CupolaError(
            f"{source} would {' and '.join(found)}: add --trust (in Python trust=True) if you trust"
            " where it comes from."
        )


def effects_of_task(task: str) -> list[str]:
    """What making the environment of a recorded name does beyond gymnasium and cupola."""
    if not is_foreign(task):
        return []
    kind, _, name = task.partition(":")
    return _effects_of_id(name) if kind == "gym" else _effects_of_maker(name)


def effects_of_function(name: str) -> list[str]:
    """What finding and calling `package.module:function` does; a name alone finds nothing."""
    module, colon, function = name.rpartition(":")
    return [f"import {module!r} and call {function!r}"] if colon else []


def effects_of_sinks(names: Iterable[str]) -> list[str]:
    """Services get the metrics under the account of whoever trains."""
    return [f"send its metrics to {name}" for name in names if name != "tensorboard"]


def _effects_of_maker(name: str) -> list[str]:
    """Only classes of environments may be called: functions of modules can do anything."""
    module = name.rpartition(":")[0]
    if is_own(module):
        found = load(name)
        is_class = isinstance(found, type) and issubclass(found, gymnasium.Env)
        if is_class and is_own(found.__module__):
            return []
    return effects_of_function(name)


def _effects_of_id(name: str) -> list[str]:
    module, colon, known_as = name.rpartition(":")
    if colon and not is_own(module):
        return [f"import {module!r}"]
    # Without a version Gymnasium takes the newest.
    specs = [
        spec
        for key, spec in gymnasium.registry.items()
        if known_as in (key, key.rpartition("-v")[0])
    ]
    entries = [entry for spec in specs for entry in _entry_points(spec)]
    return [f"import {entry.partition(':')[0]!r}" for entry in entries if _is_new(entry)]


def _entry_points(spec: Any) -> list[Any]:
    """What Gymnasium imports or calls for a registered id."""
    return [spec.entry_point, *(wrapper.entry_point for wrapper in spec.additional_wrappers)]


def _is_new(entry: Any) -> bool:
    """Whether an entry point is of a package that this process has not imported yet."""
    if not isinstance(entry, str):
        return False
    module = entry.partition(":")[0]
    return not is_own(module) and module.partition(".")[0] not in sys.modules
