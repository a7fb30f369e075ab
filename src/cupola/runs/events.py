"""TensorBoard events, written in the caller's thread: a full disk is an error, not a hang."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from cupola.runs.checkpoints import append


class TensorBoard:
    """One event file; TensorBoard forgets what earlier files hold from ``first_step`` on."""

    def __init__(self, folder: Path, first_step: int) -> None:
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**6}"
        # Unbuffered: an event is in the file or the write fails, and closing cannot fail.
        self._file = (folder / name).open("ab", buffering=0)
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=first_step, session_log=SessionLog(status=SessionLog.START)))

    def log(self, record: dict[str, Any], step: int) -> None:
        """All numbers of a record as scalars of one step."""
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in record.items()
            if isinstance(value, int | float) and name != "iteration"
        ]
        self._write(Event(step=step, summary=Summary(value=values)))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> None:
        """One TFRecord: length, its checksum, data, its checksum."""
        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checks = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
        append(self._file, b"".join((length, next(checks), data, next(checks))))
