"""The fields of configurations as options in groups, each under a heading in the help."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tyro.conf import arg


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
        group = dataclasses.make_dataclass(name, fields, frozen=True)
        group.__doc__ = texts[name]
        found.append((name, group, group()))
    return found


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
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = " ".join(text.split())
    return texts


def metavar(hint: Any) -> str:
    """What stands for a value in the help."""
    if get_origin(hint) is tuple:
        return f"{metavar(get_args(hint)[0])} ..."
    if get_origin(hint) is Literal:
        return "|".join(get_args(hint))
    return {int: "N", float: "X", str: "TEXT"}.get(hint, "")
