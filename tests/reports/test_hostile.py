"""Reports of runs whose names were chosen to break or to take over what they are written to."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot
import numpy as np
import pytest

from cupola.diagnosis import figure
from cupola.reports import curves, formats
from cupola.reports.charts import save
from cupola.reports.formats import Entry, Table
from cupola.reports.page import write_report
from cupola.reports.results import Results, RunResult
from cupola.runs.files import Folder

SCRIPT = "</script><script>alert(1)</script>"
IMAGE = "\"><img src=x onerror='alert(1)'>"
NAMES = [
    SCRIPT,
    IMAGE,
    r"$\frac{$",
    "a\n\n\"b\", 'c'\r;",
    "\x1b[31m\x00\x01",
    "_",
    "{{js}}",
    "x" * 300,
]


def results(name: str) -> Results:
    """Two seeds of two variants, called ``name`` wherever a run has a name."""
    count, rng = 5, np.random.default_rng(0)
    keys = ("iteration", "steps", "episodes", "length", "return", f"cost/{name}", f"nu/{name}")
    runs = [
        RunResult(
            name=name,
            label=name,
            task=name,
            seed=seed,
            point={name: value},
            state="failed" if seed else "finished",
            reason=name,
            limits={name: 1.0},
            config={"task": name, "cupola": name, "algorithm": {"batch_size": 100, name: name}},
            curves={key: np.arange(1.0, count + 1) + rng.random(count).round() for key in keys},
        )
        for seed in range(2)
        for value in (name, "plain")
    ]
    for run in runs:
        run.curves["iteration"][:] = np.arange(1, count + 1)
    return Results(name, runs)


class Scripts(HTMLParser):
    """The scripts, the other elements and the attributes that a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout not applied")
def test_no_name_breaks_a_report_or_runs_in_it(tmp_path: Path, name: str) -> None:
    page = tmp_path / "report.html"
    write_report(results(name), page)
    text = page.read_text()
    seen = Scripts(text)
    assert seen.tags.count("script") == 2
    assert "img" not in seen.tags
    assert not any(attribute.startswith("on") for attribute in seen.attributes)
    drawn = list((tmp_path / "report" / "figures").glob("*.svg"))
    assert len(drawn) == 3
    for file in drawn:
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(file).iter()}
        assert not tags & {"script", "img", "a", "foreignObject"}


def test_the_browser_is_told_to_run_our_script_alone(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(results("a"), page)
    text = page.read_text()
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
        " style-src 'unsafe-inline';"
        f" script-src 'sha256-{digest}'\"" in text
    )


TAKE = "document.title = 'taken'"
INJECTED = f"""<script>{TAKE}</script><img src="x" onerror="{TAKE}">
<base href="http://192.0.2.1/"><iframe srcdoc="<script>parent.{TAKE}</script>"></iframe></body>"""


def test_the_browser_refuses_what_is_not_ours(tmp_path: Path, browser) -> None:
    """Even if a name became markup, it could do nothing."""
    page = tmp_path / "report.html"
    write_report(results("a"), page)
    page.write_text(page.read_text().replace("</body>", INJECTED))
    browser.messages.clear()
    browser.open(page)
    assert browser.ask("document.querySelectorAll('#curves path.line').length") > 0  # ours runs
    assert browser.ask("document.title") != "taken"
    assert browser.ask("document.baseURI").startswith("file:")
    refused = [text for text in browser.messages if "Content Security Policy" in text]
    browser.messages.clear()  # the browser is that of other tests too
    assert len(refused) >= 4


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_curves_keep_every_name(tmp_path: Path, name: str) -> None:
    expected = results(name)
    (tmp_path / "curves.csv.gz").write_bytes(curves.encode(expected))
    found = curves.read(tmp_path / "curves.csv.gz")
    for run, same in zip(expected.runs, found.runs, strict=True):
        assert (same.label, same.task, same.point, same.limits) == (
            *(run.label, run.task, run.point, run.limits),
        )
        assert all(np.array_equal(same.curves[key], run.curves[key]) for key in run.curves)


def test_tables_hold_text_not_formulas_links_or_markup() -> None:
    names = ["=1+1", "@sum", "-x", "[a](javascript:b)", "<b>", "a\n\nb|c", r"\input{x}%", "-"]
    rows = [[Entry(name), Entry(-1.5)] for name in names]
    table = Table("key", "title", ["+name", "v <= 1"], rows)
    parsed = list(csv.reader(io.StringIO(formats.to_csv(table))))
    assert [row[0] for row in parsed] == [
        *("'+name", "'=1+1", "'@sum", "'-x", "[a](javascript:b)", "<b>", "a\n\nb|c"),
        *(r"\input{x}%", ""),
    ]
    assert {row[1] for row in parsed[1:]} == {"-1.5"}
    markdown = formats.to_markdown(table).splitlines()
    assert markdown[2] == "| +name | v <= 1 |"
    assert markdown[7:10] == [
        r"| [a]\(javascript:b) | -1.5 |", "| &lt;b> | -1.5 |", r"| a  b\|c | -1.5 |",
    ]  # fmt: skip
    latex = formats.to_latex(table)
    assert r"\textbackslash{}input\{x\}\% & -1.5 \\" in latex
    assert "a  b|c & -1.5" in latex


def test_figures_of_names_that_look_alike_are_two_files(tmp_path: Path) -> None:
    written: list[Path] = []
    for name in ("a/b", "a:b"):
        written += save(matplotlib.pyplot.figure(), Folder(tmp_path), name, written)
    assert [path.name for path in written] == [
        f"{stem}.{kind}" for stem in ("a_b", "a_b_") for kind in ("png", "svg", "pdf")
    ]
    assert all(path.is_file() for path in written)


SETTINGS = "text.usetex: True\ntext.latex.preamble: \\input{x}\nbackend: module://evil\n"


@pytest.mark.parametrize("kind", ["settings", "pipe"])
def test_settings_of_matplotlib_in_the_working_directory_are_not_read(tmp_path, kind) -> None:
    """With them LaTeX would run, or a module of the working directory; a pipe never ended."""
    (tmp_path / "curves.csv.gz").write_bytes(curves.encode(results("a")))
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    if kind == "pipe":
        os.mkfifo(tmp_path / "here" / "matplotlibrc")
    else:
        (tmp_path / "here" / "matplotlibrc").write_text(SETTINGS)
    for place in ("here", "there"):
        command = [sys.executable, "-P", "-m", "cupola", "report", "../curves.csv.gz"]
        folder = tmp_path / place
        subprocess.run([*command, "--out", "r.html"], cwd=folder, check=True, timeout=200)
        subprocess.run([sys.executable, "-P", "-c", THEORY], cwd=folder, check=True, timeout=200)
    figures = [sorted((tmp_path / place).rglob("*.??[gf]")) for place in ("here", "there")]
    assert len(figures[0]) == 10
    for ours, theirs in zip(*figures, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()


THEORY = """
from pathlib import Path
from cupola.theory import figures
curve = {"x": [0.1, 0.9], "median": [0.5, 0.7]}
Path("theory.png").write_bytes(figures.tightness({"Lemma | printed": curve}, "lambda"))
"""


def test_a_task_that_looks_like_mathematics_can_be_diagnosed(monkeypatch) -> None:
    """Only the title has the name of the task."""
    drawn = matplotlib.pyplot.figure()
    monkeypatch.setattr(figure, "draw", lambda name: drawn.suptitle(name) and drawn.canvas.draw())
    figure.draw_diagnosis(r"$\frac{$")
