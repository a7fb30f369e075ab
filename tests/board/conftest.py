"""A board as a user starts it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import sys
from cupola.cli import main
try:
    main(sys.argv[1:])
finally:
    print("JAX is imported:", "jax" in sys.modules)
"""


class Board:
    """`cupola board` in a process of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [sys.executable, "-c", PROGRAM, "board", str(directory), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.url = self.said.split()[0]
        self.port = int(self.url.rstrip("/").rpartition(":")[2])

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> http.client.HTTPResponse:
        """An answer, with its body as `answer.body`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        connection.close()
        return answer

    def state(self) -> dict[str, Any]:
        return json.loads(self.ask("/state").body)  # type: ignore[attr-defined]

    def wait(self, rows: int) -> dict[str, Any]:
        """The state, once so many runs are read."""
        deadline = time.monotonic() + 60
        while True:
            state = self.state()
            if sum(row["read"] for row in state["rows"]) >= rows:
                return state
            assert time.monotonic() < deadline, state
            time.sleep(0.05)

    def memory(self) -> float:
        """The most that the process has had, in MB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) / 1000

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Exit code, and what else it said."""
        os.kill(self.process.pid, number)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@pytest.fixture
def board() -> Iterator[Callable[..., Board]]:
    started: list[Board] = []

    def start(directory: Path, *options: str) -> Board:
        started.append(Board(directory, *options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()
