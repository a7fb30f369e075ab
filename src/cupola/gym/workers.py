"""Environments in processes of their own, or in this one.

A worker is a fresh interpreter: it runs nothing of the main program, and whatever the environment
does to the process stays there. Functions travel by cloudpickle, between our own processes only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import cloudpickle

from cupola.errors import CupolaError
from cupola.gym import lines
from cupola.gym.failures import EnvironmentFailedError, blaming
from cupola.gym.single import EnvGroup, EnvRecipe
from cupola.output import forgiving_output
from cupola.signals import REQUESTS


class InProcess:
    """A group in this process."""

    def __init__(self, recipe: EnvRecipe, count: int) -> None:
        self._group = EnvGroup(recipe, count)
        self._reply: Any = None

    def send(self, method: str, *args: Any) -> None:
        self._reply = getattr(self._group, method)(*args)

    def receive(self) -> Any:
        return self._reply

    def close(self) -> None:
        self._group.close()


class Worker:
    """A group in another process: `send` begins a call, `receive` waits for its result."""

    def __init__(self, recipe: EnvRecipe, count: int) -> None:
        self._name = recipe.name
        try:
            order = cloudpickle.dumps((recipe, count))
        except Exception as error:
            raise CupolaError(
                f"{self._name} cannot be sent to a worker process ({error}): use workers=0."
            ) from error
        # The path of this process, no more: without -P the working directory would go first.
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._process, self._line = lines.start(
            "from cupola.gym.workers import serve; serve()", os.environ | {"PYTHONPATH": path}
        )
        self._line.send_bytes(order)

    def send(self, method: str, *args: Any) -> None:
        try:
            self._line.send((method, args))
        except OSError:
            self._lost()

    def receive(self) -> Any:
        try:
            failed, result = self._line.recv()
        except (EOFError, OSError):
            self._lost()
        if failed:
            raise EnvironmentFailedError(result)
        return result

    def _lost(self) -> None:
        code = self._process.wait()
        raise EnvironmentFailedError(
            f"a worker process of {self._name} ended (exit code {code}): fix the environment, or"
            " look at what it does with workers=0."
        )

    def close(self) -> None:
        self._line.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve() -> None:
    """The life of a worker: it ends when the main process hangs up."""
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)
    with forgiving_output():
        _serve()


def _serve() -> None:
    line = lines.answer()
    group: EnvGroup | None = None
    order: bytes | None = None
    while True:
        try:
            order = order or line.recv_bytes()
            method, args = line.recv()
        except (EOFError, OSError):
            break
        try:
            if group is None:
                with blaming("a worker process", "when it started", "use workers=0"):
                    group = EnvGroup(*cloudpickle.loads(order))
            reply = (False, getattr(group, method)(*args))
        except CupolaError as error:
            reply = (True, str(error))
        line.send(reply)
    if group is not None:
        group.close()
