"""What the files of a run and of a sweep hold: declared once, checked whenever they are read.

A kind is asked what is wrong with a value: `fault` answers in words, with nothing where it fits.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cupola.errors import CupolaError
from cupola.runs.files import Folder

Record = dict[str, Any]

MAX_DEPTH = 8
"""Tables and lists within each other, where their contents are not declared."""
MAX_TEXT = 4096


class Kind(Protocol):
    def fault(self, value: Any) -> str:
        """What is wrong with a value; nothing where it fits."""


@dataclass(frozen=True)
class Text:
    """Characters that can be shown on one line."""

    def fault(self, value: Any) -> str:
        if not isinstance(value, str):
            return f"must be a text, not {brief(value)}"
        if len(value) > MAX_TEXT or not value.isprintable():
            return f"must be a text of one line, not {brief(value)}"
        return ""


@dataclass(frozen=True)
class Whole:
    """A whole number of 63 bits."""

    least: int = -(2**63) + 1

    def fault(self, value: Any) -> str:
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
            return f"must be a whole number, not {brief(value)}"
        return "" if value >= self.least else f"must be at least {self.least}, not {value}"


@dataclass(frozen=True)
class Number:
    """A number, perhaps a ``finite`` one, perhaps not known."""

    finite: bool = False
    or_null: bool = False

    def fault(self, value: Any) -> str:
        if value is None and self.or_null:
            return ""
        fits = isinstance(value, float | bool) or not Whole().fault(value)
        if fits and (math.isfinite(value) or not self.finite):
            return ""
        return f"must be a number, not {brief(value)}"


@dataclass(frozen=True)
class Plain:
    """A setting: any JSON value of little depth, whose texts are of one line."""

    depth: int = MAX_DEPTH

    def fault(self, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return ""
        if isinstance(value, str):
            return Text().fault(value)
        if isinstance(value, int | float):
            return Number().fault(value)
        if self.depth == 0:
            return "is nested too deeply"
        inner = Plain(self.depth - 1)
        return List(inner).fault(value) if isinstance(value, list) else Map(inner).fault(value)


@dataclass(frozen=True)
class Either:
    first: Kind
    second: Kind

    def fault(self, value: Any) -> str:
        return self.first.fault(value) and self.second.fault(value)


@dataclass(frozen=True)
class List:
    of: Kind

    def fault(self, value: Any) -> str:
        if not isinstance(value, list):
            return f"must be a list, not {brief(value)}"
        faults = ((i, self.of.fault(part)) for i, part in enumerate(value, 1))
        return next((f"item {i} {fault}" for i, fault in faults if fault), "")


@dataclass(frozen=True)
class Map:
    """Any keys, with values of one kind."""

    of: Kind

    def fault(self, value: Any) -> str:
        return Table({}, others=self.of).fault(value)


@dataclass(frozen=True)
class Table:
    """An object with keys that it must have, keys that it may have, and others."""

    required: Mapping[str, Kind]
    optional: Mapping[str, Kind] = field(default_factory=dict)
    others: Kind = Plain()

    def fault(self, value: Any) -> str:
        if not isinstance(value, dict):
            return f"must be an object, not {brief(value)}"
        for key in self.required:
            if key not in value:
                return f"has no {key!r}"
        known = {**self.required, **self.optional}
        for key, part in value.items():
            fault = Text().fault(key) or known.get(key, self.others).fault(part)
            if fault:
                return f"{brief(key)} {fault}"
        return ""


@dataclass(frozen=True)
class CostTable(Table):
    """A table in which every cost has its limit."""

    def fault(self, value: Any) -> str:
        fault = super().fault(value)
        if fault:
            return fault
        costs = (key.removeprefix("cost/") for key in value if key.startswith("cost/"))
        missing = (f"limit/{cost}" for cost in costs if value.get(f"limit/{cost}") is None)
        return next((f"has no {name!r}" for name in missing), "")


CONFIG = Table(
    {
        "algo": Text(),
        "task": Text(),
        "limits": Map(Number(finite=True)),
        "algorithm": Table({"batch_size": Whole(1)}),
    },
    {
        "cupola": Text(),
        "format": Whole(),
        "preset": Text(),
        "seed": Whole(),
        "iterations": Whole(1),
        "gym": Map(Plain()),
        "decay": List(List(Whole(0))),
        "ended": Table({"iteration": Whole(1), "reason": Text()}),
    },
)
"""config.json of any version. `RunConfig` checks the options and the algorithm's fields."""

