"""Errors that a user can act on: one sentence each, printed without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class CupolaError(Exception):
    """Something the user can put right; the message says how."""


class CupolaWarning(UserWarning):
    """Something that the user should know; shown as one line, without a line of source."""


@contextmanager
def in_words(failure: str) -> Iterator[None]:
    """Turn what the system refuses into a sentence that begins with ``failure``."""
    try:
        yield
    except OSError as error:
        raise CupolaError(f"{failure} ({error.strerror or error}).") from None


MANY = 20
"""More choices than these are no help in a sentence."""


def unknown(kind: str, name: str, known: Iterable[str], listed: str = "") -> CupolaError:
    """An error for a name that is not among the ``known`` ones, suggesting the nearest.

    Where none is near and they are many, it says where they are ``listed``.
    """
    choices = sorted(known)
    folded = {choice.lower().lstrip("-"): choice for choice in choices}
    close = difflib.get_close_matches(name.lower().lstrip("-"), folded, n=1, cutoff=0.5)
    if close:
        hint = f"did you mean {folded[close[0]]!r}?"
    elif listed and len(choices) > MANY:
        hint = f"see {listed!r}."
    else:
        hint = f"choose from {', '.join(choices)}."
    return CupolaError(f"unknown {kind} {name!r}: {hint}")
