"""What commands share on the screen: progress, numbers, the closing table of a training."""

from __future__ import annotations

import math
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from cupola.errors import CupolaError
from cupola.naming import counted
from cupola.output import showable, visible
from cupola.steadiness import Steadiness, measure, tenth, verdict

if TYPE_CHECKING:  # numbers can be shown without waiting for JAX
    from cupola.best import Standing
    from cupola.config import RunConfig
    from cupola.runs.schema import Record
    from cupola.training import Run

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


class ProgressDisplay(Screen[Live]):
    """The progress of a training, a `cupola.training.Watcher`; nothing is shown before it begins.

    The line keeps iteration and time left whatever the width: the bar goes first, then the speed,
    then the multipliers.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done = self._last = 0
        self._times: deque[float] = deque(maxlen=PACE)
        """When the last iterations ended: the first one of this process compiles."""
        self._speeds: deque[float] = deque(maxlen=PACE)
        self._metrics: Record | None = None
        self._is_stopping = False
        is_live = console.is_terminal
        super().__init__(Live(console=console, get_renderable=self._render) if is_live else None)

    def __enter__(self) -> Self:
        return self

    def begin(self, config: RunConfig, done: int) -> None:
        self._done, self._last = done, config.last
        if words := config.decay_in_words(done):
            self._console.print(words, soft_wrap=True)
        if self._live:
            self._live.start()
        else:
            self._say(self._count() + "  compiling ...")

    def __call__(self, metrics: Record, timings: Record) -> None:
        self._done, self._metrics = metrics["iteration"], metrics
        self._times.append(time.monotonic())
        self._speeds.append(timings["steps_per_second"])
        if not self._live and self._is_due(last=self._done == self._last):
            self._say(self._line(math.inf))

    def stopping(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            if not self._live:
                self._say(STOPPING)

    def _count(self) -> str:
        return f"{self._done:{len(str(self._last))}}/{self._last}"

    def _render(self) -> Text:
        line = self._line(self._console.width)
        return Text(showable(visible(line), self._console.encoding), no_wrap=True)

    def _line(self, width: float) -> str:
        """As much as fits, the most important first."""
        if self._is_stopping:
            return f"{self._count()}  {STOPPING}"
        if self._metrics is None:
            return f"{self._count()}  compiling ..."
        head, speed = self._count(), ""
        if len(self._times) > 1:
            each = (self._times[-1] - self._times[0]) / (len(self._times) - 1)
            head += f"  {clock(each * (self._last - self._done))} left"
            speed = f"  {median(self._speeds):,.0f} steps/s"
        full = f"{head}  {outcome(self._metrics)}{speed}"
        short = f"{head}  {outcome(self._metrics, multipliers=False)}"
        barred = f"{bar(self._done, self._last)}  {full}"
        lines = ([barred] if width < math.inf else []) + [full, full.removesuffix(speed), short]
        return next((line for line in lines if len(line) <= width), short)


PACE = 50
"""Iterations whose mean time says how much is left."""
STOPPING = "stopping after this iteration; once more to stop at once"


def bar(done: int, total: int, width: int = 20) -> str:
    return f"{'━' * (width * done // total):<{width}}│"


class CountDisplay(Screen[Progress]):
    """The progress of work that is counted, a bar for each title."""

    def __init__(self, console: Console) -> None:
        super().__init__(counting_bar(console))
        self._tasks: dict[str, TaskID] = {}
        self._printed = time.monotonic()  # what is done in a moment needs no line
        self._said: tuple[str, int] | None = None

    def __call__(self, title: str, done: int, total: int) -> None:
        if self._live:
            if title not in self._tasks:
                self._tasks[title] = self._live.add_task(title, total=total)
            self._live.update(self._tasks[title], completed=done)
        elif self._said != (title, done) and self._is_due():
            self._said = (title, done)
            self._say(f"{done}/{total}  {title}")


def outcome(metrics: Record, multipliers: bool = True) -> str:
    """Return, each cost against its limit and its Lagrange multiplier, on one line."""
    parts = [f"return {number(metrics['return'])}"]
    for name in cost_names(metrics):
        cost, limit = metrics[f"cost/{name}"], metrics[f"limit/{name}"]
        multiplier = metrics.get(f"nu/{name}") if multipliers else None
        nu = "" if multiplier is None else f" (nu {multiplier:.3f})"
        parts.append(f"{name} {against(cost, limit)}{nu}")
    return "  ".join(parts)


def cost_names(metrics: Record) -> list[str]:
    return [key.removeprefix("cost/") for key in metrics if key.startswith("cost/")]


def number(value: float | None, decimals: int = 1) -> str:
    """With one decimal: digits stand still while it changes."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{decimals}f}"


