"""The report: numbers against independent ones, size and speed, and a real browser."""

import csv
import io
import json
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from cupola.cli import main
from cupola.reports import formats, panels, steadiness_table, tables
from cupola.reports.charts import draw_curves
from cupola.reports.compare import comparison, sparkline
from cupola.reports.formats import Entry, Table, format_number
from cupola.reports.results import Results, RunResult, is_discounted, load, load_runs
from cupola.reports.statistics import Estimate
from cupola.runs.directory import RunDirectory
from cupola.sweeps.directory import SweepDirectory

WriteSweep = Callable[..., None]

SMALL = """
iterations = 40
algorithms = ["cup", "ppo_lag", "focops"]
tasks = ["SwimmerSpeed", "HopperSpeed"]
seeds = 3
[grid]
limit = [20, 30]
"""


@pytest.fixture
def small(tmp_path: Path, synthetic_sweep: WriteSweep) -> Path:
    synthetic_sweep(tmp_path / "small", SMALL)
    return tmp_path / "small"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, synthetic_sweep: WriteSweep) -> Path:
    """A sweep with its report, which no test changes."""
    path = tmp_path_factory.mktemp("reported") / "small"
    synthetic_sweep(path, SMALL)
    main(["report", str(path)])
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def last_tenth(run: Path, key: str) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return float(np.mean([line[key] for line in lines[-4:]]))


def test_tables_hold_what_the_runs_hold(reported: Path) -> None:
    small, folder = reported, reported / "report" / "tables"
    for row in read_csv(folder / "performance.csv"):
        limit = row["algorithm"].partition("limit=")[2]
        label = row["algorithm"].partition(" ")[0]
        runs = [small / f"{label}-{row['task']}-limit={limit}-{seed}" for seed in range(3)]
        returns = [last_tenth(run, "return") for run in runs]
        costs = [last_tenth(run, "cost/speed") for run in runs]
        assert float(row["return"]) == pytest.approx(np.mean(returns))
        assert float(row["return low"]) <= np.mean(returns) <= float(row["return high"])
        assert float(row["lowest return"]) == pytest.approx(min(returns))
        assert int(row["its seed"]) == int(np.argmax(costs))  # the second column of that name
        assert float(row["cost return"]) == pytest.approx(np.mean(costs))
        assert float(row["P(cost <= limit)"]) == pytest.approx(
            np.mean(np.array(costs) <= float(limit))
        )
    rows = read_csv(folder / "runs.csv")
    assert len(rows) == 3 * 2 * 2 * 3
    for row in rows:
        lines = (small / row["run"] / "metrics.jsonl").read_text().splitlines()
        last = [json.loads(line) for line in lines[-4:]]
        costs, errors = (
            [line[f"{kind}/speed"] for line in last] for kind in ("cost", "cost_error")
        )
        assert float(row["speed, deviation"]) == pytest.approx(statistics.stdev(costs))
        rms = math.sqrt(sum(error**2 for error in errors) / 4)
        assert float(row["speed, sampling error"]) == pytest.approx(rms)
    assert len(read_csv(folder / "steadiness.csv")) == 2 * 3 * 2 * 2
    found = {path.name for path in (small / "report" / "figures").iterdir()}
    names = ("curves-HopperSpeed", "curves-SwimmerSpeed", "return-cost", "sensitivity-limit")
    assert found == {f"{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")}


def run_of(label: str, seed: int, returns: float, cost: float, limit: float = 10.0) -> RunResult:
    curves = {"steps": np.arange(1.0, 11.0), "return": np.full(10, returns)}
    curves["cost/c"] = np.full(10, cost)
    name = f"{label}-{seed}"
    return RunResult(name, label, "T", seed, {}, "finished", "", limits={"c": limit}, curves=curves)


