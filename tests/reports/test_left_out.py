"""A run that cannot be read is named and left out; no result changes in silence."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cupola.reports.results import load
from cupola.runs.directory import RunDirectory
from cupola.sweeps.directory import SweepDirectory

pytestmark = [
    pytest.mark.usefixtures("no_figures"),
    pytest.mark.filterwarnings("always::UserWarning"),
]

FILE = """
iterations = 20
algorithms = ["cup"]
tasks = ["HopperSpeed"]
seeds = 3
"""


@pytest.fixture
def runs(probe_run: Path, tmp_path: Path) -> Path:
    """Two runs, of which `bad` has lost the fourth line of its metrics."""
    for name in ("good", "bad"):
        shutil.copytree(probe_run, tmp_path / "runs" / name)
    damage(tmp_path / "runs" / "bad")
    return tmp_path / "runs"


def damage(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:3] + lines[4:]))


def test_a_report_names_what_it_leaves_out(runs, command):
    status, _, err = command("report", runs)
    warning = f"cupola: warning: {runs / 'bad'} is left out: line 4 of {runs / 'bad'}/metrics.jsonl"
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith(warning)
    page = (runs / "report.html").read_text()
    assert f"<p>Left out:</p><ul><li><b>{runs / 'bad'}</b>: line 4 of" in page
    found = load(runs)
    assert [run.name for run in found.runs] == [str(runs / "good")]


@pytest.mark.parametrize("where", ["metrics", "setting", "limit"])
def test_numbers_that_nothing_can_draw_are_left_out(runs, command, where):
    """Between 1e308 and -1e308 lies more than there are numbers for: figures were a traceback."""
    with RunDirectory.open(runs / "good") as run:
        lines, config = run.metrics(), run.config()
    shutil.rmtree(runs / "bad")
    if where == "setting":
        config["algorithm"]["obs_clip"] = 1e308
    if where == "limit":
        config["limits"]["cost"] = 1e308
    with RunDirectory.create(runs / "bad", config) as run:
        run.rewind(0, keep=3)
        for line in lines:
            changed = {"return": 1e308 * (-1) ** line["iteration"]} if where == "metrics" else {}
            times = {"iteration": line["iteration"], "rollout_seconds": 1.0, "update_seconds": 1.0}
            run.log(line | changed, times)
    status, _, err = command("report", runs)
    assert (status, err.count("\n")) == (0, 1)
    assert "bad is left out:" in err
    assert "beyond 1e+100" in err


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"cost": 0.9}, "the limit 0.9"), ({"cost": -0.5}, "the limit -0.5"), ({}, "no limit")],
)
def test_another_limit_than_that_of_the_metrics_is_told(runs, command, limits, said):
    """An edited config moved the limit in all tables and figures, without a word."""
    shutil.rmtree(runs / "bad")
    file = runs / "good" / "config.json"
    true = json.loads(file.read_text())
    assert true["limits"] == {"cost": 0.5}
    file.write_text(json.dumps(true | {"limits": limits}))
    status, _, err = command("compare", runs / "good")
    assert status == 1
    assert f"{file} has {said} of 'cost', but the run was trained with 0.5: put that back." in err
    file.write_text(json.dumps(true))
    assert command("compare", runs / "good")[0] == 0


def test_another_batch_size_in_the_config_does_not_change_the_speed(runs, command):
    before = load(runs).runs[0].steps_per_second
    file = runs / "good" / "config.json"
    config = json.loads(file.read_text())
    config["algorithm"]["batch_size"] *= 10
    file.write_text(json.dumps(config))
    assert load(runs).runs[0].steps_per_second == before


def test_a_directory_whose_name_is_no_text(runs, command):
    odd = Path(os.fsdecode(bytes(runs.with_name("odd-")) + b"\xff\xfe"))
    runs.rename(odd)
    status, _, err = command("report", odd)
    assert (status, err.count("\n")) == (0, 1)
    assert "odd-??/bad</b>: line 4 of" in (odd / "report.html").read_text()


@pytest.mark.parametrize(("name", "levels"), [("d", 1200), ("d" * 250, 20)])
def test_directories_within_directories_without_an_end(runs, command, name, levels):
    """Looking through them was too deep for Python; a path that is too long ended the report."""
    inner = os.open(runs, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
    os.close(inner)
    assert [run.name for run in load(runs).runs] == [str(runs / "good")]
    subprocess.run(["rm", "-r", runs / name], check=True)  # which pytest could not


def test_compare_names_what_it_leaves_out(runs, command):
    status, out, err = command("compare", runs / "good", runs / "bad")
    assert status == 0
    assert err.startswith(f"cupola: warning: {runs / 'bad'} is left out: line 4 of")
    assert "ProbeQuadratic" in out


@pytest.mark.parametrize("name", ["report", "compare"])
def test_nothing_left_is_one_sentence_and_a_failure(runs, command, name):
    shutil.rmtree(runs / "good")
    status, out, err = command(name, runs if name == "report" else runs / "bad")
    sentences = [line for line in err.splitlines() if not line.startswith("cupola: warning")]
    assert (status, out, len(sentences)) == (1, "", 1)
    assert "bad is left out: line 4 of" in sentences[0]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 99_999, b'{"algo": 5}'])
def test_a_damaged_config_is_named(runs, command, content):
    (runs / "bad" / "config.json").write_bytes(content)
    status, _, err = command("report", runs)
    assert status == 0
    assert f"{runs / 'bad' / 'config.json'} is damaged" in err


def test_a_config_of_another_program_is_none_of_ours(runs, command):
    (runs / "model").mkdir()
    (runs / "model" / "config.json").write_text('{"model_type": "bert"}')
    assert "model" not in command("report", runs)[2]


def test_one_bad_cell_does_not_stop_the_report_of_a_sweep(
    tmp_path: Path, command, synthetic_sweep: Callable[..., None]
) -> None:
    path = tmp_path / "sweep"
    synthetic_sweep(path, FILE)
    first, second, third = SweepDirectory.open(path).cells
    damage(path / first)
    (path / second / "result.json").write_text('{"episodes": 20}')
    status, _, err = command("report", path)
    assert status == 0
    assert [line.split()[2] for line in err.splitlines()] == [first, second]
    assert f"{second}/result.json is damaged (it has no 'sampled')" in err
    assert [run.name for run in load(path).runs] == [third]
