"""A campaign: tries of all kinds for a while, and the table of what happened."""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType

from attacks.lanes import Lane, Result

SEEDS_APART = 1_000_000
"""Campaigns of neighbouring seeds share no try."""


@dataclass
class Tally:
    """What became of the tries of one kind."""

    tries: int = 0
    seconds: float = 0.0
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.tries += 1
        self.seconds += result.seconds
        if result.failure:
            self.failures.append(result)

    @property
    def survived(self) -> int:
        return self.tries - len(self.failures)


Plan = Iterator[tuple[str, int]]
"""Kinds and seeds of the tries to come."""


def for_minutes(kinds: dict[str, ModuleType], minutes: float, seed: int, tallies: Tallies) -> Plan:
    """Always a try of the kind that has had the least of its share of the time."""
    end = time.monotonic() + 60 * minutes
    begun: Counter[str] = Counter()
    usual = dict.fromkeys(kinds, 2.0)

    def running(kind: str) -> int:
        return begun[kind] - tallies[kind].tries

    def spent(kind: str) -> float:
        """With the tries that are still going on, as long as they usually take."""
        tally = tallies[kind]
        if tally.tries:
            usual[kind] = tally.seconds / tally.tries
        return (tally.seconds + running(kind) * usual[kind]) / kinds[kind].SHARE

    while time.monotonic() < end:
        free = [kind for kind in kinds if not (is_alone(kinds[kind]) and running(kind))]
        kind = min(free or kinds, key=spent)
        yield kind, seed * SEEDS_APART + begun[kind]
        begun[kind] += 1


def is_alone(kind: ModuleType) -> bool:
    return getattr(kind, "ALONE", False)


def for_tries(kinds: dict[str, ModuleType], tries: int, seed: int) -> Plan:
    """So many tries of every kind, with consecutive seeds."""
    return itertools.product(kinds, range(seed, seed + tries))


Tallies = defaultdict[str, Tally]
Tell = Callable[[Result, Tallies], None]


def run(
    kinds: dict[str, ModuleType], plan: Plan, jobs: int, library: Path, tallies: Tallies, tell: Tell
) -> None:
    """Work through the plan, ``jobs`` tries at a time."""
    idle: defaultdict[tuple[bool, str], list[Lane]] = defaultdict(list)
    busy: list[tuple[Lane, tuple[bool, str]]] = []
    following = next(plan, None)
    try:
        while following or busy:
            while following and len(busy) < jobs:
                kind, seed = following
                alone = is_alone(kinds[kind])
                sort = (kinds[kind].WARM, kind if alone else "")
                if alone and any(other == sort for _, other in busy):
                    break
                lane = idle[sort].pop() if idle[sort] else Lane(sort[0], library)
                lane.start(kind, seed, kinds[kind].SECONDS)
                busy.append((lane, sort))
                following = next(plan, None)
            wait([lane.line for lane, _ in busy], timeout=0.5)
            for lane, sort in list(busy):
                result = lane.poll()
                if result is None:
                    continue
                busy.remove((lane, sort))
                tallies[result.kind].add(result)
                tell(result, tallies)
                if lane.alive and not lane.worn:
                    idle[sort].append(lane)
                elif lane.alive:
                    lane.close()
    finally:
        for lane in (*(lane for lanes in idle.values() for lane in lanes), *(b[0] for b in busy)):
            lane.close()