def test_bold_is_the_best_that_is_feasible() -> None:
    runs = [run_of("bold", s, 5.0, 9.0 + s) for s in range(3)]  # on the limit in the mean
    runs += [run_of("worse", s, 4.0, 1.0) for s in range(3)]
    runs += [run_of("unsafe", s, 9.0, 10.0 + s) for s in range(3)]
    table = tables.summary(Results("x", runs))
    returns, costs, deviations, held = (row[2:] for row in table.rows)
    assert [formats.format_entry(entry) for entry in held] == ["0 of 3"] * 3  # one iteration each
    assert [formats.format_entry(entry) for entry in deviations] == ["-"] * 3
    assert [entry.bold for entry in returns] == [True, False, False]
    assert not any(entry.infeasible for entry in returns)  # the cost is marked, not the return
    assert [entry.infeasible for entry in costs] == [False, False, True]
    assert formats.format_entry(costs[0]) == "10 [9, 11]"
    assert formats.format_entry(costs[2]) == "11† [10, 12]"


def swinging(label: str, seed: int, mean: float, height: float, error: float) -> RunResult:
    """Forty iterations, the limit 10: the last four are mean + height and mean - height in turn."""
    run = run_of(label, seed, 1.0, 0.0)
    costs = mean + height * np.tile([1.0, -1.0], 20)
    curves = {"steps": np.arange(1.0, 41.0), "return": np.ones(40), "cost/c": costs}
    curves["cost_error/c"] = np.full(40, error)
    return replace(run, curves=curves)


def test_steadiness_by_hand() -> None:
    """Four costs m + h, m - h, ... have the standard deviation h sqrt(4/3)."""
    root = math.sqrt(4 / 3)
    runs = [swinging("cup", 0, 10.0, 0.5, 0.1), swinging("cup", 1, 8.0, 3.5, 0.3)]
    runs += [swinging("ppo", 0, 12.0, 0.0, math.nan)]
    table = steadiness_table.steadiness(Results("x", runs))
    assert [row[i].value for row in table.rows for i in (1, 2, 5)] == [
        *("cup", 2, "mean", "cup", 2, "worst", "ppo", 1, "mean", "ppo", 1, "worst")
    ]
    average, worst, exceeded, _ = ([entry.value for entry in row[6:]] for row in table.rows)
    violation = (20 * 0.5, 20 * 1.5)  # half of the forty are above
    numbers = (9.0, 2 * root, 0.2, 0.25, np.mean(violation))
    assert average == [*map(pytest.approx, numbers), "1 of 2 held"]
    numbers = (10.0, 3.5 * root, 0.3, 0.5, violation[1])
    assert worst == [*map(pytest.approx, numbers), "held on average"]
    assert exceeded[0] == 12.0
    assert math.isnan(exceeded[2])
    assert exceeded[3:] == [1.0, 80.0, "0 of 1 held"]
    assert [row[6].infeasible for row in table.rows] == [False, False, True, True]
    assert (
        formats.to_csv(table).splitlines()[-1] == "T,ppo,1,c,10.0,worst,12.0,0.0,,1.0,80.0,exceeded"
    )
    summary = tables.summary(Results("x", runs))
    assert [entry.value for entry in summary.rows[3]] == ["", "c, held", "1 of 2", "0 of 1"]
    assert summary.rows[2][2].value.value == pytest.approx(2 * root)


def test_every_run_says_how_steady_it_is() -> None:
    unstarted = RunResult("new", "cup", "T", 2, {}, "waiting", "", limits={"c": 10.0})
    free = RunResult("free", "ppo", "T", 0, {}, "finished", "", curves=run_of("", 0, 1, 1).curves)
    runs = [swinging("cup", 1, 8.0, 3.5, 0.3), swinging("old", 0, 8.0, 0.0, math.nan)]
    table = tables.runs(Results("x", [*runs, unstarted, free]))
    names = ("c", "c, limit", "c, deviation", "c, sampling error", "c, share above 1.1 limit")
    names += ("c, verdict", "c, violation")
    columns = [table.columns.index(name) for name in names]
    found = [[row[i].value for i in columns] for row in table.rows]
    deviation = pytest.approx(3.5 * math.sqrt(4 / 3))
    assert found[0][:3] == [pytest.approx(8.0), 10.0, deviation]
    assert found[0][3:] == [pytest.approx(0.3), 0.5, "held on average", pytest.approx(30.0)]
    assert found[1] == [8.0, 10.0, 0.0, "-", 0.0, "held", 0.0]
    assert found[2] == ["-"] * 7
    assert found[3] == ["-"] * 7


