"""What a person sees of a search: the runs of the present trials below a line on the study."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cupola.display import clock
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
        """Seconds to go, as if the trials to come were like those that run."""
        now = super().left(statuses)
        if now is None:
            return None
        study, trials = self._directory.study, self._directory.trials
        speeds = [self.progress(name, status).seconds for name, status in statuses.items()]
        known = [seconds for seconds in speeds if seconds is not None]
        usual = sum(known) / max(1, len(known))
        runs = (study.trials - len(trials)) * len(study.base.cells)
        side_by_side = min(self._jobs, study.at_once * len(study.base.cells))
        return now + runs * study.base.cells[0].iterations * usual / side_by_side


def summary(directory: StudyDirectory) -> str:
    """How many trials have ended, and the best of them."""
    ended = sum(trial.outcome is not None for trial in directory.trials)
    found = best(directory.trials)
    words = f"{ended} of {directory.study.trials} trials"
    if found and found.outcome:
        return f"{words}, best: trial {found.number}, {in_words(found.outcome)}"
    return f"{words}, none feasible" if ended else words


def in_words(outcome: Outcome) -> str:
    """`return 9.1, cost 0.45 <= 0.5`."""
    if outcome.mean_return is None:
        return visible(outcome.reason)
    parts = [f"return {format_number(outcome.mean_return)}"]
    for name, cost in outcome.costs.items():
        limit = outcome.limits[name]
        sign = "<=" if cost <= limit else ">"
        parts.append(f"{name} {format_number(cost)} {sign} {format_number(limit)}")
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
