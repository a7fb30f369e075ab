"""Cells on a Ray cluster: one Ray task each. The only module that knows of Ray.

A task starts the same worker process as the local engine and waits for it. The sweep's directory
must be on storage that all machines share, under one path. Whatever a lost machine had done since
its cells' last checkpoints is repeated elsewhere.
"""

from __future__ import annotations

import logging
import platform
import socket
import time
from pathlib import Path
from typing import Any

from cupola.errors import CupolaError
from cupola.sweeps import worker
from cupola.sweeps.cells import Cell
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.loop import POLL_SECONDS, RETRIES, WorkerExit

CONNECT_SECONDS = 5.0
STOP = "stop"
"""A file in the sweep's directory that asks its workers to stop, wherever they are."""


def run_cell(folder: str, name: str, trust: bool = False) -> int:
    """Runs within a Ray task: the worker's exit code."""
    sweep = Path(folder)
    if not (sweep / "sweep.json").is_file():
        raise CupolaError(
            f"{sweep} cannot be seen on {platform.node()}: put --out on storage that all machines"
            " share."
        )
    with worker.start(sweep, name, sweep / "logs" / f"{name}.log", trust=trust) as process:
        try:
            while process.poll() is None and not (sweep / STOP).exists():
                time.sleep(POLL_SECONDS)
        finally:
            process.terminate()  # stopped: the worker saves its run and ends
        return process.wait()


def refuse_unreachable(address: str | None) -> None:
    """Ray itself would wait for minutes for a cluster that is not there."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise CupolaError(f"no Ray cluster answers at {address!r} ({error}).") from None


class RayPool:
    """Workers on the cluster at ``address``; without one, on a cluster of this machine alone."""

    def __init__(
        self,
        sweep: SweepDirectory,
        jobs: int = 0,
        address: str | None = None,
        *,
        trust: bool = False,
    ) -> None:
        if jobs < 0:
            raise CupolaError(f"jobs must be at least 1, not {jobs}.")
        try:
            import ray
        except ImportError:
            raise CupolaError(
                "the Ray engine needs Ray: pip install 'cupola[ray]', or use --engine local."
            ) from None
        self._ray: Any = ray
        self._sweep, self._jobs, self._trust = sweep, jobs, trust
        self._running: dict[str, Any] = {}
        (sweep.path / STOP).unlink(missing_ok=True)
        refuse_unreachable(address)
        own_cores = {} if address else {"num_cpus": jobs or None}
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if not address else None,
                **own_cores,
            )
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            reason = " ".join(str(error).split())
            raise CupolaError(f"no Ray cluster answers at {address!r} ({reason}).") from None
        resources = dict(sweep.experiment.resources)
        memory = resources.pop("memory_gb", 0.0)
        self._task = ray.remote(run_cell)
        # Ray repeats a task whose machine or process was lost; the worker then resumes.
        self._options: dict[str, Any] = {"max_retries": RETRIES, "resources": resources or None}
        if memory:
            self._options["memory"] = memory * 1e9

    def has_room(self, cell: Cell) -> bool:
        if self._jobs:
            return len(self._running) < self._jobs
        # Machines may join at any time.
        cpus = self._ray.cluster_resources().get("CPU", 1.0)
        return len(self._running) < max(1, cpus // self._wanted(cell))

    def start(self, cell: Cell) -> None:
        task = self._task.options(num_cpus=self._wanted(cell), name=cell.name, **self._options)
        path = str(self._sweep.path.absolute())
        self._running[cell.name] = task.remote(path, cell.name, self._trust)

    def exits(self) -> list[WorkerExit]:
        if not self._running:
            return []
        names = {task: name for name, task in self._running.items()}
        done, _ = self._ray.wait(list(names), num_returns=len(names), timeout=0)
        found = []
        for task in done:
            name = names[task]
            del self._running[name]
            found.append(self._exit_of(name, task))
        return found

    def running(self) -> set[str]:
        return set(self._running)

    def stop(self) -> None:
        (self._sweep.path / STOP).touch()

    def close(self) -> None:
        for task in self._running.values():
            self._ray.cancel(task, force=True)
        self._running = {}
        self._ray.shutdown()
        (self._sweep.path / STOP).unlink(missing_ok=True)

    def _exit_of(self, name: str, task: Any) -> WorkerExit:
        try:
            return WorkerExit(name, self._ray.get(task))
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            text = str(cause) if isinstance(cause, CupolaError) else f"{cause!r}"
            return WorkerExit(name, None, text)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return WorkerExit(name, None, f"Ray gave up: {lines[0]}")

    def _wanted(self, cell: Cell) -> int:
        return cell.fields["threads"] or 1
