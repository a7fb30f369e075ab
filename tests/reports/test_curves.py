"""One file of all curves: the report that it gives, and one sentence for every mistake in it."""

import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupola.cli import main
from cupola.errors import CupolaError
from cupola.reports import curves, formats, panels, tables
from cupola.reports.results import Results, RunResult, load
from cupola.sweeps import grid
from cupola.sweeps.directory import SweepDirectory

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "experiments" / "results").glob("*/curves.csv.gz"))
SWEEP = """
iterations = 12
algorithms = ["ppo_lag", { name = "cup, wide", algorithm = "cup", hidden = [8, 8] }]
tasks = ["HopperSpeed"]
seeds = 2
[grid]
limit = [20, 30.5]
preset = ["paper"]
[[override]]
where = { limit = 30.5 }
set = { limit = { speed = 80, effort = 40 } }
"""


@pytest.fixture
def sweep(tmp_path: Path, synthetic_sweep: Callable[..., None]) -> Path:
    """With a run that was cut short and one that failed before its first iteration."""
    path = tmp_path / "sweep"
    synthetic_sweep(path, SWEEP)
    directory = SweepDirectory.open(path)
    cut, failed, *_ = directory.cells
    (path / cut / "result.json").unlink()
    metrics = (path / cut / "metrics.jsonl").read_text()
    (path / cut / "metrics.jsonl").write_text("".join(metrics.splitlines(keepends=True)[:5]))
    for file in ("result.json", "metrics.jsonl", "timings.jsonl"):
        (path / failed / file).unlink()
    directory.record_failure(failed, "no memory")
    return path


def test_a_report_from_the_file_is_that_from_the_directory(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cupola.reports.charts.FORMATS", ("svg",))  # PNG takes as long again
    main(["report", str(sweep)])
    first, file = sweep / "report", sweep / "report" / "curves.csv.gz"
    main(["report", str(file), "--out", str(tmp_path / "again" / "page.html")])
    again = tmp_path / "again" / "page"
    for name in ("summary", "performance", "steadiness", "safety", "aggregate"):
        for suffix in ("csv", "md", "tex"):
            table = Path("tables", f"{name}.{suffix}")
            assert (again / table).read_bytes() == (first / table).read_bytes()
    figures = sorted(path.name for path in (first / "figures").iterdir())
    assert figures == sorted(path.name for path in (again / "figures").iterdir())
    assert "curves-HopperSpeed.svg" in figures
    for name in figures:
        assert (again / "figures" / name).read_bytes() == (first / "figures" / name).read_bytes()
    assert (again / "curves.csv.gz").read_bytes() == file.read_bytes()
    # What only the run directories know is left out.
    page = (tmp_path / "again" / "page.html").read_text()
    assert "<title>sweep</title>" in page
    whole = (sweep / "report.html").read_text()
    for title in ("Evaluation", "Timings", "Configuration and versions"):
        assert f"<h2>{title}</h2>" in whole
        assert f"<h2>{title}</h2>" not in page
    assert not (again / "tables" / "timings.csv").exists()
    assert "steps/s" not in (again / "tables" / "runs.csv").read_text()


def test_runs_come_back_as_they_were(sweep: Path, tmp_path: Path) -> None:
    results = load(sweep)
    file = tmp_path / "mine.csv"
    mark = b"\xef\xbb\xbf"  # spreadsheets put it in front
    file.write_bytes(mark + gzip.decompress(curves.encode(results)))
    found = curves.read(file)
    assert (found.title, found.varied) == ("mine", ["limit", "preset"])
    assert [run.state for run in found.runs[:3]] == ["interrupted", "failed", "finished"]
    for old, new in zip(results.runs, found.runs, strict=True):
        assert (new.name, new.series, new.point) == (old.name, old.series, old.point)
        assert (new.state, new.limits, new.seed) == (old.state, old.limits, old.seed)
        assert new.iterations == old.iterations
        for key, values in new.curves.items():
            np.testing.assert_array_equal(values, old.curves[key])


def test_the_columns(sweep: Path) -> None:
    """Names and order are what other programs rely on."""
    text = gzip.decompress(curves.encode(load(sweep))).decode()
    header, first, *_ = text.splitlines()
    assert header == (
        "algorithm,limit,preset,task,seed,iteration,steps,episodes,length,return,"
        "cost/speed,cost_error/speed,limit/speed,nu/speed,"
        "cost/effort,cost_error/effort,limit/effort,nu/effort,state"
    )
    start = "ppo_lag,20,paper,HopperSpeed,0,1,5000,5,1000,,,,20,0."
    assert first.startswith(start)
    assert first.endswith(",,,,,interrupted")
    assert '"cup, wide",30.5,paper,HopperSpeed,1,12,60000,' in text


def test_a_file_of_an_earlier_version_has_no_sampling_errors() -> None:
    """It is read as it is; a file with the column has them in every table of steadiness."""
    row = "cup,T,0,{},5000,5,1000,3.5,9.5,10,0.1,finished\n"
    old = [HEAD, *(row.format(i) for i in range(1, 31))]
    [run] = curves.decode(old)
    assert "cost_error/c" not in run.curves
    held = run.steadiness("c")
    assert (held.mean, held.deviation, held.violation) == (9.5, 0.0, 0.0)
    assert math.isnan(held.error)
    [known] = curves.decode(
        line.replace("cost/c,", "cost/c,cost_error/c,").replace(",9.5,", ",9.5,0.5,")
        for line in old
    )
    assert known.steadiness("c") == held._replace(error=0.5)
    [again] = curves.decode(unpacked([run]))  # an empty column is no column
    assert again.curves.keys() == run.curves.keys()


def test_the_kl_of_policy_steps_comes_along_where_it_is_known() -> None:
    head = HEAD.replace("return,", "return,kl_improve,kl_project,")
    row = "cup,T,0,{},5000,5,1000,3.5,0.01,{},9.5,10,0.1,finished\n"
    [run] = curves.decode([head, row.format(1, 0.02), row.format(2, "")])
    np.testing.assert_array_equal(run.curves["kl_project"], [0.02, math.nan])
    written = unpacked([run])
    assert ",return,kl_improve,kl_project,cost/c," in written[0]
    assert ",3.5,0.01,0.02,9.5," in written[1]
    [none] = curves.decode([head, row.format(1, "")])
    assert "kl_project" not in none.curves
    assert "kl_project" not in unpacked([none])[0]


def test_equal_runs_stay_apart() -> None:
    """Two copies of a run are two runs, as they are in a directory."""
    table = {"iteration": np.array([1.0, 2.0]), "steps": np.array([5.0, 10.0])}
    run = RunResult("a", "cup", "T", 0, {}, "finished", "", curves=table)
    assert len(curves.decode(unpacked([run, run]))) == 2


def unpacked(runs: list[RunResult]) -> list[str]:
    return gzip.decompress(curves.encode(Results("x", runs))).decode().splitlines(keepends=True)


FIELDS = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(10**17), 10**17)
    | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(FIELDS)
