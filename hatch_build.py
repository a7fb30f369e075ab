"""Compile src/cupola/native/kernels.c when cupola is built or installed.

Without a C compiler the package is installed all the same, without the library: tasks then compute
the same in NumPy, slower. ``CC`` names the compiler; ``CUPOLA_NATIVE=0`` leaves the library out,
``CUPOLA_NATIVE=1`` makes a missing compiler an error.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")


class Kernels(BuildHookInterface):
    """The hook that hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / "src" / "cupola" / "native"
        asked = os.environ.get("CUPOLA_NATIVE", "")
        if asked == "0":
            return
        why_not = compile_library(folder / "kernels.c", folder / "kernels.bin")
        if why_not:
            if asked == "1":
                raise RuntimeError(why_not)
            self.app.display_warning(f"cupola without its compiled part: {why_not}")
            return
        build_data["artifacts"].append("src/cupola/native/kernels.bin")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def compile_library(source: Path, library: Path) -> str:
    """Why there is no library, or nothing."""
    names = os.environ.get("CC"), "cc", "gcc", "clang"
    compilers = [shlex.split(name) for name in names if name]
    found = next((words for words in compilers if words and shutil.which(words[0])), None)
    if not found:
        return "there is no C compiler (cc, gcc or clang)"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    draft = library.with_name(f"{library.name}.{os.getpid()}")
    command = [*found, *FLAGS, f'-DSOURCE="{digest}"', "-o", str(draft), str(source)]
    if sys.platform != "win32":
        command.append("-lm")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return f"{shlex.join(command)} failed: {done.stderr.strip()[-500:]}"
        draft.replace(library)  # a library that is in use keeps its old file
    except (OSError, subprocess.SubprocessError) as error:
        return f"{shlex.join(command)} failed: {error}"
    finally:
        draft.unlink(missing_ok=True)
    return ""
