"""Files that a user names: refused where they cannot be written, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from cupola.errors import CupolaError, in_words
from cupola.runs.files import refuse_other, write_file


def check_place(path: Path) -> None:
    """Refuse what could not be written later, before the work begins."""
    with in_words(f"cannot write {path}"):
        if path.is_dir():
            raise CupolaError(f"{path} is a directory: name a file in it.")
        if not path.parent.is_dir():
            raise CupolaError(f"there is no directory {path.parent}: make it first.")
        refuse_other(path)


def check_new(path: Path, force: bool) -> None:
    """The same, and refuse a file that exists, unless it may be replaced."""
    with in_words(f"cannot write {path}"):
        if not force and path.parent.is_dir() and not path.is_dir() and exists(path):
            raise CupolaError(f"{path} exists: name another file, or add --force to replace it.")
    check_place(path)


def exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def write_new(path: Path, data: bytes) -> None:
    """Write the file; one sentence where that fails."""
    with in_words(f"cannot write {path}"):
        write_file(path, data)
