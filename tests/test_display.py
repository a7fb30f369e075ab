"""The closing table of a training: numbers by hand, and how it looks on a narrow terminal."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console

from cupola.display import number, percent, summary, three_digits

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
