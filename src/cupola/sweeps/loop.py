"""The loop that works through the cells of a sweep, with any pool of workers."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from cupola.errors import CupolaError
from cupola.runs.files import Folder
from cupola.signals import StopRequest
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import CellStatus, SweepDirectory

LOG_BYTES = 2**20
"""How much of the end of a log is looked at."""
RETRIES = 3
"""How often a cell is started again whose worker was killed."""
POLL_SECONDS = 0.2
STOPPED = 130
"""Exit code of a worker that was asked to stop and saved its run."""
MEMORY_SIGNALS = ("SIGKILL", "SIGABRT", "SIGBUS")
"""Signals that end a process when memory runs out, among other reasons."""
KILLED = (
    STOPPED,
    *(-getattr(signal, name) for name in ("SIGINT", "SIGKILL", "SIGTERM") if hasattr(signal, name)),
)
"""Exit codes of a worker that somebody ended. On Windows a kill looks like a failure."""
FAILURE_WORDS = re.compile(r"error|failed|terminate|memory|bad_alloc|fatal", re.IGNORECASE)


class WorkerExit(NamedTuple):
    """How the worker of a cell ended."""

    name: str
    """The cell."""
    code: int | None
    """Exit code, or minus the signal; None where only ``reason`` is known."""
    reason: str = ""


class Pool(Protocol):
    """Something that runs workers."""

    def has_room(self, cell: Cell) -> bool: ...

    def start(self, cell: Cell) -> None: ...

    def exits(self) -> list[WorkerExit]:
        """Workers that ended since the last call."""

    def running(self) -> set[str]: ...

    def stop(self) -> None:
        """Ask all workers to save and end."""

    def close(self) -> None:
        """End whatever is left, at once."""


Watch = Callable[[dict[str, CellStatus]], None]
"""Called again and again with the status of every cell."""


def work(
    sweep: SweepDirectory, pool: Pool, watch: Watch, stopping: StopRequest
) -> dict[str, CellStatus]:
    """Work through the cells that are not finished, until all have ended or were stopped.

    Failed cells are tried again. A killed worker's cell goes on from its last checkpoint.
    """
    statuses = {name: sweep.status(name) for name in sweep.cells}
    waiting = deque(
        cell for name, cell in sweep.cells.items() if statuses[name].state != "finished"
    )
    for cell in waiting:
        sweep.forget_failure(cell.name)
        statuses[cell.name] = sweep.status(cell.name)
    kills: Counter[str] = Counter()
    asked = False
    while True:
        while waiting and not stopping.is_set() and pool.has_room(waiting[0]):
            cell = waiting.popleft()
            statuses[cell.name] = CellStatus("running")
            pool.start(cell)
        for ended in pool.exits():
            status, killed = status_after(sweep, ended)
            kills[ended.name] += killed
            if killed and (stopping.is_set() or kills[ended.name] <= RETRIES):
                waiting.appendleft(sweep.cells[ended.name])
                status = sweep.status(ended.name)
            elif status.state == "failed":
                with contextlib.suppress(OSError):  # a full disk must not stop the others
                    sweep.record_failure(ended.name, status.reason)
            statuses[ended.name] = status
        watch(statuses)
        if not pool.running() and (not waiting or stopping.is_set()):
            return statuses
        if stopping.is_set() and not asked:
            asked = True
            pool.stop()
        time.sleep(POLL_SECONDS)


def status_after(sweep: SweepDirectory, ended: WorkerExit) -> tuple[CellStatus, bool]:
    """The status of a cell after its worker ended, and whether the worker was killed."""
    status = sweep.status(ended.name)
    if status.state in ("finished", "failed"):
        return status, False
    if ended.code is None:
        return CellStatus("failed", ended.reason), False
    how = f"exit code {ended.code}"
    if ended.code < 0:
        name = signal.Signals(-ended.code).name
        how = f"{name} (out of memory?)" if name in MEMORY_SIGNALS else name
    if ended.code in KILLED:
        return CellStatus("failed", f"its process ended with {how}, {RETRIES + 1} times"), True
    line = failure_line(sweep.folder / "logs", f"{ended.name}.log")
    return CellStatus("failed", f"its process ended with {how}: {line}"), False


def failure_line(logs: Folder, name: str) -> str:
    """The last line of a log that speaks of a failure, or else its last line."""
    try:
        text = logs.tail(name, LOG_BYTES).decode(errors="replace")
    except CupolaError:
        return f"see {logs.path / name}"
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    failures = [line for line in lines if FAILURE_WORDS.search(line) and not line.startswith("@")]
    return (failures or lines or ["nothing was printed"])[-1]
