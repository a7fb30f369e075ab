"""`cupola list`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from cupola.commands.parsing import parse
from cupola.display import Terminal
from cupola.tasks.base import TaskSpec
from cupola.types import Cost


@dataclass(frozen=True)
class ListArgs:
    """Algorithms with their presets; tasks with sizes, costs and default limits."""


def run(args: Sequence[str]) -> None:
    parse(ListArgs, args, "list")
    from cupola import algos, tasks

    console = Terminal()
    console.print("algorithms", style="bold")
    for name in algos.names():
        module = algos.load_algorithm(name)
        title = (module.__doc__ or "").partition("\n")[0]
        console.print(
            f"  {name}  {title} Presets: {', '.join(module.PRESETS)}.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(task_table(tasks.specs()))


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
