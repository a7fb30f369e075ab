"""Arguments as dataclasses, by tyro; whatever is wrong with them as one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from cupola.errors import CupolaError, unknown

Parsed = TypeVar("Parsed")


def parse(
    kind: type[Parsed], args: Sequence[str], command: str, description: str | None = None
) -> Parsed:
    """Arguments as a dataclass; whatever is wrong with them as one sentence."""
    refuse_unknown_options(kind, args)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, args=args, prog=f"cupola {command}", description=description)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise CupolaError(sentence(complaint.getvalue())) from None


def sentence(box: str) -> str:
    """The text of tyro's framed error, up to the first rule, on one line."""
    lines = [line.strip(" │") for line in box.splitlines()[1:]]
    text = lines[: next((i for i, line in enumerate(lines) if line[:1] in "─╰"), len(lines))]
    return " ".join(" ".join(text).split())


def refuse_unknown_options(kind: type, args: Sequence[str]) -> None:
    known = {"help"}
    pending: list[Any] = [kind]
    while pending:
        for field in dataclasses.fields(pending.pop()):
            nested = field.default
            if dataclasses.is_dataclass(nested):
                pending.append(type(nested))
            else:
                known |= {field.name}
    for token in args:
        if token.startswith("--") and token != "--":
            name = token[2:].partition("=")[0].replace("-", "_")
            if name not in known and name.removeprefix("no_") not in known:
                options = [f"--{option.replace('_', '-')}" for option in known]
                raise unknown("option", token.partition("=")[0], options)


def option_value(args: Sequence[str], option: str) -> str | None:
    for i, token in enumerate(args):
        if token == option and i + 1 < len(args):
            return args[i + 1]
        if token.startswith(f"{option}="):
            return token.partition("=")[2]
    return None


def program() -> str:
    """How this program can be called again."""
    if shutil.which("cupola"):
        return "cupola"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "cupola" else "python -m cupola"
