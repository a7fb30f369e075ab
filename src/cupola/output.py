"""Standard output and error, which may break without harm: a reader that went away, a closed
terminal, a full disk, an encoding without the characters.

What is printed is a convenience. Whatever happens to it, the work goes on and is saved.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

STAND_INS = {"±": "+-", "…": ".", "─": "-", "━": "-", "│": "|", "┃": "|", "†": "+"}
"""For encodings that have no such character; lines of other boxes become +."""


def stand_in(error: UnicodeError) -> tuple[str, int]:
    """What is written for characters that an encoding does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(STAND_INS.get(c, "+" if "─" <= c <= "╿" else "?") for c in lost), error.end


codecs.register_error("cupola-stand-in", stand_in)


def showable(text: str, encoding: str) -> str:
    """A text with stand-ins for what an encoding does not have."""
    return text.encode(encoding, "cupola-stand-in").decode(encoding)


def visible(text: str) -> str:
    """A text in which all that a terminal would obey, but the ends of lines, is written out."""
    return re.sub(r"[^\n\x20-\x7e\xa0-\U0010ffff]", lambda found: repr(found[0])[1:-1], text)


class Forgiving:
    """A text stream that falls silent when it can no longer be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._try(self._stream.write, showable(text, encoding))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, method: Callable[..., object], *args: str) -> None:
        try:
            method(*args)
        except (OSError, ValueError):  # the latter: it is closed
            with contextlib.suppress(OSError, ValueError):
                # The rest goes nowhere, also what is still in a buffer.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def forgiving_output() -> Iterator[None]:
    """Within, nothing that is printed can fail."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Closed: the next file that is opened, a checkpoint perhaps, would take its place.
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        # Python has no stream at all for a descriptor that was closed when it started.
        ours = [Forgiving(stream or nowhere) for stream in before]
        sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in ours)
        try:
            yield
        finally:
            for stream in ours:
                stream.flush()
            sys.stdout, sys.stderr = before
