"""Cores that this process may use."""

from __future__ import annotations

import os


def core_ids() -> list[int]:
    """The numbers of the cores."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def available_cores() -> int:
    """How many there are."""
    return len(core_ids())