def test_any_setting_comes_back(value: object) -> None:
    text = curves.write_field(value)
    assert text  # an empty cell would mean that the run has no such setting
    assert curves.read_field(text) == value


@given(st.floats(allow_infinity=False))
def test_numbers_keep_all_digits(value: float) -> None:
    found = curves.read_number("return", curves.write_number(value))
    assert found == value or (math.isnan(found) and math.isnan(value))


HEAD = "algorithm,task,seed,iteration,steps,episodes,length,return,cost/c,limit/c,nu/c,state\n"
ROW = "cup,T,0,1,5000,5,1000,3.5,9,10,0.1,finished\n"
NEXT = ROW.replace(",1,5000", ",2,10000")
MISTAKES = {
    "empty": ("", "the column 'algorithm' is missing"),
    "only a header": (HEAD, "there are no curves in it"),
    "something else": ("a,b\n1,2\n", "the column 'algorithm' is missing: is this a file of curves"),
    "no column": (HEAD.replace("steps,", ""), "the column 'steps' is missing"),
    "no limit": (HEAD.replace("limit/c,", ""), "needs a column 'limit/c'"),
    "no cost": (HEAD.replace("cost/c,", ""), "needs a column 'cost/c'"),
    "a column twice": (HEAD.replace("nu/c", "steps"), "name every column once"),
    "another first": ("x," + HEAD, "'algorithm' first"),
    "no cost of an error": (HEAD.replace("nu/c", "cost_error/d"), "needs a column 'cost/d'"),
    "unknown column": (HEAD.replace("nu/c", "mu/c"), "unknown column 'mu/c'"),
    "cut short": (HEAD + ROW + "cup,T,0,2,10", "line 3: there are 5 cells, not 12"),
    "word": (HEAD + ROW.replace("3.5", "high"), "line 2: return must be a number or empty"),
    "not finite": (HEAD + ROW.replace("3.5", "inf"), "not 'inf'"),
    "no steps": (HEAD + ROW.replace("5000", ""), "line 2: steps must be a number"),
    "a gap": (HEAD + ROW + NEXT.replace(",2,", ",3,"), "line 3: iteration 3 is out of order"),
    "shuffled": (HEAD + NEXT + ROW, "line 2: iteration 2 is out of order"),
    "another limit": (HEAD + ROW + NEXT.replace(",10,", ",11,"), "limit/c must be the same"),
    "limit lost": (HEAD + ROW + NEXT.replace(",10,", ",,"), "line 3: limit/c must be the same"),
    "state": (HEAD + ROW.replace("finished", "finishd"), "did you mean 'finished'?"),
    "seed": (HEAD + ROW.replace("T,0", "T,a"), "seed must be a whole number, not 'a'"),
    "no task": (HEAD + ROW.replace("T,", ","), "line 2: task must not be empty"),
    "quote": (HEAD + '"cup,T', "cannot read the curves"),
    "long cell": (HEAD + "x" * 200_000, "cannot read the curves"),
    "not text": (b"\xff\xfe\x00", "cannot read the curves"),
    "not gzip": (b"\x1f\x8bnonsense", "cannot read the curves"),
    "half a file": (gzip.compress((HEAD + ROW * 50).encode())[:-20], "cannot read the curves"),
    "flipped bits": (
        gzip.compress((HEAD + ROW).encode())[:40] + b"\0\0\0\0" + bytes(20),
        "cannot read the curves",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_file(
    mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = MISTAKES[mistake]
    file = tmp_path / "curves.csv.gz"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit) as stop:
        main(["report", str(file)])
    assert stop.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(rf"cupola: .*{re.escape(str(file))}.*\n", said.err)
    assert expected in said.err
    assert list(tmp_path.iterdir()) == [file]


@given(st.lists(st.text(st.sampled_from(HEAD + ROW + '"-.e[{'), max_size=60)))
def test_no_text_makes_it_crash(lines: list[str]) -> None:
    try:
        found = curves.decode([HEAD, ROW, NEXT, *(line + "\n" for line in lines)])
    except (CupolaError, curves.csv.Error):
        return
    assert found[0].iterations == 2


@pytest.mark.parametrize("file", RESULTS, ids=lambda path: path.parent.name)
def test_committed_tables_are_those_of_the_committed_curves(file: Path) -> None:
    """And the runs are cells of the experiment file, with its limits."""
    results = curves.read(file)
    found = {table.key: table for table in tables.all_tables(results)}
    for key in ("summary", "performance", "steadiness", "runs"):
        table = found[key]
        assert (file.parent / f"{table.key}.md").read_text() == formats.to_markdown(table)
    for task in results.tasks:
        assert (file.parent / f"curves-{task}.png").is_file()
    experiment = grid.read(ROOT / "experiments" / f"{file.parent.name}.toml")
    cells = {cell.name: cell for cell in experiment.cells}
    for run in results.runs:
        config = cells[run.name].resolve()
        assert config is not None
        assert (run.limits, run.iterations) == (config.limits, config.options.iterations)


def test_there_are_committed_results() -> None:
    assert len(RESULTS) >= 11


def test_limits_are_drawn_where_the_runs_have_them(sweep: Path) -> None:
    """From the runs to the page's data and to the axes of a figure."""
    from cupola.reports.charts import draw_curves, draw_planes
    from cupola.reports.page import page_data

    results = load(sweep)
    costs = {"discounted cost of speed": [20.0, 80.0], "discounted cost of effort": [40.0]}
    expected: dict[str, list[float]] = {"return": [], **costs}
    expected |= {"Lagrange multiplier of speed": [], "Lagrange multiplier of effort": []}
    figure = draw_curves(results, panels.curves(results, 40))
    for axis in figure.axes:
        ends = [line.get_ydata() for line in axis.lines if line.get_transform() != axis.transData]
        assert sorted(y for y, _ in ends) == expected[axis.get_ylabel()]
    planes = draw_planes(results, panels.planes(results))
    drawn = {
        axis.get_xlabel(): [line.get_xdata()[0] for line in axis.lines] for axis in planes.axes
    }
    assert drawn == costs
    for panel in page_data(results, 40)["curves"]:
        limits = {line["limit"] for line in panel["lines"]} - {None}
        assert sorted(limits) == expected[panel["label"]]
