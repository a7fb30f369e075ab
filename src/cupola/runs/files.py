"""The way in and out of run directories and sweep directories, which may come from a stranger.

- Links are not followed. Only the directory itself may be reached through one.
- Only regular files are read: a pipe or a device is refused, and nothing waits for it.
- What is read has a bound.
- A file is replaced whole or not at all, by way of a temporary one whose name nobody can foresee.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cupola.errors import CupolaError
from cupola.runs.handles import Handle, entered, is_link

MAX_RECORD = 64 * 2**20
"""Bytes of a JSON file."""
MAX_LINE = 2**20
"""Bytes of a line of metrics or timings."""
MAX_LINES = 10_000_000
"""Lines of metrics or timings."""
MAX_CHECKPOINT = 4 * 2**30
"""Bytes of a checkpoint."""
MAX_CURVES = 2**30
"""Bytes of a file of curves, unpacked."""

_STALE = re.compile(r"\.[0-9a-f]{16}\.tmp")


class Stamp(NamedTuple):
    """What tells whether a file is another one than before, or has changed."""

    device: int
    inode: int
    size: int
    changed: int
    """Nanoseconds since 1970."""

    def is_same_file(self, other: Stamp | None) -> bool:
        return other is not None and self[:2] == other[:2]


class Folder:
    """A directory, and perhaps a folder within it: ``Folder(run, "checkpoints")``.

    What cannot be read is a `CupolaError`. What cannot be written is an `OSError`, because only the
    caller knows what that means; a link in the way is a `CupolaError` in both cases.
    """

    def __init__(self, root: Path, *inner: str) -> None:
        self.root, self.inner = root, inner
        self.path = root.joinpath(*inner)
        self._held: list[Handle] = []  # the root; shared with the folders within

    def __truediv__(self, name: str) -> Folder:
        inside = Folder(self.root, *self.inner, name)
        inside._held = self._held
        return inside

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within, this is the directory that it is now, whatever gets its name meanwhile."""
        root = entered(self.root)
        self._held.append(root)
        try:
            yield
        finally:
            self._held.remove(root)
            root.close()

    @contextlib.contextmanager
    def _entered(self) -> Iterator[Handle]:
        """The folder, reached step by step without a link."""
        here = self._held[-1].enter("") if self._held else entered(self.root)
        try:
            for depth, name in enumerate(self.inner, 1):
                try:
                    inside = here.enter(name)
                except OSError as error:
                    _refuse_link(name, here, self.root.joinpath(*self.inner[:depth]))
                    raise error
                here.close()
                here = inside
            yield here
        finally:
            here.close()

    def make(self) -> None:
        """Make the folder, and those above it, where they are missing."""
        if not self._held:
            self.root.mkdir(parents=True, exist_ok=True)
        for depth, name in enumerate(self.inner):
            above = Folder(self.root, *self.inner[:depth])
            above._held = self._held
            with above._entered() as here, contextlib.suppress(FileExistsError):
                here.make(name)
        with self._entered():
            pass

    def names(self) -> list[str]:
        """What is in the folder; nothing where it does not exist."""
        try:
            with self._entered() as here:
                return sorted(here.names())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def entries(self) -> dict[str, bool]:
        """What is in the folder, and whether it is a folder itself; a link is none."""
        try:
            with self._entered() as here, here.scan() as found:
                return {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def has(self, name: str) -> bool:
        """Whether there is anything of this name, be it a link."""
        return name in self.names()

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[io.BufferedReader]:
        path = self.path / name
        try:
            with self._entered() as here:
                descriptor = _open_regular(name, os.O_RDONLY, here, path)
            with os.fdopen(descriptor, "rb") as file:
                yield file
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from None

    def read(self, name: str, bound: int = MAX_RECORD) -> bytes | None:
        """All of a file; None where there is none."""
        try:
            with self._reading(name) as file:
                size = os.fstat(file.fileno()).st_size
                if size <= bound:  # read(bound) would take that much memory for any file
                    return file.read(size)
        except FileNotFoundError:
            return None
        raise CupolaError(f"{self.path / name} is too large: more than {bound} bytes.")

    def lines(self, name: str) -> Iterator[bytes]:
        """The lines of a file with their ends, none longer than MAX_LINE + 1."""
        try:
            with self._reading(name) as file:
                while line := file.readline(MAX_LINE + 1):
                    yield line
        except FileNotFoundError:
            return

    def tail(self, name: str, size: int) -> bytes:
        """The last bytes of a file; nothing where there is none."""
        try:
            with self._reading(name) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size))
                return file.read(size)
        except FileNotFoundError:
            return b""

    def stamp(self, name: str) -> Stamp | None:
        """Of a regular file; None where there is none, or something else of this name."""
        try:
            with self._entered() as here:
                found = here.stat(name)
        except OSError:
            return None
        return _stamp(found) if stat.S_ISREG(found.st_mode) else None

    @contextlib.contextmanager
    def peek(self, name: str) -> Iterator[io.BufferedReader | None]:
        """A regular file, open for reading; None where there is none, or it cannot be opened."""
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(self._reading(name))
            except (FileNotFoundError, CupolaError):
                file = None
            yield file

    def piece(self, name: str, start: int, size: int) -> tuple[bytes, Stamp | None]:
        """At most ``size`` bytes from ``start`` on, and of which file they are."""
        try:
            with self._reading(name) as file:
                file.seek(start)
                return file.read(size), _stamp(os.fstat(file.fileno()))
        except FileNotFoundError:
            return b"", None

    def write(self, name: str, data: bytes) -> None:
        """Replace a file so that a crash leaves either the old or the new contents."""
        with self._entered() as here:
            temporary = f".{secrets.token_hex(8)}.tmp"
            try:
                with _create(temporary, here) as file:
                    append(file, data)
                    os.fsync(file.fileno())
                here.replace(temporary, name)
            except OSError:
                with contextlib.suppress(OSError):
                    here.remove(temporary)
                raise
            here.sync()

    def create(self, name: str) -> io.FileIO:
        """A new, empty file in place of what has this name; unbuffered."""
        with self._entered() as here:
            with contextlib.suppress(FileNotFoundError):
                here.remove(name)
            return _create(name, here)

    def extend(self, name: str) -> io.FileIO:
        """A file to append to; unbuffered, so that closing it cannot fail."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self._entered() as here:
            return io.FileIO(_open_regular(name, flags, here, self.path / name), "rb+")

    def remove(self, name: str) -> None:
        """Remove a file or a link, if there is one."""
        with contextlib.suppress(FileNotFoundError), self._entered() as here:
            here.remove(name)

    def remove_stale(self) -> None:
        """Remove the temporary files that killed writers left; for the holder of the lock."""
        for name in self.names():
            if is_stale(name):
                self.remove(name)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def is_stale(name: str) -> bool:
    """Whether a name is that of a temporary file."""
    return bool(_STALE.fullmatch(name))


def write_file(path: Path, data: bytes) -> None:
    """Replace a file that the user named."""
    refuse_other(path)
    Folder(path.parent).write(path.name, data)


def refuse_other(path: Path) -> None:
    """Raise where the name is taken by what is no file: replaced, /dev/null would be one."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if is_link(found):
            raise CupolaError(f"{path} is a link: name the file that it leads to, or another.")
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise CupolaError(f"{path} is no file but a device or a pipe: name another.")


