"""Checks of configurations: what is impossible is refused with one sentence."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cupola.errors import CupolaError

LARGEST = 2**63
"""Whole numbers of files and of arrays are smaller."""


def check(condition: bool, message: str) -> None:
    if not condition:
        raise CupolaError(message)


def check_types(config: Any) -> None:
    """Refuse values of a wrong type, a word that is not a choice, and numbers that are not."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            check(
                value in choices,
                f"{field.name} must be one of {', '.join(map(str, choices))}, not {value!r}.",
            )
        elif hint is float:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            check(
                number and not math.isnan(value), f"{field.name} must be a number, not {value!r}."
            )
        elif hint is int:
            whole = isinstance(value, int) and not isinstance(value, bool)
            check(whole, f"{field.name} must be a whole number, not {value!r}.")
            check(abs(value) < LARGEST, f"{field.name} must be smaller than 2^63.")
        elif hint is bool:
            check(isinstance(value, bool), f"{field.name} must be true or false, not {value!r}.")
        elif hint is str:
            check(isinstance(value, str), f"{field.name} must be a text, not {value!r}.")
        elif hint == tuple[int, ...]:
            whole = isinstance(value, tuple) and all(type(part) is int for part in value)
            check(whole, f"{field.name} must be whole numbers, not {value!r}.")
            check(
                max(map(abs, value), default=0) < LARGEST,
                f"{field.name} must be smaller than 2^63.",
            )


def check_positive(config: Any, *names: str) -> None:
    for name in names:
        check(getattr(config, name) > 0, f"{name} must be positive, not {getattr(config, name)}.")


def check_not_negative(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        check(value >= 0, f"{name} must not be negative, not {value}.")
