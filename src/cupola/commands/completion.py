"""`cupola completion`: a script that completes commands, algorithms, tasks and options on tab."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, Positional, subcommand

from cupola import algos, tasks
from cupola.commands.parsing import parse
from cupola.commands.train import arguments

COMMANDS = (
    "resume", "eval", "diagnose", "export", "render", "list", "bench", "sweep", "report", "board",
    "compare", "theory", "completion",
)  # fmt: skip
"""All but `train`, whose options depend on the algorithm."""
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
    kinds = {name: arguments_of(name) for name in COMMANDS}
    kinds["train"] = dataclasses.make_dataclass("Train", [("algo", trained)])
    with contextlib.suppress(SystemExit):
        tyro.cli(
            choice(kinds),
            prog="cupola",
            args=["--tyro-print-completion", shell],
            config=(OmitArgPrefixes, OmitSubcommandPrefixes),
        )
    if shell == "bash":
        print(TASKS_IN_BASH % " ".join([*tasks.specs(), *tasks.aliases(), "gym:", "env:"]))


def arguments_of(command: str) -> type:
    """The dataclass of a command's arguments."""
    module = importlib.import_module(f"cupola.commands.{command}")
    return getattr(module, f"{command.capitalize()}Args")


def trained_by(algo: str) -> type:
    """The options of `cupola train ALGO`."""
    fields = dataclasses.fields(arguments(algo, algos.presets(algo)[0]))
    options = [(f.name, f.type, f.default) for f in fields if f.name != "task"]
    return dataclasses.make_dataclass(algo, options)


def choice(kinds: dict[str, type]) -> Any:
    """One of several subcommands."""
    members: Iterable[Any] = (Annotated[kind, subcommand(name)] for name, kind in kinds.items())
    return functools.reduce(operator.or_, members)
