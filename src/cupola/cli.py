"""The command line: finds the command, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence

from cupola.errors import CupolaError, unknown
from cupola.output import forgiving_output, visible
from cupola.signals import interrupts
from cupola.version import __version__

USAGE = """\
usage: cupola COMMAND ...

  cupola train ALGO TASK   train a policy (cupola train cup HopperSpeed)
  cupola resume RUN        continue a run that was stopped
  cupola eval RUN          measure a trained policy on fresh episodes
  cupola diagnose RUN      find out why a run learns as it does, or holds no limit
  cupola export RUN FILE   write a policy as .onnx or .npz, for other programs
  cupola render TASK       film a task, or draw it (.gif, .mp4, .png)
  cupola list              algorithms, presets and tasks
  cupola bench TASK        steps per second, beside the physics ceiling (--all: every family)
  cupola sweep FILE        train all cells of an experiment file (experiments/toy.toml)
  cupola tune FILE         search for the best feasible settings (experiments/tune-probe.toml)
  cupola report DIR ...    one page of a sweep, of any runs, or of files of curves
  cupola board DIR         a live page of all runs below a directory, in your browser
  cupola compare RUN ...   a quick look at a few runs
  cupola theory            the paper's claims on random CMDPs, printed and corrected
  cupola completion SHELL  a script for tab completion in bash, zsh or fish
  cupola version           the version of cupola

Each command explains itself: cupola train cup --help
"""

COMMANDS = (
    "train", "resume", "eval", "diagnose", "export", "render", "list", "bench", "sweep", "tune",
    "report", "board", "compare", "theory", "completion",
)  # fmt: skip
"""Each is a module of `cupola.commands`."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; errors that a user can act on are one sentence and exit code 1."""
    try:
        with interrupts(to_the_end=argv is None), forgiving_output():
            run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # it came when all was said
        sys.exit(130)


def complain(text: str) -> None:
    print(f"cupola: {visible(' '.join(text.splitlines()))}", file=sys.stderr)


def run(args: list[str]) -> None:
    warnings.showwarning = lambda message, *_: complain(f"warning: {message}")
    try:
        if not args or args[0] in ("-h", "--help", "help"):
            print(USAGE, end="")
            sys.exit(0 if args else 2)
        if args[0] in ("version", "--version"):
            print(f"cupola {__version__}")
            return
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], (*COMMANDS, "version"))
        importlib.import_module(f"cupola.commands.{args[0]}").run(args[1:])
    except CupolaError as error:
        complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        complain("interrupted.")
        sys.exit(130)


if __name__ == "__main__":
    main()
