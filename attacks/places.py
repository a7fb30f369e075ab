"""The directory of one try: where cupola works, and an outside that it must not touch."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

from attacks.verdicts import require


@dataclass
class Place:
    """`work` is the working directory of the commands, `outside` a tree that must stay as it is.

    `library` holds what all tries of a campaign share: references, and the compilation cache.
    """

    root: Path
    library: Path
    _before: list[tuple[str, int, bytes]] = field(default_factory=list, init=False)

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def make(self) -> None:
        self.work.mkdir(parents=True)
        (self.outside / "folder").mkdir(parents=True)
        (self.outside / "victim.txt").write_text("do not touch\n")
        (self.outside / "folder" / "00000001.safetensors").write_text("mine\n")
        (self.outside / "folder" / "99999999.safetensors").write_text("mine as well\n")
        self.guard()

    def guard(self) -> None:
        """Remember the outside as it is now."""
        self._before = entries(self.outside)

    def check(self) -> None:
        now = entries(self.outside)
        touched = sorted({name for name, *_ in {*now} ^ {*self._before}})
        require(not touched, f"files outside were touched: {', '.join(touched)[:200]}")

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


Entry = tuple[str, int, bytes]


def entries(folder: Path) -> list[Entry]:
    """Names, kinds and digests of all that a folder holds; links are not followed."""
    found = []
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode
            content = b""
            if stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            elif stat.S_ISLNK(mode):
                content = os.fsencode(os.readlink(path))
            found.append((os.path.relpath(path, folder), stat.S_IFMT(mode), content))
    return sorted(found)
