"""Signals: a request to stop lets the current iteration end."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest(threading.Event):
    """Set by a signal."""

    number: signal.Signals | None = None
    """Which one it was."""


@contextmanager
def stop_requests(acknowledge: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """An event that Ctrl-C, a termination signal or a closed terminal sets.

    A second signal ends at once. A closed terminal that is to be ignored (nohup) stays ignored;
    shells let what they start in the background ignore Ctrl-C, but whoever sends it means it.

    ``acknowledge`` is called as soon as the signal comes, perhaps twice and from another thread.
    """
    stopping = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    before = {number: signal.getsignal(number) for number in REQUESTS}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]

    def ask(asked: int, frame: object) -> None:
        stopping.number = signal.Signals(asked)
        stopping.set()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler == signal.SIG_IGN else handler)
        acknowledge()

    with noticed(set(before), acknowledge):
        for number in before:
            signal.signal(number, ask)
        try:
            yield stopping
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def noticed(numbers: set[signal.Signals], tell: Callable[[], None]) -> Iterator[None]:
    """Call ``tell`` in a thread when one of these signals comes.

    Python runs its handlers between two lines of Python: a compilation of many seconds is in the
    middle of one. The system's own handler writes to a descriptor at once.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with reader, writer:
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:  # an event loop has it: then without
            signal.set_wakeup_fd(before)
            yield
            return

        def watch() -> None:
            while found := reader.recv(1):
                if found[0] in numbers:
                    tell()

        thread = threading.Thread(target=watch, name="cupola-signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            writer.close()
            thread.join()
