"""Messages between a process and its workers.

A pair of sockets, or, where a process inherits its streams alone (Windows), the worker's standard
input and output.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import IO, Any

from cupola.processes import apart, hands_down_descriptors

_SIZE = struct.Struct("!Q")


class Streams:
    """Messages on two streams of bytes, as `Connection` has them on a socket."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader, self._writer = reader, writer

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(_SIZE.pack(len(data)) + data)
        self._writer.flush()

    def recv_bytes(self) -> bytes:
        return self._read(_SIZE.unpack(self._read(_SIZE.size))[0])

    def send(self, message: Any) -> None:
        self.send_bytes(bytes(ForkingPickler.dumps(message)))

    def recv(self) -> Any:
        return ForkingPickler.loads(self.recv_bytes())

    def close(self) -> None:
        for stream in (self._writer, self._reader):
            with contextlib.suppress(OSError):  # nobody reads what was still to be written
                stream.close()

    def _read(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise EOFError
        return data


Line = Connection | Streams


def start(program: str, environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], Line]:
    """A fresh interpreter that runs ``program``, and the line to its `answer`."""
    command = [sys.executable, "-P", "-c", program]
    if not hands_down_descriptors():
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, **apart())
        assert process.stdin
        assert process.stdout
        return process, Streams(process.stdout, process.stdin)
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [*command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment,
            **apart(),
        )
    return process, Connection(ours.detach())


def answer() -> Line:
    """The worker's end of the line."""
    if len(sys.argv) > 1:
        return Connection(int(sys.argv[1]))
    reader, writer = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "rb"), (1, "wb")))
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)  # what an environment prints is no message
    return Streams(reader, writer)
