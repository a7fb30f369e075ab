"""`cupola board`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from cupola.commands.parsing import parse
from cupola.errors import CupolaError

PAUSE = 0.25
"""Seconds between two looks, where there is nothing to catch up with."""


@dataclass(frozen=True)
class BoardArgs:
    """A local web page of all runs and sweeps below a directory, live while they train."""

    directory: Annotated[Positional[Path], arg(metavar="[DIR]")] = Path("runs")
    """Where to look for runs."""
    port: int = 0
    """Port of the page; 0 is any that is free. Only this machine can reach it."""


def run(args: Sequence[str]) -> None:
    board(parse(BoardArgs, args, "board"))


def board(args: BoardArgs) -> None:
    """Serve until Ctrl-C; nothing is written."""
    from cupola.board.library import Library
    from cupola.board.server import Board
    from cupola.runs.directory import reaching
    from cupola.signals import stop_requests

    with reaching(args.directory):
        if not args.directory.is_dir():
            raise CupolaError(
                f"there is no directory {args.directory}: write 'cupola board DIR' with the one"
                " that your runs are in."
            )
    if not 0 <= args.port < 65536:
        raise CupolaError(f"port must be from 0 to 65535, not {args.port}.")
    library = Library(args.directory)
    try:
        server = Board(library, args.port)
    except OSError as error:
        raise CupolaError(
            f"cannot use port {args.port} ({error.strerror}): choose another with --port, or leave"
            " it out."
        ) from None
    with stop_requests() as stopping, server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        print(f"{server.url} shows {args.directory}; Ctrl-C ends it", flush=True)
        while not stopping.is_set():
            if not library.refresh():
                time.sleep(PAUSE)
        server.shutdown()
        thread.join()
