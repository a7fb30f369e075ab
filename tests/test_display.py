"""The closing table of a training: numbers by hand, and how it looks on a narrow terminal."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from rich.console import Console

from cupola import display
from cupola.config import resolve
from cupola.display import (
    CountDisplay,
    ProgressDisplay,
    against,
    number,
    percent,
    summary,
    three_digits,
)
from cupola.tasks import spec_of

Record = dict[str, Any]


def shown(metrics: list[Record], width: int = 80) -> str:
    out = io.StringIO()
    timings = [{"steps_per_second": 12_345.6}]
    Console(file=out, width=width).print(summary(metrics, timings, finished=True))
    return out.getvalue()


def rows(out: str) -> dict[str, list[str]]:
    """The cells of each row by the first of them."""
    found = [re.split("[│┃]", line)[1:-1] for line in out.splitlines() if line[:1] in "│┃"]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in found}


def records(costs: list[float | None], errors: list[float | None], limit: float) -> list[Record]:
    return [
        {"steps": 5000 * (i + 1), "return": 10.0 * i, "length": 1000.0}
        | {"cost/speed": cost, "cost_error/speed": error, "limit/speed": limit, "nu/speed": 0.5}
        for i, (cost, error) in enumerate(zip(costs, errors, strict=True))
    ]


def test_the_table_by_hand() -> None:
    """Forty iterations, so a tenth is four of them."""
    costs = [None, 20.0, 30.0, 40.0, *[10.0] * 32, 9.0, 11.0, 9.0, 11.0]
    errors = [None, *[7.0] * 35, 1.0, 1.0, 1.0, 5.0]
    table = rows(shown(records(costs, errors, 10.0)))
    assert table["return"] == ["15.0", "375.0", "", ""]
    # sqrt(4/3) is more than 8 % of 10, and less than 1.5 sqrt(28/4); none is above 11.
    assert table["cost speed"] == ["30.0", "10.0", "10.0", "held"]
    assert table["speed"] == ["1.15", "2.65", "0 %", "62"]
    assert table["steps/s (median)"] == ["", "12,346", "", ""]


def test_a_limit_that_is_held_on_average() -> None:
    costs = [10.0] * 38 + [5.0, 15.0]
    table = rows(shown(records(costs, [0.1] * 40, 10.0)))
    assert table["cost speed"][3] == "held on average"
    assert table["speed"] == ["4.08", "0.1", "25 %", "5"]


def test_lines_of_an_earlier_version_have_no_errors() -> None:
    """A run of 40 iterations that this version has resumed for its last two."""
    metrics = records([10.0] * 40, [2.0] * 40, 10.0)
    for record in metrics[:-2]:
        del record["cost_error/speed"]
    assert rows(shown(metrics))["speed"] == ["0", "2", "0 %", "0"]
    for record in metrics:
        record.pop("cost_error/speed", None)
    assert rows(shown(metrics))["speed"] == ["0", "-", "0 %", "0"]


def test_before_the_first_episode_and_without_costs() -> None:
    nothing = records([None], [None], 10.0)
    table = rows(shown(nothing))
    assert table["cost speed"] == ["-", "-", "10.0", "-"]
    assert table["speed"] == ["-", "-", "-", "0"]
    free = [{"steps": 5000, "return": 1.0, "length": 10.0}]
    assert "violation" not in shown(free)


def test_it_fits_into_80_columns() -> None:
    metrics = records([123_456.7, 54_321.0], [1234.5] * 2, 50_000.0)
    for record in metrics:
        for kind in ("cost", "cost_error", "limit", "nu"):
            record[f"{kind}/a_cost_with_a_long_name"] = record[f"{kind}/speed"]
    lines = shown(metrics).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_numbers_as_text() -> None:
    assert [number(value) for value in (None, float("nan"), 0.25, 12.34, 1234.5)] == [
        *("-", "-", "0.2", "12.3", "1,234")
    ]
    assert [three_digits(value) for value in (float("nan"), 0.012345, 12.345, 123.45, -4321.0)] == [
        *("-", "0.0123", "12.3", "123.5", "-4,321")
    ]
    assert [percent(share) for share in (float("nan"), 0.0, 0.04, 1.0)] == [
        "-",
        "0 %",
        "4 %",
        "100 %",
    ]


# --- The progress of a training ---


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def line(iteration: int, costs: int) -> Record:
    found: Record = {"iteration": iteration, "steps": iteration * 5000, "return": 1234.5}
    for name in ("speed", "effort")[:costs]:
        found |= {f"cost/{name}": 1080.1, f"limit/{name}": 82.7, f"nu/{name}": 0.123}
    return found


def progress(width: int, costs: int, done: int, monkeypatch) -> list[str]:
    """What is shown after each of three iterations of ten seconds; the first takes a minute."""
    clock = Clock()
    monkeypatch.setattr(display, "time", clock)
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    shown = ProgressDisplay(console)
    config = resolve("cup", spec_of("HopperSpeed"), None, None, {"batch_size": 5000, "num_envs": 1})
    shown.begin(config, done)
    try:
        found = [shown._line(width)]
        for number, seconds in enumerate((60, 10, 10), done + 1):
            clock.now += seconds
            shown(line(number, costs), {"steps_per_second": 5000 / seconds})
            found.append(shown._line(width))
        shown.stopping()
        found.append(shown._line(width))
    finally:
        shown.__exit__(None)
    return found


@pytest.mark.parametrize("width", [60, 80, 100, 130, 200])
@pytest.mark.parametrize("costs", [0, 1, 2])
def test_iteration_and_time_left_are_always_there(width, costs, monkeypatch):
    before, first, second, third, stopping = progress(width, costs, 0, monkeypatch)
    assert before == "  0/500  compiling ..."
    # Compiling says nothing of the iterations to come.
    assert "left" not in first
    assert "2/500  1:23:00 left  return 1,234" in second  # 498 times 10 s
    assert "3/500  1:22:50 left  return 1,234" in third
    assert stopping.startswith("  3/500  stopping after this iteration")


def test_the_bar_goes_first_then_speed_then_multipliers(monkeypatch):
    shown = {width: progress(width, 2, 0, monkeypatch)[-2] for width in range(60, 200)}
    parts = {
        width: ("│" in text, "steps/s" in text, "nu 0.123" in text) for width, text in shown.items()
    }
    order = [(False, False, False), (False, False, True), (False, True, True), (True, True, True)]
    ranks = [order.index(part) for part in parts.values()]
    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2, 3}
    assert "500 steps/s" in shown[199]  # 5000 in ten seconds
    assert all(len(text) <= width for width, text in shown.items() if width >= 80)
    assert "speed 1,080 > 82.7  effort 1,080 > 82.7" in shown[80]


def test_a_resumed_run_begins_where_it_is(monkeypatch):
    before, *_, third, _ = progress(80, 1, 120, monkeypatch)
    assert before == "120/500  compiling ..."
    assert third.startswith("123/500  1:02:50 left")


@pytest.mark.parametrize(
    ("cost", "limit", "shown"),
    [
        (71.44, 82.748, "71.4 <= 82.7"),
        (0.213, 0.2, "0.213 > 0.200"),
        (1.999, 2.0, "2.00 <= 2.00"),
        (0.50003, 0.5, "0.50003 > 0.50000"),
        (3.0, 0.0, "3.0 > 0.0"),
        (12.0, math.inf, "12.0 <= inf"),
        (None, 25.0, "- ? 25.0"),
        (math.nan, 0.00123, "- ? 0.00123"),
    ],
)
def test_a_cost_has_the_decimals_of_its_limit(cost, limit, shown):
    assert against(cost, limit) == shown


def test_one_iteration_is_not_several():
    assert "1 iteration, 5,000 steps" in shown(records([1.0], [0.1], 5.0))
    assert "2 iterations, 10,000 steps" in shown(records([1.0, 1.0], [0.1, 0.1], 5.0))


def test_a_count_without_a_terminal_says_only_what_is_new(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountDisplay, "seconds", -1.0)
    with CountDisplay(Console(file=io.StringIO())) as progress:
        for done in (0, 0, 1, 1, 1, 4):
            progress("episodes", done, 4)
    assert capsys.readouterr().out == "0/4  episodes\n1/4  episodes\n4/4  episodes\n"
