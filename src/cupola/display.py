"""What a person sees: progress while training, tables afterwards."""

from __future__ import annotations

import math
import time
from typing import Any, Generic, Self, TypeVar

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from cupola.evaluation import Evaluation, Interval
from cupola.runs.directory import Record
from cupola.tasks.base import TaskSpec
from cupola.types import Cost

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
    """Return, each cost against its limit and its price, on one line."""
    parts = [f"return {number(metrics['return'])}"]
    for name in cost_names(metrics):
        cost, limit = metrics[f"cost/{name}"], metrics[f"limit/{name}"]
        sign = "?" if cost is None else "<=" if cost <= limit else ">"
        price = metrics.get(f"nu/{name}")
        nu = "" if price is None else f" (nu {price:.3f})"
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


def evaluation_table(result: Evaluation) -> Table:
    kind = "deterministic" if result.deterministic else "sampled"
    table = Table(title=f"{result.episodes} episodes, {kind} actions")
    for column in ("", "mean", "95 % interval", "limit", "safe episodes"):
        table.add_column(column, justify="left" if column == "" else "right")
    table.add_row("return", number(result.returns.mean), span(result.returns), "", "")
    table.add_row("episode length", number(result.lengths.mean), span(result.lengths), "", "")
    for name, cost in result.costs.items():
        share = f"{100 * cost.safe_share:.0f} %"
        value = cost.value
        table.add_row(f"cost {name}", number(value.mean), span(value), number(cost.limit), share)
        plain = cost.undiscounted
        if plain != value:
            table.add_row(f"cost {name}, undiscounted", number(plain.mean), span(plain), "", "")
    return table


def span(value: Interval) -> str:
    if math.isinf(value.low):
        return "one episode"
    return f"[{number(value.low)}, {number(value.high)}]"


def task_table(specs: dict[str, TaskSpec]) -> Table:
    table = Table(title="tasks")
    for column in ("task", "obs", "act", "costs (limit on their return)", "also measured"):
        table.add_column(column, justify="right" if column in ("obs", "act") else "left")
    for name, spec in specs.items():
        bound = ", ".join(describe(cost) for cost in spec.costs if cost.limit is not None)
        free = ", ".join(cost.name for cost in spec.costs if cost.limit is None)
        table.add_row(name, str(spec.obs_size), str(spec.act_size), bound, free)
    return table


def describe(cost: Cost) -> str:
    return f"{cost.name} <= {cost.limit:g}{' discounted' if cost.discounted else ''}"


def bench_table(result: dict[str, Any]) -> Table:
    what = f"{result['task']}: whole iterations of {result['algorithm']}"
    table = Table(title=f"{what}, {result['threads']} thread(s)")
    table.add_column("")
    table.add_column("steps/s", justify="right")
    table.add_column("seconds an iteration", justify="right")
    whole = result["rollout_seconds"] + result["update_seconds"]
    rows = (
        ("training", result["steps_per_second"], whole),
        ("  rollout", None, result["rollout_seconds"]),
        ("  update", None, result["update_seconds"]),
        ("physics ceiling", result["physics_steps_per_second"], result["physics_seconds"]),
        ("  of standing robots", None, result["standing_seconds"]),
    )
    for label, speed, seconds in rows:
        table.add_row(label, "" if speed is None else f"{speed:,.0f}", f"{seconds:.3f}")
    table.add_row("training / ceiling", f"{100 * result['ratio']:.0f} %", "")
    table.add_row("  of standing robots", f"{100 * result['standing_ratio']:.0f} %", "")
    return table


def theory_tables(record: Record) -> list[Table]:
    """The claims on dense and on sparse cases, and exact CUP against the optimum."""
    tables = []
    for family in ("dense", "sparse"):
        rows = record[family]
        table = Table(title=f"{rows[0]['cases']} {family} random cases")
        headings = ("claim", "version", "violated", "worst", "tightness", "vacuous")
        for column in headings:
            left = column in ("claim", "version")
            table.add_column(column, justify="left" if left else "right")
        for row in rows:
            tight = row["median_tightness"]
            shown = "" if tight is None else f"{tight:.3f}" if tight >= 0.01 else f"{tight:.1e}"
            table.add_row(
                row["claim"],
                row["version"],
                str(row["violations"]),
                f"{row['worst_violation']:.3g}" if row["violations"] else "",
                shown,
                f"{100 * row['vacuous']:.0f} %",
            )
        tables.append(table)
    table = Table(title="exact CUP against the linear programme")
    sizes = ("cmdps", "solved", "states", "actions", "costs")
    for column in (*sizes, "worst gap", "worst violation"):
        table.add_column(column, justify="right")
    for row in record["exact_cup"]:
        worst = (row["worst_gap"], max(row["worst_violation"], 0.0))
        counts = (str(row[key]) for key in sizes)
        table.add_row(*counts, *(f"{100 * x:.3g} %" for x in worst))
    return [*tables, table]
