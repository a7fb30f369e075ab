"""Cells on a Ray cluster: one Ray task each. The only module that knows of Ray.

A task starts the same worker process as the local engine and waits for it. The sweep's directory
must be on storage that all machines share, under one path. Whatever a lost machine had done since
its cells' last checkpoints is repeated elsewhere.
"""

from __future__ import annotations

import logging
import os
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
ON_THE_NETWORK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's own variable: whether nodes take an address that other machines can reach."""
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
    with worker.start(sweep, name, trust=trust) as process:
        try:
            while process.poll() is None and not (sweep / STOP).exists():
                time.sleep(POLL_SECONDS)
        finally:
            worker.ask_to_stop(process)  # stopped: the worker saves its run and ends
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


def refuse_open(ray: Any, address: str | None) -> None:
    """Ray runs the code of whoever can reach it: a cluster of our own must not be on the network.

    It is not, unless a version of Ray takes no notice of what we ask for.
    """
    found = {node["NodeManagerAddress"] for node in ray.nodes()}
    if not address and os.environ[ON_THE_NETWORK] == "0" and found != {"127.0.0.1"}:
        ray.shutdown()
        raise CupolaError(
            f"Ray would listen on the network ({', '.join(sorted(found))}): use --engine local, or"
            f" allow it with {ON_THE_NETWORK}=1."
        )


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
        if not address:
            # Ray reads it when it is imported: nodes of one machine bind to the loopback (as they
            # always do on macOS), unless the user has said 1.
            os.environ.setdefault(ON_THE_NETWORK, "0")
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
        own: dict[str, Any] = {"num_cpus": jobs or None, "include_dashboard": False}
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({} if address else own),
            )
        except Exception as error:  # Ray raises all kinds, a plain Exception where it is too slow
            ray.shutdown()
            reason = " ".join(str(error).split()).rstrip(".")
            raise CupolaError(
                f"no Ray cluster answers at {address!r} ({reason})."
                if address
                else f"Ray does not start on this machine ({reason}): try again, or use"
                " --engine local."
            ) from None
        refuse_open(ray, address)
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