def test_formats() -> None:
    rows = [
        [Entry("a_b|c"), Entry(Estimate(1234.5, 1200.0, 1300.0), bold=True)],
        [Entry("<i>"), Entry(Estimate(0.5), infeasible=True)],
        [Entry("x"), Entry(math.inf)],
        [Entry("y"), Entry("-")],
    ]
    table = Table("key", "100 %", ["name", "v <= 1"], rows, "note")
    assert formats.to_csv(table).splitlines() == [
        "name,v <= 1,v <= 1 low,v <= 1 high",
        "a_b|c,1234.5,1200.0,1300.0",
        "<i>,0.5,,",
        "x,inf,,",
        "y,,,",
    ]
    assert "| a_b\\|c | **1,234 [1,200, 1,300]** |" in formats.to_markdown(table)
    latex = formats.to_latex(table)
    assert r"a\_b|c & \textbf{1,234 [1,200, 1,300]} \\" in latex
    assert r"$<$i$>$ & 0.5$^\dagger$ \\" in latex
    assert r"v $\le$ 1" in latex
    assert r"\begin{tabular}{lr}" in latex
    assert r"100 \%" in latex
    page = formats.to_html(table)
    assert "<td>&lt;i&gt;</td>" in page
    assert '<th>name</th><th class="number">v &lt;= 1</th>' in page
    assert '<td class="number">-</td>' in page
    assert '<td class="bold number">1,234 <span class="interval">[1,200, 1,300]</span></td>' in page
    assert [format_number(v) for v in (math.nan, 0.0, 0.12345, 24.516, 150.0)] == [
        *("-", "0", "0.123", "24.5", "150.0")
    ]


@pytest.mark.usefixtures("no_figures")
def test_what_is_not_finished_is_shown_and_not_counted(small: Path) -> None:
    sweep = SweepDirectory.open(small)
    names = list(sweep.cells)
    failed, cut, never = names[0], names[1], names[2]
    (small / failed / "result.json").unlink()
    sweep.record_failure(failed, "iteration 7: 'kl' of the <update> is not finite")
    (small / cut / "result.json").unlink()
    metrics = small / cut / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:3000])  # ends within a line
    for file in ("result.json", "metrics.jsonl", "timings.jsonl", "config.json"):
        (small / never / file).unlink()
    results = load(small)
    states = {run.name: run.state for run in results.runs}
    assert [states[name] for name in (failed, cut, never)] == ["failed", "interrupted", "waiting"]
    main(["report", str(small)])
    page = (small / "report.html").read_text()
    assert f"<b>{failed}</b>: iteration 7: &#x27;kl&#x27; of the &lt;update&gt;" in page
    done = next(run.iterations for run in results.runs if run.name == cut)
    assert f"<li><b>{cut}</b>: {done} of 40 iterations</li>" in page
    lines = [line for curve in panels.curves(results, 40) for line in curve.lines]
    assert sum(sum(line.unfinished) for line in lines) == 2 * 3  # return, cost and multiplier
    row = read_csv(small / "report" / "tables" / "performance.csv")[0]
    assert row["seeds"] == "0 of 3"


