"""Files that a user names: refused where they exist, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from cupola.errors import CupolaError, in_words
from cupola.runs.files import write_file


def check_new(path: Path, force: bool) -> None:
    """Refuse what could not be written later, before the work begins."""
    with in_words(f"cannot write {path}"):
        if path.is_dir():
            raise CupolaError(f"{path} is a directory: name a file in it.")
        if not path.parent.is_dir():
            raise CupolaError(f"there is no directory {path.parent}: make it first.")
        if not force and (path.exists() or path.is_symlink()):
            raise CupolaError(f"{path} exists: name another file, or add --force to replace it.")


def write_new(path: Path, data: bytes) -> None:
    """Write the file; one sentence where that fails."""
    with in_words(f"cannot write {path}"):
        write_file(path, data)
