"""Seeded damage to the files of a run directory."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cupola.runs import checkpoints
from cupola.runs.checkpoints import Checkpoint
from cupola.runs.files import Folder

NASTY: tuple[Any, ...] = (
    *(None, True, "", "x", "\ud800", "a\nb", "[/b]", -1, 0, 1.5, 10**30, -(10**400), float("inf")),
    *(float("nan"), [], [None], ["x", 1], {}, {"a": {"b": 1}}, "/dev/zero", "../..", "²"),
)
CONTENTS = (
    *(b"", b"null", b"5", b"[]", b"{}", b'"x"', b"\xff\xfe", b"[" * 200_000, b"\0" * 99),
    *(b'{"iteration": 1e400}\n', b'{"iteration": 1, "steps": 1, "return": "x", "length": 1}\n'),
    *(b'{"a": "\\ud800"}', b"\xef\xbb\xbf{}", b"9" * 5000),
)  # fmt: skip


def mutate(run: Path, rng: random.Random) -> str:
    """Damage one file of a run, and say which and how."""
    files = sorted(
        path for path in run.rglob("*") if path.is_file() and path.parent.name != "tensorboard"
    )
    file = rng.choice(files)
    kinds: list[Callable[[Path, random.Random], None]] = [in_bytes, contents, special]
    if file.suffix == ".jsonl":
        kinds += [in_lines, in_lines]
    elif file.suffix == ".json":
        kinds += [in_json, in_json, in_json]
    elif file.suffix == checkpoints.SUFFIX:
        kinds += [in_arrays, in_arrays, renamed]
    kind = rng.choice(kinds)
    kind(file, rng)
    return f"{file.relative_to(run)}: {kind.__name__}"


def in_bytes(file: Path, rng: random.Random) -> None:
    """Flip, cut, insert, repeat."""
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 3))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 7, 100))
        how = rng.randrange(4)
        if how == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[at : at + size]
        elif how == 2:
            data[at:at] = rng.randbytes(size)
        else:
            data[at:at] = data[at : at + size]
    file.write_bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data)


def contents(file: Path, rng: random.Random) -> None:
    file.write_bytes(rng.choice(CONTENTS))


def special(file: Path, rng: random.Random) -> None:
    """A pipe, a link or a folder in its place, or nothing; or its folder is a link."""
    elsewhere = file.parent / "elsewhere"
    how = rng.randrange(6)
    if how == 5 and file.parent.name == "checkpoints":
        file.parent.rename(file.parent.parent / "away")
        file.parent.symlink_to("away")
        return
    file.rename(elsewhere)
    if how == 0:
        os.mkfifo(file)
    elif how == 1:
        file.mkdir()
    elif how == 2:
        file.symlink_to(rng.choice((elsewhere, Path("/dev/zero"), Path("/nowhere"))))
    elif how == 3:
        elsewhere.unlink()


def in_lines(file: Path, rng: random.Random) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    at = rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(at, lines[at])
    elif how == 2:
        rng.shuffle(lines)
    elif how == 3:
        lines[at] = rng.choice(CONTENTS) + b"\n"
    else:
        record = json.loads(lines[at])
        record[rng.choice(list(record))] = rng.choice(NASTY)
        lines[at] = json.dumps(record).encode() + b"\n"
    file.write_bytes(b"".join(lines))


def in_json(file: Path, rng: random.Random) -> None:
    """Another value, no value or one more, at any depth."""
    record = json.loads(file.read_bytes())
    table = record
    while True:
        key = rng.choice([*table, "new"])
        inner = table.get(key)
        if not isinstance(inner, dict) or not inner or rng.random() < 0.2:
            break
        table = inner
    if rng.random() < 0.25:
        table.pop(key, None)
    else:
        table[key] = rng.choice(NASTY)
    file.write_text(json.dumps(record))


def in_arrays(file: Path, rng: random.Random) -> None:
    """Arrays that do not fit, with a checksum that does."""
    folder = Folder(file.parent)
    iteration, arrays, metrics = checkpoints.read(folder, file.name)
    name = rng.choice(sorted(arrays))
    how = rng.randrange(5)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[name] = np.zeros(rng.choice(((), (0,), (1,), (2, 3), (10**5,))))
    elif how == 2:
        arrays[name] = arrays[name].astype(rng.choice((np.int8, np.uint64, np.bool_, np.float16)))
    elif how == 3:
        arrays[name] = arrays[name].reshape(-1)
    else:
        iteration = rng.choice((1, 2, iteration + 1, 2**62))
    file.unlink()
    checkpoints.write(folder, Checkpoint(iteration, arrays, metrics), keep=9)


def renamed(file: Path, rng: random.Random) -> None:
    names = ("5", "²", "00000099", "99999999999999999999", "x", "-0000001", "00000000")
    file.rename(file.with_stem(rng.choice(names)))
