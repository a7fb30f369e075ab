"""Directories that were entered: by a descriptor, or by name where there is none (Windows).

By a descriptor it stays the same directory, whatever gets its name meanwhile, and the system itself
refuses links. By name, links are looked for before a file is opened and again afterwards.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_ENTER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_SAFE: int = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_JUNCTION = 0xA0000003
"""The mark that Windows gives to a directory that leads to another one."""
PATIENCE = 2.0
"""Seconds to try again where somebody has a file open, which on Windows keeps its name taken."""


class Handle(Protocol):
    """What can be done in a directory; names have no folder in them."""

    def enter(self, name: str) -> Handle:
        """A folder in it, which is not a link; an empty name is the directory itself."""

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file, which is not a link; a pipe is not waited for."""

    def make(self, name: str) -> None: ...

    def names(self) -> list[str]: ...

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]: ...

    def stat(self, name: str) -> os.stat_result:
        """Of a link itself, not of what it leads to."""

    def replace(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Names that were given are on disk."""

    def close(self) -> None: ...


class ByDescriptor:
    """A directory by a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def enter(self, name: str) -> ByDescriptor:
        flags = _ENTER | (_NO_LINK if name else 0)
        return ByDescriptor(os.open(name or ".", flags, dir_fd=self._descriptor))

    def open(self, name: str, flags: int) -> int:
        return os.open(name, flags | _SAFE, 0o666, dir_fd=self._descriptor)

    def make(self, name: str) -> None:
        os.mkdir(name, dir_fd=self._descriptor)

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._descriptor)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class ByName:
    """A directory by its name, from the root on."""

    def __init__(self, path: str) -> None:
        self._path = path

    def enter(self, name: str) -> ByName:
        if name and not stat.S_ISDIR(self._without_link(name).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return ByName(self._inside(name) if name else self._path)

    def open(self, name: str, flags: int) -> int:
        # First, also where it may be new: a link that leads nowhere would make a file there.
        if not flags & os.O_CREAT or os.path.lexists(self._inside(name)):
            found = self._without_link(name)
            if stat.S_ISDIR(found.st_mode):  # Windows would only say that access is denied
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        descriptor = os.open(self._inside(name), flags | _SAFE, 0o666)
        try:
            self._without_link(name)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def make(self, name: str) -> None:
        os.mkdir(self._inside(name))

    def names(self) -> list[str]:
        return os.listdir(self._path)

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        return os.scandir(self._path)

    def stat(self, name: str) -> os.stat_result:
        return os.lstat(self._inside(name))

    def replace(self, old: str, new: str) -> None:
        _patiently(lambda: os.replace(self._inside(old), self._inside(new)))

    def remove(self, name: str) -> None:
        _patiently(lambda: os.unlink(self._inside(name)))

    def sync(self) -> None:
        """Windows opens no directory: names are left to its file system."""

    def close(self) -> None:
        """Nothing is held."""

    def _inside(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _without_link(self, name: str) -> os.stat_result:
        found = self.stat(name)
        if is_link(found):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return found


def is_link(found: os.stat_result) -> bool:
    """Whether it leads elsewhere: a symbolic link, or a junction of Windows."""
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) == _JUNCTION


def entered(path: Path) -> Handle:
    """The directory that has this name now; it may be reached through a link."""
    if os.open in os.supports_dir_fd and _NO_LINK:
        return ByDescriptor(os.open(path, _ENTER))
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return ByName(os.path.abspath(path))


def _patiently(action: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except PermissionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
