"""`python -m results`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cupola.errors import CupolaError
from results import adding, writing, zoo


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m results", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    add = commands.add_parser("add", help="commit the finished cells of a sweep")
    add.add_argument("name", help="of the experiment file, without .toml")
    add.add_argument("sources", nargs="+", type=Path, help="sweep directories, files of curves")
    entry = commands.add_parser("zoo", help="put the best feasible seed of each task into the zoo")
    entry.add_argument("sources", nargs="+", type=Path, help="sweep or run directories")
    entry.add_argument("--episodes", type=int, default=100, help="of the card's evaluation")
    entry.add_argument("--seed", type=int, default=1000, help="of the card's evaluation")
    args = parser.parse_args()
    try:
        if args.command == "add":
            for line in adding.add(args.name, args.sources):
                print(line)
        elif args.command == "zoo":
            for line in zoo.fill(args.sources, args.episodes, args.seed):
                print(line)
        else:
            written = writing.write_all()
            print("\n".join(map(str, written)) or "all tables and figures are up to date.")
    except CupolaError as error:
        sys.exit(f"results: {error}")


main()