def read_file(path: Path, bound: int) -> bytes:
    """A file that the user named: a link is followed, a pipe or a device is not read."""
    path = path.resolve()
    data = Folder(path.parent).read(path.name, bound)
    if data is None:
        raise CupolaError(f"there is no file {path}.")
    return data


def append(file: io.FileIO, data: bytes) -> None:
    """Write all of ``data`` to an unbuffered file, or fail."""
    if file.write(data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _create(name: str, folder: Handle) -> io.FileIO:
    return io.FileIO(folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


def _open_regular(name: str, flags: int, folder: Handle, path: Path) -> int:
    try:
        descriptor = folder.open(name, flags)
    except OSError as error:
        _refuse_link(name, folder, path)
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe without a reader, a socket
            raise CupolaError(f"{path} is not a regular file.") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CupolaError(f"{path} is not a regular file.")
    return descriptor


def _refuse_link(name: str, folder: Handle, path: Path) -> None:
    with contextlib.suppress(OSError):
        if is_link(folder.stat(name)):
            raise CupolaError(
                f"{path} is a link, which cupola does not follow: put what it leads to in its"
                " place, if you trust it."
            )


def _unreadable(path: Path, error: OSError) -> CupolaError:
    return CupolaError(f"{path} cannot be read ({error.strerror or error}).")
