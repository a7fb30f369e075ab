"""Fixtures of the Gymnasium tests."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tests/gym/worlds.py, importable by its name as a user's module is."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import worlds

    return worlds
