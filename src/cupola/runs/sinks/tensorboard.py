"""TensorBoard events, written in the caller's thread: a full disk is an error, not a hang.

The axis is environment steps. What metrics.jsonl has of a cost stands in one group of its name:
`cost/speed`, `limit/speed` and `nu/speed` are `speed/cost`, `speed/limit` and `speed/nu`.
"""

from __future__ import annotations

import io
import struct
import time
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from cupola.runs.files import Folder, append


class TensorBoard:
    """One event file per start, in RUN/tensorboard."""

    def __init__(self) -> None:
        self._file: io.FileIO | None = None
        self._has_begun = False

    def start(self, path: Path, config: dict[str, Any], first_iteration: int) -> None:
        folder = Folder(path, "tensorboard")
        folder.make()
        taken, stamp = set(folder.names()), time.time_ns() // 10**6
        while f"events.out.tfevents.{stamp}" in taken:  # the clock went back, or it is a plant
            stamp += 1
        # Unbuffered: an event is in the file or the write fails, and closing cannot fail.
        self._file = folder.create(f"events.out.tfevents.{stamp}")
        self._write(Event(file_version="brain.Event:2"))

    def log(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None:
        """All numbers as scalars of one step."""
        step = metrics["steps"]
        if not self._has_begun:
            # TensorBoard forgets what earlier files hold from this step on.
            self._write(Event(step=step, session_log=SessionLog(status=SessionLog.START)))
            self._has_begun = True
        values = [
            Summary.Value(tag=grouped(name, metrics), simple_value=value)
            for name, value in (metrics | timings).items()
            if isinstance(value, int | float) and name != "steps"
        ]
        self._write(Event(step=step, summary=Summary(value=values)))

    def close(self, finished: bool) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, event: Event) -> None:
        """One TFRecord: length, its checksum, data, its checksum."""
        assert self._file is not None
        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checks = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
        append(self._file, b"".join((length, next(checks), data, next(checks))))


def grouped(name: str, metrics: dict[str, Any]) -> str:
    """The tag of a metric: TensorBoard groups by what is before the slash."""
    kind, _, cost = name.partition("/")
    return f"{cost}/{kind}" if f"cost/{cost}" in metrics else name


make = TensorBoard
