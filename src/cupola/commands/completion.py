"""`cupola completion`: a script that completes commands, algorithms, tasks and options on tab."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import operator
import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, subcommand

from cupola import algos, commands, tasks
from cupola.commands.parsing import parse
from cupola.commands.train import arguments

TASKS_IN_BASH = """
# tyro completes no positional arguments: names of tasks, and files everywhere else.
_cupola() {
  case "$COMP_CWORD ${COMP_WORDS[1]}" in
    "3 train" | "2 render" | "2 bench")
      COMPREPLY=($(compgen -W "%s" -- "${COMP_WORDS[COMP_CWORD]}")) ;;
    *) _tyro_cupola "$@" ;;
  esac
  [[ -n ${COMPREPLY[0]} ]] || COMPREPLY=()
}
complete -o default -F _cupola cupola"""


@dataclass(frozen=True)
class CompletionArgs:
    """Print a script that completes commands, algorithms, tasks and options on tab."""

    shell: Positional[Literal["bash", "zsh", "fish"]]
    """Which shell it is for (docs/command-line.md)."""


def run(args: Sequence[str]) -> None:
    shell = parse(CompletionArgs, args, "completion").shell
    trained = choice({name: trained_by(name) for name in algos.names()})
    train = dataclasses.make_dataclass("Train", [("algo", trained)])
    with contextlib.suppress(SystemExit):
        tyro.cli(
            choice(arguments_of_commands() | {"train": train}),
            prog="cupola",
            args=["--tyro-print-completion", shell],
            config=(OmitArgPrefixes, OmitSubcommandPrefixes),
        )
    if shell == "bash":
        print(TASKS_IN_BASH % " ".join([*tasks.specs(), *tasks.aliases(), "gym:", "env:"]))


def arguments_of_commands() -> dict[str, type]:
    """The arguments of each command; those of `train` depend on the algorithm."""
    found = {}
    for module in pkgutil.iter_modules(commands.__path__):
        contents = vars(importlib.import_module(f"{commands.__name__}.{module.name}"))
        if kind := contents.get(f"{module.name.capitalize()}Args"):
            found[module.name] = kind
    return found


def trained_by(algo: str) -> type:
    """The options of `cupola train ALGO`."""
    fields = dataclasses.fields(arguments(algo, algos.presets(algo)[0]))
    options = [(f.name, f.type, f.default) for f in fields if f.name != "task"]
    return dataclasses.make_dataclass(algo, options)


def choice(kinds: dict[str, type]) -> Any:
    """One of several subcommands."""
    members: Iterable[Any] = (Annotated[kind, subcommand(name)] for name, kind in kinds.items())
    return functools.reduce(operator.or_, members)
