"""The fields of configurations as options in groups, each under a heading in the help."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import arg

from cupola import algos, version


def groups(*configs: Any, own: str = "") -> list[tuple[str, type, Any]]:
    """Name, dataclass and defaults of each group of the fields of ``configs``.

    A field belongs to the class that declares it first: to the `GROUP` of that class, or to the
    group ``own`` where it has none.
    """
    members: dict[str, list[tuple[str, Any, Any]]] = {}
    texts: dict[str, str] = {}
    for config in configs:
        kind = type(config)
        hints, help_of = get_type_hints(kind), field_texts(kind)
        for field in dataclasses.fields(kind):
            home = first_home(kind, field.name)
            name = vars(home).get("GROUP", own)
            hint, default = hints[field.name], getattr(config, field.name)
            shown = arg(
                help=help_of.get(field.name, ""),
                metavar=metavar(hint),
                help_behavior_hint="" if default == "" else None,
            )
            members.setdefault(name, []).append((field.name, Annotated[hint, shown], default))
            texts[name] = home.__doc__ or ""
    found = []
    for name, fields in members.items():
        group = made(name, fields, texts[name])
        found.append((name, group, group()))
    return found


def made(name: str, fields: Sequence[Any], text: str) -> type:
    """A dataclass of these fields."""
    kind = dataclasses.make_dataclass(name, fields, frozen=True)
    kind.__doc__ = text
    # tyro reads the source of every class. Of this one there is none, and that is soon seen here.
    kind.__module__ = version.__name__
    return kind


def gathered(kind: type, parsed: Sequence[Any]) -> Any:
    """A config from the groups among which its fields were ``parsed``."""
    values = {name: value for group in parsed for name, value in vars(group).items()}
    return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)})


def first_home(kind: type, field: str) -> type:
    return next(base for base in reversed(kind.__mro__) if field in inspect.get_annotations(base))


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field, of the class nearest to ``kind`` that has one."""
    texts = {}
    for base in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        for field, below in itertools.pairwise(definition(base).body):
            match field, below:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def definition(kind: type) -> ast.ClassDef:
    """The source of a class. `inspect.getsource` would parse its whole file again for each."""
    wanted = kind.__qualname__.rpartition(".")[2]
    for node in ast.walk(parsed(inspect.getfile(kind))):
        if isinstance(node, ast.ClassDef) and node.name == wanted:
            return node
    raise LookupError(f"no source of {kind.__qualname__}")


def names_of_fields(algo: str) -> set[str] | None:
    """The fields of an algorithm's `Config`, without loading it: that takes JAX.

    None where a base class is neither in its file nor in `config.py` beside it.
    """
    folder = Path(algos.__path__[0])
    files = (folder / "config.py", folder / f"{algo.lower().replace('-', '_')}.py")
    classes = {
        node.name: node
        for file in files
        for node in parsed(str(file)).body
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    pending: list[ast.expr] = [ast.Name("Config")]
    while pending:
        match pending.pop():
            case ast.Name(name) if name in classes:
                for statement in classes[name].body:
                    match statement:
                        case ast.AnnAssign(ast.Name(field)):
                            found.add(field)
                pending += classes[name].bases
            case _:
                return None
    return found


@functools.cache
def parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def metavar(hint: Any) -> str:
    """What stands for a value in the help."""
    if get_origin(hint) is tuple:
        return f"{metavar(get_args(hint)[0])} ..."
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    return {int: "N", float: "X", str: "TEXT"}.get(hint, "")
