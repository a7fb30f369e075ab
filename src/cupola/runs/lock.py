"""Locks that the operating system takes back when a process ends, however it ends."""

from __future__ import annotations

import importlib
import io
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.files import Folder

fcntl: Any
try:
    import fcntl as _fcntl
except ImportError:  # Windows
    fcntl = None
else:
    fcntl = _fcntl

FAR = 2**30
"""Windows lets nobody read what is locked: there the lock is on a byte far behind the signature."""

_held: set[io.FileIO] = set()
"""The files that this process has locked."""


@contextmanager
def locked(folder: Folder, name: str, what: str, seconds: float) -> Iterator[None]:
    """Hold the lock of a file; after ``seconds`` in vain, say who is at work on ``what``."""
    with folder.extend(name) as file:
        deadline = time.monotonic() + seconds
        while not _acquire(file):
            if time.monotonic() > deadline:
                raise CupolaError(f"{what} is in use: {_holder(folder, name)}.")
            time.sleep(0.05)
        _held.add(file)
        try:
            # Another name of the file would get these bytes too, wherever it is.
            if os.fstat(file.fileno()).st_nlink == 1:
                file.truncate(0)
                file.write(_signature())
            yield
        finally:
            _held.discard(file)
            _release(file)


def is_held(folder: Folder, name: str) -> bool:
    """Whether a process holds the lock of a file; nothing is written, and nobody is kept out."""
    with folder.peek(name) as file:
        if file is None:
            return False
        try:
            # For a moment: whoever wants the lock meanwhile tries again.
            free = _acquire(file, shared=True)
        except OSError:
            return True
        if free:
            _release(file)
        return not free


def _acquire(file: io.FileIO | io.BufferedReader, shared: bool = False) -> bool:
    """Take the lock of an open file, unless another process has it."""
    if fcntl:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
    file.seek(FAR)
    try:
        _windows().locking(file.fileno(), _windows().LK_NBLCK, 1)
    except OSError:
        return False
    return True


def _release(file: io.FileIO | io.BufferedReader) -> None:
    """Before it is closed: Windows takes its time to give back the locks of a closed file."""
    if not fcntl and not file.closed:
        file.seek(FAR)
        _windows().locking(file.fileno(), _windows().LK_UNLCK, 1)


def _windows() -> Any:
    return importlib.import_module("msvcrt")


def _signature() -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}).encode()


def _holder(folder: Folder, name: str) -> str:
    with suppress(CupolaError):
        told = schema.read_record(folder, name, schema.HOLDER)
        if told:
            return "process {pid} on {host} has been at work on it since {since}".format(**told)
    return "another process is at work on it"


def _let_go() -> None:
    """A forked child shares its parent's locks, and would keep them when the parent has ended."""
    while _held:
        _held.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