def decimals_of(limit: float) -> int:
    """How many a cost with this limit is shown with: 82.7, 2.00, 0.200."""
    if not 0 < abs(limit) < math.inf:
        return 1
    return min(max(1, 2 - math.floor(math.log10(abs(limit)))), 9)


def against(cost: float | None, limit: float) -> str:
    """A cost and its limit: 71.4 <= 82.7; as many decimals as it takes to see which is larger."""
    sign = "?" if cost is None or math.isnan(cost) else "<=" if cost <= limit else ">"
    decimals = decimals_of(limit)
    while sign == ">" and decimals < 9 and number(cost, decimals) == number(limit, decimals):
        decimals += 1
    return f"{number(cost, decimals)} {sign} {number(limit, decimals)}"


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


def summary_of(run: Run) -> Group:
    """The closing table of a run that has metrics."""
    from cupola.runs.directory import RunDirectory

    try:
        timings = RunDirectory.open(run.path).timings()
    except CupolaError:  # the directory has got another name since
        timings = []
    return summary(run.metrics, timings, run.finished, run.best)


def state_of(run: Run) -> str:
    """What a run that nothing was done to is, and how it can go on; nothing where that is plain."""
    if not run.finished or run.began < len(run.metrics):
        return ""
    done, asked = len(run.metrics), run.config.options.iterations
    state = (
        f"ended at iteration {done} of {asked} ({run.config.ended.reason})"
        if run.config.ended
        else f"already finished: all {done} iterations are done"
    )
    more = max(asked, 2 * done) if run.config.ended is None else asked
    return f"{state}; to train on: cupola resume {run.path} --iterations {more}"


def summary(
    metrics: list[Record], timings: list[Record], finished: bool, best: Standing | None = None
) -> Group:
    """First and last tenth of a run side by side, how steadily its limits are held, and how the
    policies did that it keeps."""
    from cupola.runs.directory import column

    size = tenth(len(metrics))
    first, last = metrics[:size], metrics[-size:]
    iterations = counted(len(metrics), "iteration") + ("" if finished else " so far")
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
        decimals = decimals_of(held.limit)
        shown = (number(value, decimals) for value in numbers)
        table.add_row(f"cost {name}", *shown, verdict(held))
        nu = f"nu/{name}"
        if nu in metrics[-1]:
            table.add_row(f"nu {name}", f"{mean(first, nu):.3f}", f"{mean(last, nu):.3f}", "", "")
    speeds = sorted(record["steps_per_second"] for record in timings)
    if speeds:
        table.add_row("steps/s (median)", "", number(speeds[len(speeds) // 2]), "", "")
    tables = [table, steadiness_table(limits)] if limits else [table]
    return Group(*tables, policies_table(metrics, best)) if best else Group(*tables)


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


def policies_table(metrics: list[Record], best: Standing) -> Table:
    """The best and the last policy, both by their last iterations up to then."""
    from cupola.best import WINDOW

    names = cost_names(metrics[-1])
    recent, end = metrics[-WINDOW:], metrics[-1]["iteration"]
    costs = [mean(recent, f"cost/{name}") for name in names]
    table = Table(title=f"policies kept; means of {WINDOW} iterations")
    for heading in ("checkpoint", "iteration", "return", *(f"cost {name}" for name in names)):
        left = heading == "checkpoint"
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    rows = (
        ("best", best.iteration, best.mean_return, best.costs),
        ("last", end, mean(recent, "return"), costs),
    )
    for label, iteration, value, found in rows:
        shown = (
            against(cost, metrics[-1][f"limit/{name}"])
            for name, cost in zip(names, found, strict=True)
        )
        table.add_row(label, str(iteration), number(value), *shown)
    return table


def mean(records: list[Record], key: str) -> float | None:
    known = [record[key] for record in records if record.get(key) is not None]
    return sum(known) / len(known) if known else None
