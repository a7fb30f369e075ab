"""Signals: a request to stop lets the current iteration end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that Ctrl-C, a termination signal or a closed terminal sets.

    A second signal ends at once. A signal that is ignored (nohup) stays ignored.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    before = {
        number: handler
        for number in REQUESTS
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }

    def ask(number: int, frame: object) -> None:
        stopping.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