@pytest.mark.usefixtures("no_figures")
def test_any_runs_make_a_report(small: Path, capsys) -> None:
    """Without the sweep's own file the runs tell what varies."""
    expected = load(small)
    (small / "sweep.json").unlink()
    found = load(small)
    assert found.varied == expected.varied == ["limit"]
    assert sorted(found.series) == sorted(expected.series)
    main(["report", str(small), "--out", str(small.parent / "new" / "page.html")])
    assert (small.parent / "new" / "page" / "tables" / "summary.tex").exists()
    runs = [str(path) for path in sorted(small.glob("*-SwimmerSpeed-limit=20-0"))]
    capsys.readouterr()
    main(["compare", *runs])
    said = capsys.readouterr().out
    assert "ppo_lag" in said
    assert "█" in said
    assert "nu_max" in said


def test_compare_takes_the_directory_of_a_sweep(small: Path, command) -> None:
    status, out, _ = command("compare", small)
    assert status == 0
    names = [path.parent.name for path in small.glob("*/config.json")]
    assert len(names) > 6
    shown = re.sub(r"[^\w.=-]", "", out)  # long names go on on the next line
    assert all(name in shown for name in names)
    assert "settings that differ" not in out


def test_compare_shows_deviations(small: Path) -> None:
    paths = [small / f"{algo}-SwimmerSpeed-limit=20-0" for algo in ("cup", "ppo_lag")]
    with RunDirectory.open(paths[1]) as run:  # as an earlier version wrote it
        records, timings = run.metrics(), run.timings()
        run.rewind(0, keep=3)
        for record, times in zip(records, timings, strict=True):
            run.log({k: v for k, v in record.items() if k != "cost_error/speed"}, times)
    for utf8 in (True, False):
        out = io.StringIO()
        Console(file=out, width=100).print(comparison(load_runs(paths)[0], utf8)[0])
        for path in paths:
            lines = (path / "metrics.jsonl").read_text().splitlines()[-4:]
            costs = [json.loads(line)["cost/speed"] for line in lines]
            mean, deviation = statistics.mean(costs), statistics.stdev(costs)
            sign = "<=" if mean <= 20 else ">"
            assert f"{mean:.1f} ± {deviation:.3g} {sign} 20.0" in out.getvalue()


def test_the_axis_of_an_evaluation_is_short() -> None:
    shown = panels.Quantity("cost", "speed", True, "sampled")
    assert shown.label == "discounted cost of speed, evaluated, sampled actions"
    assert shown.axis == panels.Quantity("cost", "speed", True).label


def test_sparklines_and_thinning() -> None:
    values = np.array([0.0, 7.0, math.nan, 14.0])
    assert sparkline(values, values, "abc") == "ab c"
    thinned = panels.thin(np.array([1.0, 3.0, math.nan, 5.0, 7.0]), 2)
    np.testing.assert_allclose(thinned, [2.0, 5.0, 7.0])
    styles = [panels.style(i) for i in range(32)]
    assert len(set(styles)) == 32


def test_curves_that_begin_late_and_runs_that_stopped() -> None:
    def line(first: int, unfinished: bool) -> panels.Line:
        values = np.where(np.arange(200) < first, math.nan, 1.0)
        return panels.Line(0, np.arange(10.0, 2010.0, 10.0), [values], 5.0, [unfinished])

    assert panels.late_start(line(0, False)) is None
    assert panels.late_start(line(2, False)) is None  # too little to be seen
    assert panels.late_start(line(50, False)) == 510.0
    assert panels.late_start(line(200, False)) is None  # no curve at all
    curve = panels.Curve("T", panels.Quantity("cost", "speed", True), [line(50, True)])
    results = Results("x", [run_of("cup", 0, 1.0, 1.0)])
    [axis] = draw_curves(results, [curve]).axes
    assert axis.get_title() == "T: discounted cost of speed"
    words = [text.get_text() for text in axis.texts]
    assert words == ["limit\n5", "begins at 510 steps:\nno episode had ended before"]
    [end] = [mark for mark in axis.lines if mark.get_marker() == "o"]
    assert end.get_xydata().tolist() == [[2000.0, 1.0]]


