"""What a person sees of a search: the runs of the present trials below a line on the study."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cupola.display import against, clock
from cupola.naming import counted, text_of
from cupola.output import visible
from cupola.reports.formats import format_number
from cupola.sweeps.directory import CellStatus
from cupola.sweeps.watch import ORDER, SweepDisplay
from cupola.tuning.directory import StudyDirectory
from cupola.tuning.trials import Outcome, best, ranked

CLOSING_ROWS = 10


class SearchDisplay(SweepDisplay):
    """Called with the status of the present trials' cells, again and again."""

    def __init__(self, console: Console, directory: StudyDirectory, jobs: int) -> None:
        super().__init__(console, directory.sweep(), jobs)
        self._directory = directory
        self._before = self._ended = ended_trials(directory)
        self._began = self._last_end = time.monotonic()

    def __call__(self, statuses: dict[str, CellStatus]) -> None:
        self._sweep = self._directory.sweep()  # it grows
        super().__call__(statuses)

    def headline(self, statuses: dict[str, CellStatus]) -> str:
        counts: Counter[str] = Counter(status.state for status in statuses.values())
        runs = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        left = self.left(statuses)
        ending = f", about {clock(left)} left" if left else ""
        return f"{summary(self._directory)}; {counted(len(statuses), 'run')}: {runs}{ending}"

    def left(self, statuses: dict[str, CellStatus]) -> float | None:
        """Seconds to go, as if the trials to come took as long as those that ended, with all that
        is not training; before the first one ends, as if they were like those that run."""
        ended, now = ended_trials(self._directory), time.monotonic()
        if ended > self._ended:
            self._ended, self._last_end = ended, now
        if ended > self._before:
            each = (self._last_end - self._began) / (ended - self._before)
            return max(0.0, self._trials_after(ended) * each - (now - self._last_end))
        running = super().left(statuses)
        if running is None:
            return None
        cells = self._directory.study.base.cells
        speeds = [self.progress(name, status).seconds for name, status in statuses.items()]
        known = [seconds for seconds in speeds if seconds is not None]
        usual = sum(known) / max(1, len(known))
        runs = self._trials_after(len(self._directory.trials)) * len(cells)
        side_by_side = min(self._jobs, self._directory.study.at_once * len(cells))
        return running + runs * cells[0].iterations * usual / side_by_side

    def _trials_after(self, number: int) -> int:
        return self._directory.study.trials - number


def ended_trials(directory: StudyDirectory) -> int:
    return sum(trial.outcome is not None for trial in directory.trials)


def summary(directory: StudyDirectory) -> str:
    """How many trials have ended, and the best of them."""
    ended = ended_trials(directory)
    found = best(directory.trials)
    words = f"{ended} of {directory.study.trials} trials"
    if found and found.outcome:
        return f"{words}, best: trial {found.number}, {in_words(found.outcome)}"
    return f"{words}, none feasible" if ended else words


def in_words(outcome: Outcome) -> str:
    """`return 9.1, cost 0.450 <= 0.500`."""
    if outcome.mean_return is None:
        return visible(outcome.reason)
    parts = [f"return {format_number(outcome.mean_return)}"]
    for name, cost in outcome.costs.items():
        parts.append(f"{name} {against(cost, outcome.limits[name])}")
    return ", ".join(parts)


def closing_table(directory: StudyDirectory) -> Table:
    """The best trials, with their settings."""
    order = ranked(directory.trials)
    table = Table(title=summary(directory))
    for column in ("trial", "state", "result", "settings"):
        table.add_column(column, overflow="fold", justify="right" if column == "trial" else "left")
    for trial in order[:CLOSING_ROWS]:
        assert trial.outcome is not None
        state = trial.outcome.state
        feasible = "feasible" if trial.outcome.feasible else "infeasible"
        shown = Text(feasible if state == "finished" else state)
        settings = "  ".join(f"{field}={short(value)}" for field, value in trial.values.items())
        table.add_row(str(trial.number), shown, in_words(trial.outcome), settings)
    more = len(order) - CLOSING_ROWS
    if more > 0:
        table.add_row("", "", f"and {more} more", "")
    return table


def short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else text_of(value)
