"""Settings as names and labels show them."""

from __future__ import annotations

import math
import re
from typing import Any


def text_of(value: Any) -> str:
    """The value of a field as names and labels show it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "x".join(text_of(part) for part in value)
    if isinstance(value, dict):
        return "+".join(f"{key}{text_of(part)}" for key, part in value.items())
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value)) if abs(value) < 1e6 else f"{value:g}"
    return str(value)


def counted(count: int, noun: str) -> str:
    """1 run, 12,000 runs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def by_numbers(name: str) -> tuple[list[str | int], str]:
    """The key of an order in which 9 comes before 10."""
    parts = re.split(r"(\d+)", name)  # texts and numbers in turn
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def slug(text: str) -> str:
    """A text as a file may be called."""
    return re.sub(r"[^\w.+=-]", "_", text, flags=re.ASCII).lstrip(".")
