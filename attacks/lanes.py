"""Processes that run tries, one after the other, under a time limit.

They are forked from a process that has imported everything and computed nothing. A try that
hangs or kills its process costs that process only.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import signal
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

from attacks import kinds
from attacks.places import Place
from attacks.programs import end_with_parent, slowly
from attacks.verdicts import Failed, last_line

RENEWED_AFTER = 400
"""Tries of one process: compiled functions pile up."""
EXTRA_MEMORY = 4 << 30
"""Bytes that a warm process may take: what a small file makes cupola take more for is a failure."""
FORK = multiprocessing.get_context("fork")


class Result(NamedTuple):
    """One try."""

    kind: str
    seed: int
    failure: str
    """Empty where cupola survived."""
    seconds: float


class Lane:
    """One try at a time; ``warm``: commands run within its process."""

    def __init__(self, warm: bool, library: Path) -> None:
        self.line, theirs = FORK.Pipe()
        self._library = library
        self._process = FORK.Process(target=serve, args=(theirs, self.line, warm, library))
        self._process.start()
        theirs.close()
        self._tries, self._now, self._deadline = 0, ("", 0), 0.0
        self._began = 0.0

    @property
    def worn(self) -> bool:
        return self._tries >= RENEWED_AFTER

    def start(self, kind: str, seed: int, seconds: float) -> None:
        self._tries += 1
        self._now, self._began = (kind, seed), time.monotonic()
        self._deadline = self._began + slowly(seconds)
        self.line.send((kind, seed))

    def poll(self) -> Result | None:
        """The result of the try, once there is one; after a hang or a crash the lane is dead."""
        spent = time.monotonic() - self._began
        try:
            if self.line.poll():
                return Result(*self._now, self.line.recv(), spent)
        except (EOFError, OSError):
            self.close()
            code = self._process.exitcode
            return Result(*self._now, f"the process died (exit code {code})", spent)
        if time.monotonic() > self._deadline:
            self.close()
            return Result(*self._now, f"it hangs: not over after {spent:.0f} s", spent)
        return None

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def close(self) -> None:
        """End it, and all of its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.join()
        self.line.close()
        if not os.environ.get("ATTACKS_KEEP"):
            shutil.rmtree(folder_of(self._library, *self._now), ignore_errors=True)


def serve(line: Connection, parents: Connection, warm: bool, library: Path) -> None:
    """The life of a lane's process."""
    parents.close()
    os.setpgid(0, 0)
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with open(library / f"lane-{os.getpid()}.log", "ab") as log, open(os.devnull, "rb") as null:
        for number, file in ((0, null), (1, log), (2, log)):
            os.dup2(file.fileno(), number)
    if warm:
        bound_memory()
    modules = kinds.load()
    while True:
        try:
            kind, seed = line.recv()
        except EOFError:
            return
        line.send(attempt(modules[kind], kind, seed, library))


def attempt(module: ModuleType, kind: str, seed: int, library: Path) -> str:
    """One try in a directory of its own: what failed, or an empty text."""
    place = Place(folder_of(library, kind, seed), library)
    place.remove()
    try:
        place.make()
        module.attack(Random(f"{kind}-{seed}"), place)
        place.check()
    except Failed as failure:
        return " ".join(str(failure).split()) or "failed"
    except BaseException as error:  # of the attack itself: to be looked at as well
        place_of = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place_of.filename).name} line {place_of.lineno}"
        return f"the attack broke: {last_line(traceback.format_exc())} ({where})"
    finally:
        if not os.environ.get("ATTACKS_KEEP"):
            place.remove()
    return ""


def folder_of(library: Path, kind: str, seed: int) -> Path:
    return library / "tries" / f"{kind}-{seed}"


def bound_memory() -> None:
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        bound = pages * resource.getpagesize() + EXTRA_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
