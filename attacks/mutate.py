"""Damage: to bytes, to lines, to JSON, to checkpoints, to names of files.

Every function takes a source of random numbers and changes a file, or a directory, in place.
"""

from __future__ import annotations

import copy
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

FORGED = "(forged)"
"""Ends the name of a file that was changed with all its check values put right again."""
HUGE_FILE = 64 << 30
READABLE = 16 << 20
"""Bytes of a file that the suite itself reads."""

# --- Bytes and lines ---


def flip_bits(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 3, 20))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def truncate(random: Random, data: bytes) -> bytes:
    return data[: random.choice((0, 1, random.randrange(len(data) + 1), max(0, len(data) - 1)))]


def insert(random: Random, data: bytes) -> bytes:
    piece = random.choice(
        (b"\0", b"\xff\xfe", b"\xc3\x28", b"\n", b"\r", b"\n\n", b"{}\n", b"[]\n", b"null\n",
         b"1\n", b"NaN\n", b'"x"\n', b"\xe2\x80\xa8", b"\x85", b"\x0c", b" ", b"}", b"{",
         b"\xef\xbb\xbf", random.randbytes(16))
    )  # fmt: skip
    at = random.choice((0, len(data), random.randrange(len(data) + 1)))
    return data[:at] + piece + data[at:]


def change_digit(random: Random, data: bytes) -> bytes:
    """A number that is as good as any other, only wrong."""
    places = [i for i, byte in enumerate(data[:200_000]) if 48 <= byte <= 57]
    changed = bytearray(data)
    for _ in range(random.choice((1, 2, 5))):
        if places:
            changed[random.choice(places)] = random.choice(b"0123456789")
    return bytes(changed)


def blank(random: Random, data: bytes) -> bytes:
    """A block that a broken disk gives back as zeros."""
    begin = random.randrange(len(data) + 1)
    end = min(len(data), begin + random.choice((1, 16, 512)))
    return data[:begin] + bytes(end - begin) + data[end:]


