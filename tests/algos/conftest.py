"""Fixtures of the algorithms' tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def replay_updates() -> ModuleType:
    """benchmarks/replay_updates.py as a module."""
    path = ROOT / "benchmarks" / "replay_updates.py"
    spec = importlib.util.spec_from_file_location("replay_updates", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
