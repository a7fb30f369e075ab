"""Errors that a user can act on: one sentence each, printed without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CupolaError(Exception):
    """Something the user can put right; the message says how."""


def unknown(kind: str, name: str, known: Iterable[str]) -> CupolaError:
    """An error for a name that is not among the ``known`` ones, suggesting the nearest."""
    choices = sorted(known)
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.4)
    hint = f"did you mean {folded[close[0]]!r}?" if close else f"choose from {', '.join(choices)}."
    return CupolaError(f"unknown {kind} {name!r}: {hint}")
