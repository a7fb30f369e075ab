"""Python as on Windows, as far as cupola can see: put this folder on PYTHONPATH.

Modules of cupola get `os`, `signal` and `subprocess` without what Windows does not have, and no
`fcntl`. It cannot show everything: a file that is open can still be replaced here.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import types
from typing import Any

MISSING = {
    "os": (
        *("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "fchdir", "sysconf", "setsid"),
        *("register_at_fork", "fork", "killpg", "sched_getaffinity", "sched_setaffinity"),
    ),
    "signal": ("SIGHUP", "SIGKILL", "SIGBUS", "pthread_kill"),
    "subprocess": (),
    "ctypes": (),
}


def poor(module: types.ModuleType, **changed: Any) -> types.ModuleType:
    """A module without what Windows does not have."""
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update(module.__dict__ | changed)
    for name in MISSING[module.__name__]:
        delattr(copy, name)
    return copy


def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: None = None) -> int:
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return os.open(path, flags, mode)


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *args: Any, creationflags: int = 0, **options: Any) -> None:
        if options.get("pass_fds"):
            raise ValueError("pass_fds not supported on Windows.")
        super().__init__(*args, **options)

    def terminate(self) -> None:
        self.kill()


class Regions(types.ModuleType):
    """`msvcrt`: locks of some bytes of an open file."""

    LK_UNLCK, LK_NBLCK = 0, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self._held: dict[int, int] = {}

    def locking(self, descriptor: int, mode: int, size: int) -> None:
        if mode == self.LK_UNLCK:
            os.close(self._held.pop(descriptor))
            return
        # Opened again: Linux wants a file that can be written, Windows does not.
        own = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        start = os.lseek(descriptor, 0, os.SEEK_CUR)
        region = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, size, 0)
        try:
            fcntl.fcntl(own, fcntl.F_OFD_SETLK, region)
        except BlockingIOError:
            os.close(own)
            raise PermissionError(errno.EACCES, "Permission denied") from None
        self._held[descriptor] = own


class Kernel:
    """What `ctypes` knows of Windows: that it does not tell how much memory there is."""

    @staticmethod
    def GetPhysicallyInstalledSystemMemory(_: object) -> int:  # noqa: N802
        return 0


MODULES = {
    "ctypes": poor(ctypes, windll=types.SimpleNamespace(kernel32=Kernel)),
    "os": poor(os, open=open_file, supports_dir_fd=set()),
    "signal": poor(signal, SIGBREAK=signal.SIGUSR2),
    "subprocess": poor(subprocess, Popen=Popen, CREATE_NEW_PROCESS_GROUP=0x200),
}
real_import = builtins.__import__


def import_module(name: str, scope: Any = None, *rest: Any, **more: Any) -> Any:
    if scope and str(scope.get("__name__", "")).startswith("cupola"):
        if name == "fcntl":
            raise ModuleNotFoundError(name)
        if name in MODULES:
            return MODULES[name]
    return real_import(name, scope, *rest, **more)


builtins.__import__ = import_module
sys.modules["msvcrt"] = Regions()
