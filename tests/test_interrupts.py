"""Ctrl-C more than once, at the worst moments: never a traceback, and never lost."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGIN = """
import atexit, signal, sys, time, types
import cupola.cli

def press():
    signal.raise_signal(signal.SIGINT)

class Trap:
    def __del__(self):
        press()

command = types.ModuleType("cupola.commands.list")
sys.modules["cupola.commands.list"] = command
sys.argv = ["cupola", "list"]
"""
PROGRAMS = {
    "once": ("command.run = lambda args: press()", 130),
    "in a destructor": ("command.run = lambda args: (Trap() and None, time.sleep(60))", 130),
    "while the first one is told": (
        "cupola.cli.complain = lambda text: press()\ncommand.run = lambda args: press()",
        -signal.SIGINT,
    ),
    "when the interpreter ends": ("command.run = print\natexit.register(press)", -signal.SIGINT),
    "after a request to stop": (
        """
from cupola.signals import stop_requests
def run(args):
    with stop_requests() as stopping:
        press()
        assert stopping.is_set()
        Trap()
        time.sleep(60)
command.run = run
""",
        130,
    ),
}


@pytest.mark.parametrize("when", PROGRAMS)
def test_ctrl_c_at_a_bad_moment(when):
    program, code = PROGRAMS[when]
    ended = subprocess.run(
        [sys.executable, "-c", f"{BEGIN}{program}\ncupola.cli.main()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stderr == ("cupola: interrupted.\n" if code == 130 else "")


EVERYWHERE = """
import signal, sys
from cupola.signals import stop_requests

def is_handled(frame):
    while frame is not None and frame.f_code.co_name != "ask":
        frame = frame.f_back
    return frame is not None

def attempt(number):
    lines = 0
    def trace(frame, event, arg):
        nonlocal lines
        if event == "line" and is_handled(frame):
            lines += 1
            if lines == number:
                signal.raise_signal(signal.SIGINT)
        return trace
    try:
        with stop_requests() as stopping:
            sys.settrace(trace)
            signal.raise_signal(signal.SIGINT)
            sys.settrace(None)
            assert stopping.is_set()
    except KeyboardInterrupt:  # the second one
        sys.settrace(None)
        assert stopping.is_set()
    return lines >= number

number = 1
while attempt(number):
    number += 1
print(number > 3)
"""


def test_ctrl_c_while_ctrl_c_is_handled():
    """At every line of the handler: with a lock in it, the process would hang."""
    ended = subprocess.run(
        [sys.executable, "-c", EVERYWHERE],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def test_a_command_within_python_leaves_ctrl_c_as_it_was(capsys):
    from cupola.cli import main

    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    main(["version"])
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (before, hook)
