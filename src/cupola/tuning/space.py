"""The search space of a study: for each field a range of numbers, or a list of choices.

    [space]
    learning_rate = { low = 1e-5, high = 1e-2, log = true }
    epochs = { low = 1, high = 20 }
    improvement = ["clip", "focops"]

Whether a range is of whole numbers, the field says.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, get_type_hints

from cupola.algos import load_algorithm
from cupola.checks import check
from cupola.config import RunOptions
from cupola.errors import CupolaError, unknown
from cupola.sweeps.cells import Fields
from cupola.sweeps.directory import NOT_COMPARED
from cupola.sweeps.grid import field_names

FIXED = ("iterations", "limit", "patience", *NOT_COMPARED)
"""Fields that cannot be varied: trials are compared, and these change the measure or nothing."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included."""

    low: float
    high: float
    log: bool
    """Whether factors count, not differences."""
    whole: bool

    @property
    def samples(self) -> list[Any]:
        """Values that stand for all: a field that takes these takes those between."""
        return [self.low, self.high]

    def holds(self, value: Any) -> bool:
        kinds = int if self.whole else int | float
        number = isinstance(value, kinds) and not isinstance(value, bool)
        return number and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """Any values."""

    options: tuple[Any, ...]

    @property
    def samples(self) -> list[Any]:
        return list(self.options)

    def holds(self, value: Any) -> bool:
        return same(value) in map(same, self.options)

    def index(self, value: Any) -> int:
        return list(map(same, self.options)).index(same(value))


Space = dict[str, Range | Choice]


def same(value: Any) -> str:
    """Equal for equal values; 1, 1.0 and true are not."""
    return json.dumps(value, sort_keys=True)


def parse(record: Fields, algo: str) -> Space:
    """The space of an algorithm's fields from the file's table."""
    check(bool(record), f"the space is empty: write for example {EXAMPLE}.")
    known = [name for name in field_names(algo) if name not in FIXED]
    hints = get_type_hints(RunOptions) | get_type_hints(load_algorithm(algo).Config)
    space: Space = {}
    for field, entry in record.items():
        if field == "seed" or field in FIXED:
            raise CupolaError(f"{field} cannot be in the space: it is the same for all trials.")
        if field not in known:
            raise unknown(f"field of {algo}", field, known)
        try:
            space[field] = domain(entry, hints.get(field))
        except CupolaError as error:
            raise CupolaError(f"space.{field}: {error}") from None
    return space


EXAMPLE = "[space] and below it learning_rate = { low = 1e-5, high = 1e-2, log = true }"


def domain(entry: Any, hint: Any) -> Range | Choice:
    """What one field may be."""
    if isinstance(entry, list):
        check(len(entry) > 1, "list two values or more, or set the only one in [shared].")
        options = tuple(entry)
        try:
            different = set(map(same, options))
        except (TypeError, ValueError):
            raise CupolaError("choices are numbers, texts, true, false or lists.") from None
        check(len(different) == len(options), "a choice is listed twice.")
        return Choice(options)
    if not isinstance(entry, dict):
        raise CupolaError(
            "write a range like { low = 1e-5, high = 1e-2, log = true }, or a list of choices, not"
            f" {entry!r}."
        )
    for key in entry:
        if key not in ("low", "high", "log"):
            raise unknown("key of a range", key, ("low", "high", "log"))
    for key in ("low", "high"):
        check(key in entry, f"{key!r} is missing: a range is like {{ low = 1, high = 20 }}.")
    if hint not in (int, float):
        raise CupolaError("this field is no number: list its choices, like [true, false].")
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    kinds = int if hint is int else int | float
    for key, end in (("low", low), ("high", high)):
        number = isinstance(end, kinds) and not isinstance(end, bool) and math.isfinite(end)
        what = "a whole number" if hint is int else "a number"
        check(number, f"{key} must be {what}, not {end!r}.")
    check(isinstance(log, bool), f"log must be true or false, not {log!r}.")
    check(low < high, f"low must be below high, but {low} is not below {high}.")
    check(not log or low > 0, f"on a logarithmic scale low must be above 0, not {low}.")
    if hint is float:
        low, high = float(low), float(high)
    return Range(low, high, log, hint is int)
