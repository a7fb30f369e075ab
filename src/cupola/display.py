"""What commands share on the screen: progress, numbers, the closing table of a training."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

if TYPE_CHECKING:  # numbers can be shown without waiting for JAX
    from cupola.runs.directory import Record

Shown = TypeVar("Shown", Progress, Live)


class Screen(Generic[Shown]):
    """Something ``live`` in a terminal; where there is none, plain lines now and then."""

    seconds = 2.0
    """Between plain lines, at least."""

    def __init__(self, live: Shown | None) -> None:
        self._live: Shown | None = live
        self._printed = -math.inf

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def _is_due(self, last: bool = False) -> bool:
        """Whether it is time for another plain line; the ``last`` one always is."""
        if not last and time.monotonic() - self._printed <= self.seconds:
            return False
        self._printed = time.monotonic()
        return True


def counting_bar(console: Console) -> Progress | None:
    """A bar, how much of how much is done, and a text; None where there is no terminal."""
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console) if console.is_terminal else None


class ProgressDisplay(Screen[Progress]):
    """The progress of a training."""

    def __init__(self, console: Console, iterations: int) -> None:
        super().__init__(counting_bar(console))
        self._iterations = iterations
        self._speed = 0.0
        if self._live:
            self._task = self._live.add_task("compiling ...", total=iterations)

    def __call__(self, metrics: Record, timings: Record) -> None:
        done = metrics["iteration"]
        # Smoothed, because the first iteration compiles and machines are noisy.
        speed = timings["steps_per_second"]
        self._speed = 0.9 * self._speed + 0.1 * speed if self._speed > speed / 3 else speed
        left = metrics["steps"] / done * (self._iterations - done) / self._speed
        line = f"{outcome(metrics)}  {self._speed:,.0f} steps/s  {clock(left)} left"
        if self._live:
            self._live.update(self._task, completed=done, description=line)
        elif self._is_due(last=done == self._iterations):
            width = len(str(self._iterations))
            print(f"{done:{width}}/{self._iterations}  {line}", flush=True)


class CountDisplay(Screen[Progress]):
    """The progress of work that is counted, a bar for each title."""

    def __init__(self, console: Console) -> None:
        super().__init__(counting_bar(console))
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, title: str, done: int, total: int) -> None:
        if self._live:
            if title not in self._tasks:
                self._tasks[title] = self._live.add_task(title, total=total)
            self._live.update(self._tasks[title], completed=done)
        elif self._is_due(last=done == total):
            print(f"{done}/{total}  {title}", flush=True)


def outcome(metrics: Record) -> str:
    """Return, each cost against its limit and its Lagrange multiplier, on one line."""
    parts = [f"return {number(metrics['return'])}"]
    for name in cost_names(metrics):
        cost, limit = metrics[f"cost/{name}"], metrics[f"limit/{name}"]
        sign = "?" if cost is None else "<=" if cost <= limit else ">"
        multiplier = metrics.get(f"nu/{name}")
        nu = "" if multiplier is None else f" (nu {multiplier:.3f})"
        parts.append(f"{name} {number(cost)} {sign} {number(limit)}{nu}")
    return "  ".join(parts)


def cost_names(metrics: Record) -> list[str]:
    return [key.removeprefix("cost/") for key in metrics if key.startswith("cost/")]


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def summary(metrics: list[Record], timings: list[Record], finished: bool) -> Table:
    """First and last tenth of a run side by side."""
    tenth = max(1, len(metrics) // 10)
    first, last = metrics[:tenth], metrics[-tenth:]
    iterations = f"{len(metrics)} iterations" if finished else f"{len(metrics)} iterations so far"
    table = Table(title=f"{iterations}, {metrics[-1]['steps']:,} steps")
    for column in ("", "first tenth", "last tenth", "limit", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    rows = [("return", "return"), ("episode length", "length")]
    for label, key in rows:
        table.add_row(label, number(mean(first, key)), number(mean(last, key)), "", "")
    for name in cost_names(metrics[-1]):
        now, limit = mean(last, f"cost/{name}"), metrics[-1][f"limit/{name}"]
        verdict = "" if now is None else "held" if now <= limit else "exceeded"
        first_cost = number(mean(first, f"cost/{name}"))
        table.add_row(f"cost {name}", first_cost, number(now), number(limit), verdict)
        nu = f"nu/{name}"
        if nu in metrics[-1]:
            table.add_row(f"nu {name}", f"{mean(first, nu):.3f}", f"{mean(last, nu):.3f}", "", "")
    speeds = sorted(record["steps_per_second"] for record in timings)
    if speeds:
        table.add_row("steps/s (median)", "", number(speeds[len(speeds) // 2]), "", "")
    return table


def mean(records: list[Record], key: str) -> float | None:
    known = [record[key] for record in records if record.get(key) is not None]
    return sum(known) / len(known) if known else None