METRICS = CostTable(
    {
        "iteration": Whole(1),
        "steps": Whole(1),
        "length": Number(or_null=True),
        "return": Number(or_null=True),
    },
    others=Number(or_null=True),
)
TIMINGS = Table(
    {
        "iteration": Whole(1),
        "rollout_seconds": Number(finite=True),
        "update_seconds": Number(finite=True),
    },
    others=Number(or_null=True),
)

CHECKPOINT = Table({"iteration": Whole(1), "metrics": Text(), "sha256": Text()})
"""What the header of a checkpoint says of it."""

_KEY = Either(Text(), Whole())
OBSERVATION = List(
    Table(
        {
            "path": List(_KEY),
            "shape": List(Whole(0)),
            "sizes": List(Whole(1)),
            "first": List(Whole()),
        }
    )
)
"""The parts of an observation, in a checkpoint."""

HOLDER = Table({"pid": Whole(1), "host": Text(), "since": Text()})
"""Who holds a lock."""

_INTERVAL = Table({"mean": Number(or_null=True)}, others=Number(or_null=True))
_COST = Table({"mean": Number(or_null=True)}, {"undiscounted": _INTERVAL})
_EVALUATION = Table({"return": _INTERVAL, "costs": Map(_COST)}, {"length": _INTERVAL})
RESULT = Table(
    {
        "episodes": Whole(1),
        "sampled": _EVALUATION,
        "deterministic": _EVALUATION,
        "check": Text(),
    },
    {"versions": Map(Text())},
)
"""result.json: the evaluations of a finished cell of a sweep."""

FAILURE = Table({"reason": Text()})

_LEVEL = Table(
    {
        "iteration": Whole(1),
        "violation": Number(finite=True),
        "mean_return": Number(finite=True),
    }
)
_CELL = Table(
    {
        "name": Text(),
        "label": Text(),
        "task": Text(),
        "seed": Whole(),
        "point": Map(Plain()),
        "algo": Text(),
        "fields": Table({}, {"iterations": Whole(1), "threads": Whole(0)}),
    },
    {"bars": List(_LEVEL)},
)
SWEEP = Table(
    {
        "name": Text(),
        "cells": List(_CELL),
        "evaluation_episodes": Whole(1),
        "resources": Map(Number()),
    }
)
"""sweep.json."""

_OUTCOME = Table(
    {
        "state": Text(),
        "reason": Text(),
        "mean_return": Number(finite=True, or_null=True),
        "costs": Map(Number(finite=True)),
        "limits": Map(Number(finite=True)),
        "levels": List(_LEVEL),
    }
)
_TRIAL = Table(
    {"values": Map(Plain()), "bars": List(_LEVEL)},
    {"outcome": _OUTCOME},
)
TUNING = Table(
    {
        "name": Text(),
        "trials_wanted": Whole(1),
        "asked": Table({"seeds": List(Whole()), "space": Map(Plain())}),
        "trials": List(_TRIAL),
        "importances": Map(Number(finite=True)),
        "check": Text(),
    }
)
"""tuning.json: a study of `cupola tune`."""

WANDB = Table({"id": Text(), "project": Text()})
MLFLOW = Table({"run_id": Text()})


def brief(value: Any) -> str:
    """A value in a message, however long or deep it is."""
    return reprlib.repr(value)


def parse(data: bytes, kind: Kind) -> Any:
    """A value of this kind from JSON; a ValueError says what is wrong, without the file."""
    try:
        value = json.loads(data.decode())
        if b"\\u" in data:
            # Half a surrogate pair is no character: nothing could print or write it.
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    fault = kind.fault(value)
    if fault:
        raise ValueError(f"it {fault}" if fault.startswith(("has", "must")) else fault)
    return value


def read_record(folder: Folder, name: str, kind: Table) -> Record | None:
    """An object from a file; None where there is no file, a sentence where it is damaged."""
    data = folder.read(name)
    if data is None:
        return None
    try:
        return parse(data, kind)
    except ValueError as error:
        raise CupolaError(f"{folder.path / name} is damaged ({error}).") from None


def write_record(folder: Folder, name: str, record: Record) -> None:
    folder.write(name, (json.dumps(record, indent=1) + "\n").encode())
