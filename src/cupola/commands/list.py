"""`cupola list`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupola import algos, tasks, zoo
from cupola.commands.parsing import parse
from cupola.tasks.base import TaskSpec
from cupola.types import Cost


@dataclass(frozen=True)
class ListArgs:
    """Algorithms with their presets; tasks with sizes, costs and default limits; the zoo."""


def run(args: Sequence[str]) -> None:
    parse(ListArgs, args, "list")
    print("algorithms (presets in brackets, the default first)")
    for name in algos.names():
        print(f"  {name:<9} {algos.summary(name)} [{', '.join(algos.presets(name))}]")
    print("\ntasks (numbers of an observation, of an action; costs with limits; also measured)")
    for title, specs in tasks.families().items():
        print(f"\n  {title}")
        for spec in specs:
            print(f"    {row(spec)}")
    print(
        "\n  Names of Safety-Gymnasium work as well: SafetyPointGoal1-v0.\n"
        "\n  Your own environments (docs/tasks/gymnasium.md)\n"
        "    gym:ID                         any that gymnasium.make knows: gym:Pendulum-v1\n"
        "    env:package.module:function    any that a function of yours makes"
    )
    for line in zoo_lines():
        print(line)


def zoo_lines() -> list[str]:
    """The trained policies that come with cupola; nothing where there are none."""
    if not zoo.names():
        return []
    title = "zoo: trained policies, for example cupola eval zoo:NAME (return; costs with limits)"
    return ["", title, *(f"  {card_line(name)}" for name in zoo.names())]


def card_line(name: str) -> str:
    card = zoo.card(name)
    found = card["evaluation"]["sampled"]
    costs = (f"{k} {c['mean']:.4g} <= {c['limit']:g}" for k, c in found["costs"].items())
    return f"{zoo.PREFIX + name:<28} {found['return']['mean']:.4g}; {', '.join(costs)}"


def row(spec: TaskSpec) -> str:
    limited = ", ".join(describe(cost) for cost in spec.costs if cost.limit is not None)
    free = ", ".join(cost.name for cost in spec.costs if cost.limit is None)
    costs = f"{limited}; {free}" if free else limited
    return f"{spec.name:<28} {spec.obs_size:>3} {spec.act_size:>2}  {costs}"


def describe(cost: Cost) -> str:
    return f"{cost.name} <= {cost.limit:g}{' discounted' if cost.discounted else ''}"