@pytest.mark.parametrize(
    ("kind", "cost", "discounted", "label"),
    [
        ("cost", "speed", True, "discounted cost of speed"),
        ("cost", "hazards", False, "cost of hazards"),
        ("cost", "cost", False, "cost"),
        ("multiplier", "speed", True, "Lagrange multiplier of speed"),
        ("multiplier", "cost", False, "Lagrange multiplier"),
    ],
)
def test_plain_titles(kind: str, cost: str, discounted: bool, label: str) -> None:
    assert panels.Quantity(kind, cost, discounted).label == label
    assert is_discounted("HopperSpeed", "speed", {})
    assert not is_discounted("PointGoal1", "hazards", {})
    assert not is_discounted("no such task", "speed", {})
    assert is_discounted("gym:Pendulum-v1", "c", {"gym": {"discounted": True}})


@pytest.mark.slow
def test_a_hundred_runs_in_half_a_minute_and_ten_megabytes(
    tmp_path: Path, synthetic_sweep: WriteSweep
) -> None:
    text = SMALL.replace("= 40", "= 500").replace("seeds = 3", "seeds = 9")
    synthetic_sweep(tmp_path / "large", text)
    began = time.process_time()
    main(["report", str(tmp_path / "large")])
    assert time.process_time() - began < 30
    assert (tmp_path / "large" / "report.html").stat().st_size < 10e6


# The heights of the limits in each chart of a cost, read off its axis.
LIMIT_HEIGHTS = """[...document.querySelectorAll('#curves svg.plot')]
  .filter((svg) => svg.querySelector('line.limit'))
  .map((svg) => {
    const ticks = [...svg.querySelectorAll('text[text-anchor="end"]')];
    const [a, b] = [ticks[0], ticks[ticks.length - 1]].map(
      (tick) => [Number(tick.textContent), Number(tick.getAttribute('y')) - 4]);
    return [...svg.querySelectorAll('line.limit')].map(
      (line) => a[0] + (line.getAttribute('y1') - a[1]) / (b[1] - a[1]) * (b[0] - a[0]));
  })"""


def check_smoothing(browser: Any) -> None:
    """The drawn heights are moving means of those without it."""
    heights = (
        "document.querySelector('#curves path.line').getAttribute('d').slice(1).split('L')"
        ".map((point) => Number(point.split(',')[1]))"
    )
    slide = "(s => {{ s.value = {}; s.dispatchEvent(new Event('input')); }})"
    slider = "(document.getElementById('smoothing'))"
    rough = np.array(browser.ask(heights))
    browser.ask(slide.format(20) + slider)
    smooth = np.array(browser.ask(heights))
    # 20 % of 40 iterations: four on each side of a point. The axis has another scale.
    means = [rough[max(0, i - 4) : i + 5].mean() for i in range(len(rough))]
    line = np.polyfit(means, smooth, 1)
    np.testing.assert_allclose(np.polyval(line, means), smooth, atol=0.5)
    browser.ask(slide.format(0) + slider)
    np.testing.assert_array_equal(browser.ask(heights), rough)


