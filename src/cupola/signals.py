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

    A second signal ends at once. A closed terminal that is to be ignored (nohup) stays ignored;
    shells let what they start in the background ignore Ctrl-C, but whoever sends it means it.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    before = {number: signal.getsignal(number) for number in REQUESTS}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]

    def ask(number: int, frame: object) -> None:
        stopping.set()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler == signal.SIG_IGN else handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
