"""Fixtures of the algorithms' tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def replay() -> ModuleType:
    """replay.py beside this file, which is a script as well."""
    path = Path(__file__).with_name("replay.py")
    spec = importlib.util.spec_from_file_location("replay", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
