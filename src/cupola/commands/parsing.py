"""Arguments as dataclasses, by tyro; whatever is wrong with them as one sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

from cupola.errors import CupolaError, unknown

Parsed = TypeVar("Parsed")

RunPath = Annotated[Positional[Path], arg(metavar="RUN")]
FilePath = Annotated[Positional[Path], arg(metavar="FILE")]
OptionalPath = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
OptionalNumber = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
WhichCheckpoint = Annotated[str, arg(metavar="best|last|N")]
OptionalText = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]

Explain = Callable[[str], CupolaError | None]
"""What else is known of an option that a command does not have."""


def parse(
    kind: type[Parsed],
    args: Sequence[str],
    command: str,
    description: str | None = None,
    explain: Explain = lambda option: None,
) -> Parsed:
    """Arguments as a dataclass; whatever is wrong with them as one sentence."""
    refuse_unknown_options(option_names(kind), args, command, explain)
    read = functools.partial(
        tyro.cli, kind, args=args, prog=f"cupola {command}", config=(OmitArgPrefixes,)
    )
    try:
        with plain_screen() as complaint:
            return read(description=description)
    except SystemExit as stop:
        if stop.code in (0, None):
            read(description=description)  # the help again, as this terminal shows it
        raise CupolaError(sentence(complaint.getvalue())) from None


@contextlib.contextmanager
def plain_screen() -> Iterator[io.StringIO]:
    """Take down what is printed as for a file: no colours, plain frames, no line is broken."""
    text, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100000"
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            yield text
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if columns is None else {"COLUMNS": columns})


def sentence(box: str) -> str:
    """The text of tyro's error on one line: it stands between the first two rules."""
    parts = re.split(r"^ *-+ *$", box, flags=re.MULTILINE)
    text = " ".join(parts[1 if len(parts) > 1 else 0].split())
    if missing := re.fullmatch(r"Missing from (.*?): (.*)", text):
        named = [part.strip(" .").partition(" ") for part in missing[2].split("(required)")]
        needed = "; ".join(f"{name}: {what}" for name, _, what in named if name)
        return f"{missing[1]} needs {needed}."
    for pattern, kind in NOT_A_NUMBER.items():
        text = re.sub(pattern, rf"\1 takes {kind}, not \2", text)
    return text


NOT_A_NUMBER = {
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: ('.*')": "a whole number",
    r"Error parsing (\S+): could not convert string to float: ('.*')": "a number",
}
"""What Python says of such arguments, and what they should have been."""


def option_names(kind: type) -> set[str]:
    """The fields of a dataclass, and of the dataclasses within it."""
    known = set()
    for field in dataclasses.fields(kind):
        nested = dataclasses.is_dataclass(field.default)
        known |= option_names(type(field.default)) if nested else {field.name}
    return known


def refuse_unknown_options(
    known: set[str], args: Sequence[str], command: str, explain: Explain = lambda option: None
) -> None:
    """An error for the first option that is neither among the ``known`` fields nor the help."""
    known = known | {"help"}
    for token in args:
        if token.startswith("--") and token != "--":
            name = token[2:].partition("=")[0].replace("-", "_")
            if name not in known and name.removeprefix("no_") not in known:
                options = [f"--{option.replace('_', '-')}" for option in known]
                option, listed = token.partition("=")[0], f"cupola {command} --help"
                raise explain(option) or unknown("option", option, options, listed)


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
    if called.stem != "cupola":  # on Windows it is cupola.exe
        return "python -m cupola"
    try:
        return os.path.relpath(called)
    except ValueError:  # on another drive
        return str(called)
