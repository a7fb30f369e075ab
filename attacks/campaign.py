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

    def spent(kind: str) -> float:
        """With the tries that are still going on, as long as they usually take."""
        tally = tallies[kind]
        if tally.tries:
            usual[kind] = tally.seconds / tally.tries
        running = begun[kind] - tally.tries
        return (tally.seconds + running * usual[kind]) / kinds[kind].SHARE

    while time.monotonic() < end:
        kind = min(kinds, key=spent)
        yield kind, seed * SEEDS_APART + begun[kind]
        begun[kind] += 1


def for_tries(kinds: dict[str, ModuleType], tries: int, seed: int) -> Plan:
    """So many tries of every kind, with consecutive seeds."""
    return itertools.product(kinds, range(seed, seed + tries))


Tallies = defaultdict[str, Tally]
Tell = Callable[[Result, Tallies], None]


def run(
    kinds: dict[str, ModuleType], plan: Plan, jobs: int, library: Path, tallies: Tallies, tell: Tell
) -> None:
    """Work through the plan, ``jobs`` tries at a time."""
    idle: dict[bool, list[Lane]] = {True: [], False: []}
    busy: list[tuple[Lane, bool]] = []
    more = True
    try:
        while more or busy:
            while more and len(busy) < jobs:
                following = next(plan, None)
                if following is None:
                    more = False
                    break
                kind, seed = following
                warm = kinds[kind].WARM
                lane = idle[warm].pop() if idle[warm] else Lane(warm, library)
                lane.start(kind, seed, kinds[kind].SECONDS)
                busy.append((lane, warm))
            wait([lane.line for lane, _ in busy if lane.alive], timeout=0.5)
            for lane, warm in list(busy):
                result = lane.poll()
                if result is None:
                    continue
                busy.remove((lane, warm))
                tallies[result.kind].add(result)
                tell(result, tallies)
                if lane.alive and not lane.worn:
                    idle[warm].append(lane)
                elif lane.alive:
                    lane.close()
    finally:
        for lane in (*idle[True], *idle[False], *(lane for lane, _ in busy)):
            lane.close()
