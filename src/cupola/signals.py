"""Signals: a request to stop lets the current iteration end."""

from __future__ import annotations

import _thread
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CLOSED: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
"""The signal of a terminal that was closed; on Windows it is SIGBREAK."""
REQUESTS = (signal.SIGINT, signal.SIGTERM, *CLOSED)


class StopRequest:
    """Set by a signal.

    It has no lock, as `threading.Event` has: a second signal would wait for the first for ever.
    """

    number: signal.Signals | None = None
    """Which one it was."""

    def is_set(self) -> bool:
        return self.number is not None


@contextmanager
def interrupts(to_the_end: bool) -> Iterator[None]:
    """Within, Ctrl-C is a KeyboardInterrupt, once: one more ends the process without a word.

    Python raises it wherever it happens to be: a second one would come while the first is handled.
    In a destructor, or a callback of a weak reference, it would be lost with a traceback: it comes
    again soon after. ``to_the_end``: the process ends with this, and Ctrl-C may hurry it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    under_way = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal under_way
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if under_way:
            signal.raise_signal(signal.SIGINT)
        under_way = True
        raise KeyboardInterrupt

    def lose(lost: sys.UnraisableHookArgs) -> None:
        nonlocal under_way
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            hook(lost)
            return
        under_way = False
        signal.signal(signal.SIGINT, interrupt)
        again = threading.Timer(0.02, _press)
        again.daemon = True
        again.start()

    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if before == signal.SIG_IGN:
        yield
        return
    sys.unraisablehook = lose
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if to_the_end else before)
        sys.unraisablehook = hook


def _press() -> None:
    """Ctrl-C for the main thread, which may sleep."""
    main = threading.main_thread().ident
    if main and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:  # Windows
        _thread.interrupt_main()


@contextmanager
def stop_requests(acknowledge: Callable[[], None] = lambda: None) -> Iterator[StopRequest]:
    """A request that Ctrl-C, a termination signal or a closed terminal sets.

    A second signal ends at once. A closed terminal that is to be ignored (nohup) stays ignored;
    shells let what they start in the background ignore Ctrl-C, but whoever sends it means it.

    ``acknowledge`` is called as soon as the signal comes, perhaps twice and from another thread.
    """
    stopping = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    before = {number: signal.getsignal(number) for number in REQUESTS}
    for number in CLOSED:
        if before[number] == signal.SIG_IGN:
            del before[number]

    def ask(asked: int, frame: object) -> None:
        stopping.number = signal.Signals(asked)
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
    with writer:
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:  # an event loop has it: then without
            signal.set_wakeup_fd(before)
            reader.close()
            yield
            return

        def watch() -> None:
            with reader:  # closed here: an interrupt may keep the main thread from waiting
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