def test_the_page_in_a_browser(reported: Path, browser: Any, tmp_path: Path) -> None:
    page = reported / "report.html"
    text = page.read_text()
    outside = re.findall(r'(?:src|href)="(?!data:,)|https?://(?!www.w3.org/2000/svg")', text)
    assert outside == []  # the page works offline
    browser.resize(1280, 900)
    browser.open(page)
    lines = "document.querySelectorAll('#curves path.line').length"
    points = "document.querySelectorAll('#planes path.point').length"
    assert browser.ask(lines) == 2 * 2 * 6  # tasks, return and cost, series
    assert browser.ask(points) == 2 * 6 * (3 + 1)  # seeds and their mean
    assert browser.ask("document.querySelectorAll('#multipliers path.line').length") == 2 * 6
    assert browser.ask("document.querySelectorAll('#sensitivity figure').length") == 4
    assert browser.ask("document.querySelectorAll('#curves line.limit').length") == 2 * 2
    for limits in browser.ask(LIMIT_HEIGHTS):
        assert sorted(limits) == pytest.approx([20, 30], abs=0.01)

    labels = "[...document.querySelectorAll('#curves text.limit-label')].map((t) => t.textContent)"
    assert sorted(browser.ask(labels)) == ["limit 20"] * 2 + ["limit 30"] * 2
    titles = "[...document.querySelectorAll('#curves figcaption')].map((t) => t.textContent)"
    assert browser.ask(titles) == [
        f"{task}: {what}"
        for task in ("SwimmerSpeed", "HopperSpeed")
        for what in ("return", "discounted cost of speed")
    ]
    whys = browser.ask("[...document.querySelectorAll('#curves .why')].map((t) => t.textContent)")
    assert whys == ["begins at 10k steps: no episode had ended before"] * 4
    style = "getComputedStyle(document.querySelector('{}')).{}"
    assert browser.ask(style.format("#table-performance td.number", "textAlign")) == "right"
    assert browser.ask(style.format("#table-performance td", "textAlign")) == "left"
    check_smoothing(browser)

    browser.ask("document.querySelector('#legend button').click()")
    assert browser.ask(lines) == 2 * 2 * 5
    assert browser.ask(points) == 2 * 5 * 4
    assert browser.ask("document.querySelector('#legend button').ariaPressed") == "false"
    browser.ask("document.getElementById('none').click()")
    assert browser.ask(lines) == 0
    browser.ask("document.getElementById('all').click()")
    browser.ask("document.getElementById('seeds').click()")
    assert browser.ask("document.querySelectorAll('#curves g > path[opacity=\"0.6\"]').length") == (
        2 * 2 * 6 * 3
    )

    browser.ask("document.querySelector('#curves svg.plot').scrollIntoView({block: 'center'})")
    box = browser.ask(
        "(r => [r.left, r.top, r.width, r.height])"
        "(document.querySelector('#curves svg.plot').getBoundingClientRect())"
    )
    x, y, width, height = box
    browser.mouse("mouseMoved", x + width / 2, y + height / 2)
    tip = "document.querySelector('#curves .tip')"
    assert browser.ask(f"{tip}.style.display") == "block"
    assert "cup limit=20" in browser.ask(f"{tip}.innerText")
    ticks = "[...document.querySelectorAll('#curves svg.plot')][0].textContent"
    before = browser.ask(ticks)
    browser.mouse("mousePressed", x + width * 0.4, y + 50, button="left", clickCount=1)
    browser.mouse("mouseMoved", x + width * 0.6, y + 60, buttons=1)
    browser.mouse("mouseReleased", x + width * 0.6, y + 60, button="left", clickCount=1)
    assert browser.ask(ticks) != before
    browser.ask("document.getElementById('unzoom').click()")
    assert browser.ask(ticks) == before

    browser.screenshot(tmp_path / "desktop.png")
    browser.resize(390, 844)
    browser.open(page)
    assert browser.ask("document.documentElement.scrollWidth") <= 390  # only tables scroll sideways
    assert browser.ask(lines) == 2 * 2 * 6
    table = "document.querySelector('#table-performance').parentNode"
    assert browser.ask(f"{table}.scrollWidth > {table}.clientWidth")
    assert browser.ask(style.format(".wide", "backgroundAttachment")).endswith("scroll, scroll")
    browser.screenshot(tmp_path / "phone.png")
    light = browser.ask(style.format("body", "backgroundColor"))
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", features=dark)
    assert (light, browser.ask(style.format("body", "backgroundColor"))) == (
        *("rgb(255, 255, 255)", "rgb(22, 24, 27)"),
    )
    assert browser.ask(style.format("svg.plot text", "fill")) == "rgb(232, 232, 232)"
    browser.screenshot(tmp_path / "dark.png")
    browser.call("Emulation.setEmulatedMedia", features=[])
    browser.pdf(tmp_path / "print.pdf")
    assert browser.messages == []
