"""Reports of several sources: a sweep finished on another day, from its committed curves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.reports import curves
from cupola.reports.merge import load, merge
from cupola.reports.results import Results
from cupola.reports.results import load as load_results
from cupola.sweeps.directory import SweepDirectory

pytestmark = pytest.mark.usefixtures("no_figures")

SWEEP = """
iterations = 30
algorithms = ["cup", "ppo_lag"]
tasks = ["HopperSpeed"]
seeds = 2
[grid]
limit = [20, 30]
"""


@pytest.fixture
def whole(tmp_path: Path, synthetic_sweep: Callable[..., None]) -> Path:
    synthetic_sweep(tmp_path / "whole", SWEEP)
    return tmp_path / "whole"


def forget(sweep: Path, names: list[str]) -> None:
    """As if these cells had not been trained here yet."""
    for name in names:
        shutil.rmtree(sweep / name)


def write_curves(sweep: Path, names: list[str], file: Path) -> None:
    runs = [run for run in load_results(sweep).runs if run.name in names]
    file.write_bytes(curves.encode(Results("old", runs)))


def test_a_sweep_in_two_halves_gives_the_report_of_the_whole(
    whole: Path, tmp_path: Path, command
) -> None:
    names = list(SweepDirectory.open(whole).cells)
    assert command("report", whole, "--out", tmp_path / "a.html")[0] == 0
    write_curves(whole, names[:5], tmp_path / "old.csv.gz")
    forget(whole, names[:5])
    page = tmp_path / "b.html"
    status, out, err = command("report", whole, tmp_path / "old.csv.gz", "--out", page)
    assert (status, err) == (0, "")
    assert out == f"{page}, with figures, tables and curves in {tmp_path / 'b'}\n"
    for name in ("summary.md", "performance.csv", "steadiness.csv", "safety.csv", "aggregate.csv"):
        ours, theirs = (tmp_path / part / "tables" / name for part in ("b", "a"))
        assert ours.read_bytes() == theirs.read_bytes()
    curve_files = [tmp_path / part / "curves.csv.gz" for part in ("b", "a")]
    assert curve_files[0].read_bytes() == curve_files[1].read_bytes()
    assert "8 runs (8 finished)" in page.read_text()


def test_of_a_cell_in_both_the_run_is_taken_and_that_is_said(
    whole: Path, tmp_path: Path, command
) -> None:
    names = list(SweepDirectory.open(whole).cells)
    results = load_results(whole)
    for run in results.runs:
        run.curves["return"] += 1000.0  # another training of the same cell
    (tmp_path / "old.csv").write_bytes(curves.encode(results))
    forget(whole, names[:2])
    sources = [load(tmp_path / "old.csv"), load(whole)]
    expected = f"6 cells are in both {whole} and {tmp_path / 'old.csv'}: taken from {whole}."
    for order in (sources, sources[::-1]):
        found, said = merge(order)
        assert said == [expected]
        assert [run.name for run in found.runs] == names
        assert found.title == order[0].results.title
        is_old = [np.nanmax(run.curves["return"]) > 900 for run in found.runs]
        assert is_old == [True] * 2 + [False] * 6
    page = tmp_path / "page.html"
    status, out, err = command("report", tmp_path / "old.csv", whole, "--out", page)
    assert (status, err, out.splitlines()[0]) == (0, "", expected)


def test_of_two_files_the_first_is_taken(whole: Path, tmp_path: Path) -> None:
    names = list(SweepDirectory.open(whole).cells)
    one, two = tmp_path / "one.csv.gz", tmp_path / "two.csv.gz"
    write_curves(whole, names[:3], one)
    write_curves(whole, names[2:], two)
    found, said = merge([load(one), load(two)])
    assert [run.name for run in found.runs] == names
    assert said == [f"1 cell is in both {one} and {two}: taken from {one}."]


def test_what_is_damaged_here_comes_from_the_file(whole: Path, tmp_path: Path, command) -> None:
    names = list(SweepDirectory.open(whole).cells)
    write_curves(whole, names, tmp_path / "old.csv.gz")
    lines = (whole / names[0] / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (whole / names[0] / "metrics.jsonl").write_bytes(b"".join(lines[1:]))
    found, said = merge([load(whole), load(tmp_path / "old.csv.gz")])
    assert [one.name for one in found.left_out] == [names[0]]
    assert sorted(run.name for run in found.runs) == sorted(names)
    assert said[0].startswith("7 cells are in both")


@pytest.mark.parametrize(
    ("old", "new", "what"), [("= 30", "= 20", "iterations"), ("[grid]\nlimit = [20, 30]\n", "", "")]
)
def test_seeds_that_were_trained_differently_are_not_mixed(
    tmp_path: Path, synthetic_sweep: Callable[..., None], old: str, new: str, what: str
) -> None:
    text = SWEEP.replace("limit = [20, 30]", "limit = [20]") if what else SWEEP.replace(old, new)
    synthetic_sweep(tmp_path / "one", text)
    other = text.replace(old, new) if what else text + "[shared]\nlimit = 30\n"
    synthetic_sweep(tmp_path / "two", other)
    names = list(SweepDirectory.open(tmp_path / "one").cells)
    forget(tmp_path / "one", [name for name in names if name.endswith("0")])
    forget(tmp_path / "two", [name for name in names if name.endswith("1")])
    with pytest.raises(CupolaError, match=f"has other {what or 'limits'} in .*: report them apart"):
        merge([load(tmp_path / "one"), load(tmp_path / "two")])


def test_nothing_named_is_one_sentence(complaint) -> None:
    assert "say what to report" in complaint("report")
