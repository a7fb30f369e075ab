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


def test_a_command_within_python_leaves_ctrl_c_as_it_was(capsys):
    from cupola.cli import main

    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    main(["version"])
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (before, hook)
