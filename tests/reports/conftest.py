"""What the tests of reports share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of a report."""
    monkeypatch.setattr("cupola.reports.page.write_figures", lambda *_: [])
