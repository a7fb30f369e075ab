"""The loop that works through the cells of a sweep, with any pool of workers."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from cupola.sweeps.directory import Standing, SweepDirectory
from cupola.sweeps.grid import Cell

RETRIES = 3
"""How often a cell is begun again whose worker was killed, by whomever."""
POLL_SECONDS = 0.2
STOPPED = 130
"""Exit code of a worker that was asked to stop and saved its run."""
STARVED = ("SIGKILL", "SIGABRT", "SIGBUS")
"""How processes end for want of memory, among other reasons."""
TELLING = re.compile(r"error|failed|terminate|memory|bad_alloc|fatal", re.IGNORECASE)


class Ending(NamedTuple):
    """How the worker of a cell ended."""

    name: str
    code: int | None
    """Exit code, or minus the signal; None where only ``reason`` is known."""
    reason: str = ""


class Pool(Protocol):
    """Something that runs workers."""

    def has_room(self, cell: Cell) -> bool: ...

    def start(self, cell: Cell) -> None: ...

    def endings(self) -> list[Ending]:
        """Workers that ended since the last call."""

    def running(self) -> set[str]: ...

    def stop(self) -> None:
        """Ask all workers to save and end."""

    def close(self) -> None:
        """End whatever is left, at once."""


Watch = Callable[[dict[str, Standing]], None]


def work(
    sweep: SweepDirectory, pool: Pool, watch: Watch, stopping: threading.Event
) -> dict[str, Standing]:
    """Work through the cells that are not finished, until all have ended or were stopped.

    Failed cells are tried again. A killed worker's cell goes on from its last checkpoint.
    """
    standings = {name: sweep.standing(name) for name in sweep.cells}
    waiting = deque(
        cell for name, cell in sweep.cells.items() if standings[name].state != "finished"
    )
    for cell in waiting:
        sweep.forget_failure(cell.name)
        standings[cell.name] = sweep.standing(cell.name)
    kills: Counter[str] = Counter()
    asked = False
    while True:
        while waiting and not stopping.is_set() and pool.has_room(waiting[0]):
            cell = waiting.popleft()
            standings[cell.name] = Standing("running")
            pool.start(cell)
        for ending in pool.endings():
            standing, killed = judge(sweep, ending)
            kills[ending.name] += killed
            if killed and (stopping.is_set() or kills[ending.name] <= RETRIES):
                waiting.appendleft(sweep.cells[ending.name])
                standing = sweep.standing(ending.name)
            elif standing.state == "failed":
                with contextlib.suppress(OSError):  # a full disk must not stop the others
                    sweep.record_failure(ending.name, standing.reason)
            standings[ending.name] = standing
        watch(standings)
        if not pool.running() and (not waiting or stopping.is_set()):
            return standings
        if stopping.is_set() and not asked:
            asked = True
            pool.stop()
        time.sleep(POLL_SECONDS)


def judge(sweep: SweepDirectory, ending: Ending) -> tuple[Standing, bool]:
    """Where a cell is after its worker ended, and whether somebody killed the worker."""
    standing = sweep.standing(ending.name)
    if standing.state in ("finished", "failed"):
        return standing, False
    if ending.code is None:
        return Standing("failed", ending.reason), False
    how = f"exit code {ending.code}"
    if ending.code < 0:
        name = signal.Signals(-ending.code).name
        how = f"{name} (out of memory?)" if name in STARVED else name
    if ending.code in (STOPPED, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM):
        return Standing("failed", f"its process ended with {how}, {RETRIES + 1} times"), True
    words = last_words(sweep.log_path(ending.name))
    return Standing("failed", f"its process ended with {how}: {words}"), False


def last_words(log: Path) -> str:
    """The last line of a log that speaks of a failure, or else its last line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").split("\n")]
    except OSError:
        return f"see {log}"
    lines = [line for line in lines if line]
    telling = [line for line in lines if TELLING.search(line) and not line.startswith("@")]
    return (telling or lines or ["nothing was printed"])[-1]
