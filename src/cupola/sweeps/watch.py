"""What a person sees of a sweep: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cupola.display import Screen, against, clock, cost_names, number
from cupola.output import visible
from cupola.runs.directory import RunDirectory
from cupola.sweeps.directory import CellStatus, SweepDirectory

ORDER = ("running", "failed", "interrupted", "waiting", "finished")
FOLDED = ("finished", "waiting", "interrupted")
"""States whose cells share a row where there is no room, in this order."""
CLOSING_ROWS = 40
STYLES = {"running": "cyan", "failed": "red", "finished": "green", "interrupted": "yellow"}


class Progress(NamedTuple):
    """How far a cell is."""

    iterations: int
    metrics: dict[str, Any] | None
    """Of the last iteration, if there was one."""
    seconds: float | None
    """Of an iteration, recently."""

    @property
    def done(self) -> int:
        return self.metrics["iteration"] if self.metrics else 0

    @property
    def left(self) -> float | None:
        """Seconds to go."""
        return None if self.seconds is None else (self.iterations - self.done) * self.seconds


class SweepDisplay(Screen[Live]):
    """Called with the status of all cells, again and again."""

    seconds = 10.0

    def __init__(self, console: Console, sweep: SweepDirectory, jobs: int) -> None:
        live = Live(console=console, refresh_per_second=4, transient=True)
        super().__init__(live if console.is_terminal else None)
        self._console, self._sweep, self._jobs = console, sweep, max(1, jobs)
        self._finished: dict[str, Progress] = {}
        self._states: dict[str, str] = {}

    def __call__(self, statuses: dict[str, CellStatus]) -> None:
        if self._live:
            self._live.update(self.table(statuses, rows=max(3, self._console.height - 6)))
            return
        for name, status in statuses.items():
            if self._states.get(name, "waiting") != status.state:
                reason = f": {status.reason}" if status.reason else ""
                self._say(f"{name}  {status.state}{reason}")
            self._states[name] = status.state
        if self._is_due():
            self._say(self.headline(statuses))

    def progress(self, name: str, status: CellStatus) -> Progress:
        if name in self._finished:
            return self._finished[name]
        found = read_progress(self._sweep, name)
        if status.state == "finished":
            self._finished[name] = found
        return found

    def headline(self, statuses: dict[str, CellStatus]) -> str:
        counts: Counter[str] = Counter(status.state for status in statuses.values())
        parts = [f"{counts['finished']} of {len(statuses)} cells finished"]
        parts += [f"{counts[state]} {state}" for state in ORDER[:-1] if counts[state]]
        left = self.left(statuses)
        return ", ".join(parts) + (f", about {clock(left)} left" if left else "")

    def left(self, statuses: dict[str, CellStatus]) -> float | None:
        """Seconds to go, guessed from the speed of the cells that have begun."""
        found = {name: self.progress(name, status) for name, status in statuses.items()}
        speeds = [p.seconds for p in found.values() if p.seconds is not None]
        if not speeds:
            return None
        usual = sum(speeds) / len(speeds)
        to_go = [
            (found[name].iterations - found[name].done) * (found[name].seconds or usual)
            for name, status in statuses.items()
            if status.state in ("running", "interrupted", "waiting")
        ]
        return max(sum(to_go) / self._jobs, max(to_go)) if to_go else 0.0

    def has_results(self, statuses: dict[str, CellStatus]) -> bool:
        """Whether a report could be made: some cell has an iteration."""
        return any(self.progress(name, status).done for name, status in statuses.items())

    def table(self, statuses: dict[str, CellStatus], rows: int = CLOSING_ROWS) -> Table:
        """What runs and what failed first. Where there are more cells than rows, those that are
        finished, and then those that wait, are counted in one row."""
        table = Table(title=self.headline(statuses))
        columns = ["cell", "state", "iteration", "return", "cost (limit)"]
        if any(status.state == "running" for status in statuses.values()):
            columns.append("time left")
        for column in columns:
            right = column in ("iteration", "return", "time left")
            table.add_column(column, justify="right" if right else "left", overflow="fold")
        shown, folded = chosen(statuses, rows)
        for name in shown:
            status = statuses[name]
            row = self._row(status, self.progress(name, status))
            table.add_row(name, *row[: len(columns) - 1])
        for state, count in folded.items():
            words = Text(state, STYLES.get(state, ""))
            table.add_row(f"{count} cells", words, *[""] * (len(columns) - 2))
        return table

    def _row(self, status: CellStatus, progress: Progress) -> tuple[str | Text, ...]:
        state = status.state
        shown = Text(state, STYLES.get(state, ""))
        if status.reason:
            shown.append(f": {visible(status.reason)}", "default")
        metrics = progress.metrics
        left = progress.left if state in ("running", "interrupted") else None
        return (
            shown,
            f"{progress.done}/{progress.iterations}",
            number(metrics["return"]) if metrics else "",
            costs(metrics) if metrics else "",
            "" if left is None else clock(left),
        )


def chosen(statuses: dict[str, CellStatus], rows: int) -> tuple[list[str], Counter[str]]:
    """The cells that have a row of their own, and how many of each state have one together."""
    shown = sorted(statuses, key=lambda name: ORDER.index(statuses[name].state))
    folded: Counter[str] = Counter()
    for state in FOLDED:
        if len(shown) + len(folded) > rows:
            mine = [name for name in shown if statuses[name].state == state]
            shown = [name for name in shown if statuses[name].state != state]
            folded.update({state: len(mine)} if mine else {})
    room = max(1, rows - len(folded))
    for name in shown[room:]:  # what runs comes before what failed
        folded[statuses[name].state] += 1
    return shown[:room], folded


def costs(metrics: dict[str, Any]) -> str:
    """Each cost against its limit, by name where there are several."""
    parts, names = [], cost_names(metrics)
    for name in names:
        cost, limit = metrics[f"cost/{name}"], metrics[f"limit/{name}"]
        called = f"{name} " if len(names) > 1 else ""
        parts.append(f"{called}{against(cost, limit)}")
    return "  ".join(parts)


def read_progress(sweep: SweepDirectory, name: str) -> Progress:
    """From the last lines of a run's files; the run may be on another machine."""
    metrics, timings = RunDirectory(sweep.run_path(name)).latest()
    recent = [t["rollout_seconds"] + t["update_seconds"] for t in timings[-10:]]
    seconds = sorted(recent)[len(recent) // 2] if recent else None
    return Progress(sweep.cells[name].iterations, metrics[-1] if metrics else None, seconds)
