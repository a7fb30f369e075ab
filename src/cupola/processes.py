"""Processes that cupola starts."""

from __future__ import annotations

import os
import subprocess
from typing import Any

_OWN_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200)


def apart() -> dict[str, Any]:
    """Arguments of `Popen`: Ctrl-C and a closed terminal are for us, not for that process."""
    if hasattr(os, "setsid"):
        return {"start_new_session": True}
    return {"creationflags": _OWN_GROUP}  # Windows; a closed terminal ends it there


def hands_down_descriptors() -> bool:
    """Whether `Popen` has ``pass_fds`` here; on Windows a process inherits its streams alone."""
    return hasattr(os, "fork")
