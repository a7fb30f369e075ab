"""What `pip install cupola` brings must be enough to use it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

PROGRAM = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None  # importing it fails
import cupola
for module in pkgutil.walk_packages(cupola.__path__, "cupola."):
    if module.name not in ("cupola.__main__", "cupola.sweeps.ray_engine"):
        importlib.import_module(module.name)
"""


def test_no_module_needs_a_package_that_only_developers_install():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {r.split(">=")[0].split("[")[0].replace("-", "_") for r in requirements}

    extra = names(project["optional-dependencies"]["dev"]) - names(project["dependencies"])
    assert "imageio" in extra
    command = [sys.executable, "-c", PROGRAM, *sorted(extra)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
