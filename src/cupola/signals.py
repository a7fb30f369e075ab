"""Signals: a request to stop lets the current iteration end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C or a termination signal sets; a second signal ends at once."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def ask(number: int, frame: object) -> None:
        stopping.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in signals:
        signal.signal(number, ask)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