def delete_line(random: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        del lines[random.randrange(len(lines))]
    return b"".join(lines)


def duplicate_line(random: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if lines:
        lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
    return b"".join(lines)


def swap_lines(random: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    random.shuffle(lines) if random.random() < 0.2 else lines.reverse()
    return b"".join(lines)


def join_lines(random: Random, data: bytes) -> bytes:
    at = [i for i, byte in enumerate(data) if byte == 10]
    return data if not at else (lambda i: data[:i] + data[i + 1 :])(random.choice(at))


BYTES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(flip_bits, truncate, insert, change_digit, blank),
    *(delete_line, duplicate_line, swap_lines, join_lines),
)


def any_bytes(random: Random, file: Path) -> None:
    """One change; packed files are sometimes changed before they are packed."""
    import gzip

    data, change = file.read_bytes(), random.choice(BYTES)
    if file.suffix == ".gz" and random.random() < 0.7:
        file.write_bytes(gzip.compress(change(random, gzip.decompress(data))))
    else:
        file.write_bytes(change(random, data))


# --- JSON ---

RAW = "@raw@"
"""A string that begins with it becomes JSON text as it stands."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, -1e308, 5e-324, "", " ", "x", "0", "inf",
    "nan", [], {}, [[]], [None], {"": 0}, {"a": {"b": []}}, "x" * 5000, "../../outside/victim.txt",
    "/etc/passwd", "[/b]", "[bold", "$\\frac{$", "\\", "%s{}", "a\nb", "\x00", "\x1b[31m", "²", "٣",
    RAW + "1e400", RAW + "-1e400", RAW + "NaN", RAW + "Infinity", RAW + "1" + "0" * 400,
    RAW + "1" * 5000, RAW + "[" * 50_000 + "]" * 50_000,
    RAW + '{"a":' * 20_000 + "1" + "}" * 20_000,
    RAW + '"\\ud800"', RAW + '"\\udfff\\ud800"', RAW + "01", RAW + "0x10", RAW + "'x'",
)  # fmt: skip


def to_text(value: Any, indent: int | None = None) -> bytes:
    text = json.dumps(value, indent=indent)
    parts = text.split(f'"{RAW}')
    for i, part in enumerate(parts[1:], 1):
        raw, rest = part.split('"', 1) if '\\"' not in part.split(",")[0] else _unescape(part)
        parts[i] = raw + rest
    return "".join(parts).encode("utf-8", "surrogatepass")


def _unescape(part: str) -> tuple[str, str]:
    """Raw text that holds quotes itself, and what follows it."""
    end = 0
    while part[end] != '"' or part[end - 1] == "\\":
        end += 1
    return json.loads(f'"{part[:end]}"'), part[end + 1 :]


def change_json(random: Random, tree: Any) -> Any:
    """Another value, key or type somewhere in the tree."""
    tree = copy.deepcopy(tree)
    spots: list[tuple[Any, Any]] = []
    pending = [tree]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            spots.append((node, key))
            if isinstance(node[key], dict | list):
                pending.append(node[key])
    if not spots or random.random() < 0.05:
        return random.choice(VALUES)
    node, key = random.choice(spots)
    way = random.choice(("value", "value", "value", "delete", "rename", "add", "swap", "number"))
    if way == "delete":
        del node[key]
    elif way == "rename" and isinstance(node, dict):
        node[random.choice((f"{key}x", "", "²", "__class__"))] = node.pop(key)
    elif way == "add" and isinstance(node, dict):
        node[random.choice(("unknown", "", "cost/x", "self"))] = random.choice(VALUES)
    elif way == "swap":
        other, place = random.choice(spots)
        node[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(node[key])
    elif way == "number" and isinstance(node[key], int | float):
        node[key] = random.choice((-node[key], node[key] + 1, str(node[key]), node[key] / 3))
    else:
        node[key] = random.choice(VALUES)
    return tree


def json_file(random: Random, file: Path) -> None:
    file.write_bytes(to_text(change_json(random, json.loads(file.read_bytes())), indent=1))


def json_line(random: Random, file: Path) -> None:
    lines = file.read_bytes().splitlines()
    at = random.randrange(len(lines))
    lines[at] = to_text(change_json(random, json.loads(lines[at])))
    file.write_bytes(b"\n".join(lines) + b"\n")


# --- Checkpoints ---


def header(random: Random, file: Path) -> None:
    """Another JSON header of a safetensors file: dtypes, shapes, places, what cupola wrote."""
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tree = json.loads(data[8 : 8 + size])
    meta, name = tree["__metadata__"], random.choice([k for k in tree if k != "__metadata__"])
    way = random.randrange(7)
    if way == 0:
        tree[name]["dtype"] = random.choice(("F12", "BF16", "F64", "I8", "BOOL", "F8_E4M3", "", 3))
    elif way == 1:
        tree[name]["shape"] = random.choice(
            ([], [1, 1, 1], [-1], [2**63], [0], "x", [2**32, 2**32])
        )
    elif way == 2:
        tree[name]["data_offsets"] = random.choice(([0, 0], [4, 0], [0, 2**62], [-8, 8]))
    elif way == 3:
        key = random.choice(list(meta))
        inner = json.loads(meta[key]) if meta[key].startswith(("{", "[")) else meta[key]
        changed = change_json(random, inner) if isinstance(inner, dict | list) else "x"
        meta[key] = to_text(changed).decode("utf-8", "surrogatepass")
    elif way == 4:
        del tree["__metadata__"]
    elif way == 5:
        tree[random.choice(("x", "", "learner.nu.x"))] = tree.pop(name)
    else:
        tree = change_json(random, tree)
    text = to_text(tree)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def forge(random: Random, file: Path) -> None:
    """A checkpoint with other arrays whose check values are right: as a stranger would send it."""
    import numpy as np
    from safetensors.numpy import save

    from cupola.runs import checkpoints
    from cupola.runs.files import Folder

    found = checkpoints.read(Folder(file.parent), file.name)
    iteration, arrays = found.iteration, dict(found.arrays)
    name = random.choice(list(arrays))
    array = arrays[name]
    way = random.randrange(9)
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[name] = array[..., None]
    elif way == 2:
        arrays[name] = np.zeros((0,), array.dtype)
    elif way == 3:
        kinds = [np.float64, np.int8, np.bool_, np.uint64, np.float16]
        arrays[name] = array.astype(random.choice(kinds))
    elif way == 4:
        arrays[name] = np.concatenate([array.ravel(), array.ravel()])
    elif way == 5:
        iteration = random.choice((0, 1, 5, 10**6, 2**31))
    elif way == 6 and array.ndim:
        arrays[name] = array[:1]  # numpy would stretch it
    elif way == 7 and array.dtype.kind in "iu":
        arrays[name] = np.full_like(array, random.choice((np.iinfo(array.dtype).max, 99)))
    else:
        arrays[f"{name}.x"] = array
    arrays = {key: np.array(value, order="C") for key, value in arrays.items()}
    digest = checkpoints._digest(found._replace(iteration=iteration, arrays=arrays))
    about = {"iteration": iteration, "metrics": found.metrics, "sha256": digest}
    file.write_bytes(save(arrays, metadata={"cupola": json.dumps(about)}))


# --- Files ---

NAMES = (
    *(
        "²",
        "٣",
        "5",
        "-1",
        "+6",
        " 6",
        "6 ",
        "1e3",
        "99999999",
        "00000000",
        "123456789012345678901",
    ),
    *("0000000a", "\udcff", "[/b]", "a\nb", "$x$", "..6", "00000006.safetensors"),
)


def odd_name(random: Random, file: Path) -> None:
    new = file.with_name(random.choice(NAMES) + file.suffix)
    if not new.exists():
        (shutil.move if random.random() < 0.5 else shutil.copy)(file, new)


def remove(random: Random, file: Path) -> None:
    file.unlink()


def empty(random: Random, file: Path) -> None:
    file.write_bytes(b"")


def enlarge(random: Random, file: Path) -> None:
    """More than fits into memory, and takes no room on the disk."""
    with file.open("ab") as stream:
        stream.truncate(HUGE_FILE)


def other_file(random: Random, file: Path) -> None:
    """The contents of another file of the directory."""
    others = [path for path in file.parent.rglob("*") if is_readable(path) and path != file]
    if others:
        file.write_bytes(random.choice(sorted(others)).read_bytes())


def is_readable(path: Path) -> bool:
    """Whether it is a file that was not enlarged before."""
    return path.is_file() and path.stat().st_size <= READABLE


def directory(random: Random, folder: Path) -> set[str]:
    """One damage to one file of a directory; its name."""
    files = sorted(path for path in folder.rglob("*") if is_readable(path))
    known = [p for p in files if "tensorboard" not in str(p)] or files
    file = random.choice(known)
    ways: list[Callable[[Random, Path], None]] = [any_bytes] * 4
    ways += [random.choice((odd_name, remove, empty, enlarge, other_file))]
    if file.suffix == ".json":
        ways += [json_file] * 8
    elif file.suffix == ".jsonl":
        ways += [json_line] * 6
    elif file.suffix == ".safetensors":
        ways += [header] * 4 + [forge] * 3
    way = random.choice(ways)
    try:
        way(random, file)
    except Exception:  # it was damaged before, and cannot be read any more
        any_bytes(random, file)
    name = str(file.relative_to(folder))
    return {f"{name} {FORGED}" if way is forge else name}
