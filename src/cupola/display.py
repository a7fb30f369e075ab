"""What commands share on the screen: progress, numbers, the closing table of a training."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from cupola.output import showable, visible
from cupola.steadiness import Steadiness, measure, tenth, verdict

if TYPE_CHECKING:  # numbers can be shown without waiting for JAX
    from cupola.runs.schema import Record

Shown = TypeVar("Shown", Progress, Live)


class Terminal(Console):
    """Standard output; texts are shown as they are, whatever rich would make of them."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        # Before the layout: a stand-in may be longer.
        return super().render_str(showable(visible(text), self.encoding), **options)

    @property
    def is_utf8(self) -> bool:
        return self.encoding.startswith("utf")


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

    def _say(self, line: str) -> None:
        print(visible(line), flush=True)

    def _is_due(self, last: bool = False) -> bool:
        """Whether it is time for another plain line; the ``last`` one always is."""
        if not last and time.monotonic() - self._printed <= self.seconds:
            return False
        self._printed = time.monotonic()
        return True


def counting_bar(console: Console) -> Progress | None:
    """A bar, how much of how much is done, and a text; None where there is no terminal."""
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
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
            self._say(f"{done:{width}}/{self._iterations}  {line}")


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
            self._say(f"{done}/{total}  {title}")


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
    """With one decimal: digits stand still while it changes."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def three_digits(value: float) -> str:
    """With about three digits, however small it is."""
    if math.isnan(value):
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def summary(metrics: list[Record], timings: list[Record], finished: bool) -> Group:
    """First and last tenth of a run side by side, and how steadily its limits are held."""
    from cupola.runs.directory import column

    size = tenth(len(metrics))
    first, last = metrics[:size], metrics[-size:]
    iterations = f"{len(metrics)} iterations" if finished else f"{len(metrics)} iterations so far"
    table = Table(title=f"{iterations}, {metrics[-1]['steps']:,} steps")
    table.add_column("", overflow="fold")
    for heading in ("first tenth", "last tenth", "limit", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    rows = [("return", "return"), ("episode length", "length")]
    for label, key in rows:
        table.add_row(label, number(mean(first, key)), number(mean(last, key)), "", "")
    limits: dict[str, Steadiness] = {}
    for name in cost_names(metrics[-1]):
        costs, errors = (column(metrics, f"{kind}/{name}") for kind in ("cost", "cost_error"))
        limits[name] = held = measure(costs, errors, metrics[-1][f"limit/{name}"])
        numbers = (mean(first, f"cost/{name}"), held.mean, held.limit)
        table.add_row(f"cost {name}", *map(number, numbers), verdict(held))
        nu = f"nu/{name}"
        if nu in metrics[-1]:
            table.add_row(f"nu {name}", f"{mean(first, nu):.3f}", f"{mean(last, nu):.3f}", "", "")
    speeds = sorted(record["steps_per_second"] for record in timings)
    if speeds:
        table.add_row("steps/s (median)", "", number(speeds[len(speeds) // 2]), "", "")
    return Group(table, steadiness_table(limits)) if limits else Group(table)


def steadiness_table(limits: dict[str, Steadiness]) -> Table:
    """One line for each cost; `cupola.steadiness` has the definitions."""
    table = Table(title="steadiness over the last tenth; violation of the whole run")
    table.add_column("cost", overflow="fold")
    for heading in ("deviation", "sampling error", "above 1.1 limit", "violation"):
        table.add_column(heading, justify="right")
    for name, held in limits.items():
        deviation, error, violation = map(
            three_digits, (held.deviation, held.error, held.violation)
        )
        table.add_row(name, deviation, error, percent(held.share_above), violation)
    return table


def mean(records: list[Record], key: str) -> float | None:
    known = [record[key] for record in records if record.get(key) is not None]
    return sum(known) / len(known) if known else None
