"""What measuring scripts of this folder share: the cores, and where a figure comes from."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cupola.cores import available_cores, core_ids

RESULTS = Path(__file__).parent / "results"


def use_cores(count: int) -> None:
    """Keep this process to so many cores. It must come before JAX starts its threads."""
    if not hasattr(os, "sched_setaffinity"):
        if count != available_cores():
            sys.exit("this system cannot keep a process to some of its cores.")
        return
    if not 1 <= count <= available_cores():
        sys.exit(f"there are {available_cores()} cores, not {count}.")
    os.sched_setaffinity(0, core_ids()[:count])


def provenance(note: str = "") -> dict[str, Any]:
    """The command and the machine behind a result."""
    script, *arguments = sys.argv
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(script).name}", *arguments]),
        "note": note,
        "cores": available_cores(),
        "platform": f"{platform.system()} {platform.machine()}",
        "load_average": os.getloadavg()[0],
        "versions": {name: version(name) for name in ("cupola", "jax", "mujoco", "numpy")},
    }


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """Options that all have: what is noted of the result, and where it goes."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--note", default="", help="kept with the figures")
    parser.add_argument("--out", type=Path)
    return parser


def keep_figure(figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def keep(report: dict[str, Any], path: Path | None) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
