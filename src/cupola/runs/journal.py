"""A file with one line per iteration, in which nothing can be missing or changed unnoticed.

Every line is a JSON object. Its last key, `check`, is a digest of the line and of the check value
of the line before, so it stands for all lines so far. It protects from accidents, not from somebody
who computes it anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from contextlib import suppress
from typing import NamedTuple

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.files import MAX_LINE, MAX_LINES, Folder, append
from cupola.runs.schema import Record

_CHECK = re.compile(rb', "check": "([0-9a-f]{16})"\}\n')
_CHECK_SIZE = len(b', "check": "0123456789abcdef"}\n')
TAIL_BYTES = 16384


class Contents(NamedTuple):
    """What a journal holds, up to the first line that is not whole."""

    records: list[Record]
    lines: list[bytes]
    checks: list[str]
    """The check value after each line; that of no line first."""
    fault: str
    """What is wrong with the next line, in a sentence; nothing where there is none."""


class Journal:
    """A file of checked lines."""

    def __init__(self, folder: Folder, name: str, kind: schema.Table, gaps: bool = False) -> None:
        """``gaps``: iterations may be missing, as long as their numbers rise."""
        self._folder, self._name, self._kind, self._gaps = folder, name, kind, gaps
        self.path = folder.path / name
        self.check = ""
        """The check value of all lines so far, of a journal that is written."""
        self._file: io.FileIO | None = None

    def read(self, checked: bool = True) -> Contents:
        """The whole lines; a last one that a crash cut short is left out.

        ``checked`` is False for runs of earlier versions, whose lines have no check values.
        """
        found = Contents([], [], [""], "")
        for number, line in enumerate(self._folder.lines(self._name), 1):
            fault = ""
            if len(line) > MAX_LINE or number > MAX_LINES:
                fault = "is longer than any line of cupola"
            elif not line.endswith(b"\n"):
                break
            else:
                try:
                    self._take(line, found, checked)
                except ValueError as error:
                    fault = str(error)
            if fault:
                return found._replace(fault=f"line {number} of {self.path} {fault}.")
        return found

    def _take(self, line: bytes, found: Contents, checked: bool) -> None:
        """Add a line to what was found, or raise a ValueError that says what is wrong."""
        last = found.records[-1]["iteration"] if found.records else 0
        before = found.checks[-1] if checked else None
        record, check = verified(line, self._kind, before, last, self._gaps)
        found.records.append(record)
        found.lines.append(line)
        found.checks.append(check)

    def records(self, checked: bool = True) -> list[Record]:
        """All lines; a sentence where one is damaged."""
        found = self.read(checked)
        if found.fault:
            raise CupolaError(found.fault)
        return found.records

    def rewind(self, iteration: int) -> str:
        """Keep the whole lines up to ``iteration``, to go on after them.

        Returns what was wrong with a line that should have been kept, in a sentence.
        """
        found = self.read()
        kept = sum(record["iteration"] <= iteration for record in found.records)
        self._folder.write(self._name, b"".join(found.lines[:kept]))
        self.check = found.checks[kept]
        self._file = self._folder.extend(self._name)
        return found.fault if kept == len(found.records) else ""

    def append(self, record: Record) -> None:
        """Add a line: it is in the file, or the write fails."""
        fault = self._kind.fault(record)
        if fault:
            raise CupolaError(f"a line of {self.path} cannot be written: {fault}.")
        body = json.dumps(record).encode()
        check = chained(self.check, body)
        assert self._file is not None, "a journal is rewound before it is written to"
        append(self._file, body[:-1] + f', "check": "{check}"}}\n'.encode())
        self.check = check

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def tail(self, most: int = MAX_LINES) -> list[Record]:
        """The last lines, for a quick look while the run goes on; none is checked."""
        try:
            lines = self._folder.tail(self._name, TAIL_BYTES).split(b"\n")
        except CupolaError:
            return []
        found: list[Record] = []
        for line in reversed(lines):
            if len(found) == most:
                break
            with suppress(ValueError):  # not a whole line
                found.append(schema.parse(_CHECK.sub(b"}", line + b"\n"), self._kind))
        return found[::-1]


def verified(
    line: bytes, kind: schema.Table, before: str | None, last: int, gaps: bool
) -> tuple[Record, str]:
    """A line and its check value, or a ValueError that says what is wrong with it.

    It comes after a line with the check value ``before``, None in runs of earlier versions, and of
    the iteration ``last``.
    """
    body, check = line, ""
    if before is not None:
        body = line[:-_CHECK_SIZE] + b"}"
        check = chained(before, body)
        told = _CHECK.fullmatch(line, max(0, len(line) - _CHECK_SIZE))
        if told is None or told[1].decode() != check:
            raise ValueError(
                "is damaged: its check value does not fit, so it was changed, or lines are"
                " missing, doubled or out of order"
            )
    try:
        record: Record = schema.parse(body, kind)
    except ValueError as error:
        raise ValueError(f"is damaged ({error})") from None
    iteration = record["iteration"]
    if iteration <= last or (iteration != last + 1 and not gaps):
        raise ValueError(f"is out of order: iteration {iteration} comes after {last}")
    return record, check


def chained(before: str, body: bytes) -> str:
    """The check value of a line, given that of the line before."""
    return hashlib.sha256(before.encode() + body).hexdigest()[:16]
