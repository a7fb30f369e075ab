"""Running cupola: within this process, in a forked child, or as a program of its own.

Start-up takes seconds, so most tries do without it. A child is forked before JAX has computed
anything: only then is it safe, and as good as a new interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attacks.verdicts import Failed, Outcome

PATIENCE = 60.0
"""Seconds that a child may take; what takes longer hangs."""
SLOWNESS = "ATTACKS_SLOWNESS"
"""An environment variable: how much longer everything takes than on an idle machine."""
REPOSITORY = Path(__file__).resolve().parent.parent


def slowly(seconds: float) -> float:
    """So many seconds of a machine with nothing else to do."""
    return seconds * float(os.environ.get(SLOWNESS, "1"))


def end_with_parent() -> None:
    """Let the system kill this process when its parent ends (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextlib.contextmanager
def undisturbed_process() -> Iterator[None]:
    """Put back what a command changes in its process."""
    path, environment, here = list(sys.path), dict(os.environ), os.getcwd()
    modules = set(sys.modules)
    with warnings.catch_warnings():
        try:
            yield
        finally:
            sys.path[:] = path
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(here)
            for name in set(sys.modules) - modules:
                if getattr(sys.modules[name], "FOREIGN", False):
                    del sys.modules[name]


class Terminal(io.TextIOWrapper):
    """A stream that looks like a terminal."""

    def isatty(self) -> bool:
        return True


def call(
    args: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    encoding: str = "utf-8",
    terminal: bool = False,
) -> Outcome:
    """`cupola ARGS` within this process; streams behave as those of a real one."""
    from cupola.cli import main

    kind = Terminal if terminal else io.TextIOWrapper
    out = kind(io.BytesIO(), encoding, newline="\n")
    err = kind(io.BytesIO(), encoding, "backslashreplace", newline="\n")
    with undisturbed_process():
        os.chdir(cwd)
        os.environ["COLUMNS"] = "160"
        os.environ.update(environment or {})
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code(lambda: main(list(args)))
            out.flush()
    err.flush()
    return Outcome(code, *(stream.buffer.getvalue().decode(encoding) for stream in (out, err)))


def exit_code(function: Callable[[], object]) -> int:
    """The exit code of a program that is this function; a traceback goes to standard error."""
    try:
        function()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class Victim:
    """A child process, forked or a program of its own."""

    def __init__(self, pid: int, folder: Path, process: subprocess.Popen[bytes] | None) -> None:
        self.pid, self._folder, self._process = pid, folder, process
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            if self._process:
                self.code = self._process.poll()
            else:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float = PATIENCE) -> Outcome:
        """How it ended; one that does not is killed, and that is a failure."""
        deadline = time.monotonic() + slowly(seconds)
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.send(signal.SIGKILL)
                self.wait(5.0)
                raise Failed(f"it hangs: not over after {slowly(seconds):.0f} s")
            time.sleep(0.003)
        assert self.code is not None
        return Outcome(self.code, *(self._read(name) for name in ("out", "err")))

    def _read(self, name: str) -> str:
        return (self._folder / name).read_text(errors="backslashreplace")


def streams_folder(cwd: Path) -> Path:
    """A new folder for what a child prints, beside its working directory."""
    number = len(list(cwd.parent.glob("streams-*")))
    folder = cwd.parent / f"streams-{number}"
    folder.mkdir()
    return folder


def fork(
    args: Sequence[str],
    cwd: Path,
    prepare: Callable[[], object] | None = None,
    stdout: int | None = None,
) -> Victim:
    """`cupola ARGS` in a forked child; ``prepare`` runs in it first.

    ``stdout`` is a descriptor for both streams, for example of a pipe.
    """
    folder = streams_folder(cwd)
    pid = os.fork()
    if pid:
        return Victim(pid, folder, None)
    try:
        end_with_parent()
        settle(folder, cwd, stdout)
        if prepare:
            prepare()
        from cupola.cli import main

        code = exit_code(lambda: main(list(args)))
        with contextlib.suppress(ValueError):  # closed by the command
            sys.stderr.flush()
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            code = 120  # as the interpreter does
        os._exit(code & 0xFF)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(99)


def settle(folder: Path, cwd: Path, stdout: int | None) -> None:
    """In the child: streams, working directory and signals of a new process."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file if stdout is None else stdout, number)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ["COLUMNS"] = "160"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGHUP", "SIGALRM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def program(args: Sequence[str], cwd: Path, session: bool = False) -> Victim:
    """`python -m cupola ARGS`, a real start; ``session``: with a process group of its own."""
    folder = streams_folder(cwd)
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "cupola", *args],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | {"PYTHONPATH": python_path(), "COLUMNS": "160"},
            start_new_session=session,
            preexec_fn=end_with_parent,
        )
    return Victim(process.pid, folder, process)


def python_path() -> str:
    """Where children find cupola and these attacks."""
    places = (str(REPOSITORY / "src"), str(REPOSITORY), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join(filter(None, places))


def consent(command: str) -> list[str]:
    """The option that lets ``command`` import what a run names, where there is one."""
    import dataclasses
    import importlib

    module = importlib.import_module(f"cupola.commands.{command}")
    arguments = getattr(module, f"{command.capitalize()}Args")
    names = [each.name for each in dataclasses.fields(arguments)]
    return ["--trust"] if "trust" in names else []
