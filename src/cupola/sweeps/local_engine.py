"""Cells on this machine: one process each, pinned so that they do not compete for cores."""

from __future__ import annotations

import subprocess
from typing import NamedTuple

from cupola.cores import core_ids
from cupola.errors import CupolaError
from cupola.sweeps import worker
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory, writing
from cupola.sweeps.loop import WorkerExit


class Job(NamedTuple):
    process: subprocess.Popen[bytes]
    cores: list[int]


class LocalPool:
    """Up to ``jobs`` workers at a time; 0 means as many as there are cores for."""

    def __init__(self, sweep: SweepDirectory, jobs: int = 0, *, trust: bool = False) -> None:
        if jobs < 0:
            raise CupolaError(f"jobs must be at least 1, not {jobs}.")
        self._sweep = sweep
        self._load = dict.fromkeys(core_ids(), 0)
        self._jobs, self._trust = jobs, trust
        self._running: dict[str, Job] = {}

    def has_room(self, cell: Cell) -> bool:
        if self._jobs:
            return len(self._running) < self._jobs
        free = sum(load == 0 for load in self._load.values())
        return free >= self._wanted(cell)

    def start(self, cell: Cell) -> None:
        # The cores with the least to do: apart as long as there are enough of them.
        chosen = sorted(self._load, key=lambda core: self._load[core])[: self._wanted(cell)]
        for core in chosen:
            self._load[core] += 1
        with writing(self._sweep.path):
            process = worker.start(self._sweep.path, cell.name, chosen, trust=self._trust)
        self._running[cell.name] = Job(process, chosen)

    def exits(self) -> list[WorkerExit]:
        found = []
        for name, job in list(self._running.items()):
            code = job.process.poll()
            if code is not None:
                self._forget(name)
                found.append(WorkerExit(name, code))
        return found

    def running(self) -> set[str]:
        return set(self._running)

    def stop(self) -> None:
        for job in self._running.values():
            worker.ask_to_stop(job.process)

    def close(self) -> None:
        for name, job in list(self._running.items()):
            job.process.kill()
            job.process.wait()
            self._forget(name)

    def _wanted(self, cell: Cell) -> int:
        """Cores of a cell: as many as it has threads, 0 meaning all."""
        return min(cell.fields["threads"] or len(self._load), len(self._load))

    def _forget(self, name: str) -> None:
        job = self._running.pop(name)
        if job.process.stdin:
            job.process.stdin.close()
        for core in job.cores:
            self._load[core] -= 1
