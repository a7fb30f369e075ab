"""What is said of a search while it goes on."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from cupola.sweeps.watch import SweepDisplay
from cupola.tuning import watch
from cupola.tuning.trials import Outcome
from cupola.tuning.watch import SearchDisplay, in_words


class Search:
    """Ten trials of two runs, as a display sees them."""

    def __init__(self) -> None:
        cells = [SimpleNamespace(iterations=100)] * 2
        self.study = SimpleNamespace(trials=10, at_once=1, base=SimpleNamespace(cells=cells))
        self.trials = [SimpleNamespace(outcome="before")] * 2 + [SimpleNamespace(outcome=None)]

    def sweep(self) -> Any:
        return None


def test_the_time_left_counts_what_a_trial_takes_besides_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(SweepDisplay, "left", lambda self, statuses: 0.5)
    progress = SimpleNamespace(seconds=0.01)
    monkeypatch.setattr(SweepDisplay, "progress", lambda self, name, status: progress)
    search = Search()
    display = SearchDisplay(Console(file=io.StringIO()), search, jobs=2)  # type: ignore[arg-type]
    statuses: Any = {"a": None, "b": None}
    # Nothing has ended since the command was given: 7 trials to come, by their iterations.
    assert display.left(statuses) == pytest.approx(0.5 + 7 * 2 * 100 * 0.01 / 2)
    # A trial ended after 20 s, another one after 24 s more: 6 are left, of 22 s each.
    for seconds, left in ((20, 7 * 20), (24, 6 * 22)):
        now[0] += seconds
        search.trials[-1:] = [SimpleNamespace(outcome="new"), SimpleNamespace(outcome=None)]
        assert display.left(statuses) == pytest.approx(left)
    now[0] += 10
    assert display.left(statuses) == pytest.approx(6 * 22 - 10)


def test_a_cost_that_is_hardly_too_high_is_seen_to_be() -> None:
    outcome = Outcome("finished", "", 9.2, {"cost": 0.50021}, {"cost": 0.5})
    assert in_words(outcome) == "return 9.2, cost 0.5002 > 0.5000"
