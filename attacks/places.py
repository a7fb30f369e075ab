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
    _before: str = field(default="", init=False)

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
        self._before = fingerprint(self.outside)

    def check(self) -> None:
        require(fingerprint(self.outside) == self._before, "files outside were touched")

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def fingerprint(folder: Path) -> str:
    """Names, kinds and contents of all that a folder holds; links are not followed."""
    total = hashlib.sha256()
    for path, kind, content in entries(folder):
        total.update(f"{path}\0{kind}\0".encode("utf-8", "surrogateescape"))
        total.update(content)
    return total.hexdigest()


def entries(folder: Path) -> list[tuple[str, int, bytes]]:
    found = []
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode
            content = b""
            if stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = file.read()
            elif stat.S_ISLNK(mode):
                content = os.fsencode(os.readlink(path))
            found.append((os.path.relpath(path, folder), stat.S_IFMT(mode), content))
    return sorted(found)
