"""A sweep's directory from a stranger."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cupola.errors import CupolaError
from cupola.reports.results import load
from cupola.runs.files import Folder
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.worker import attempt

FILE = """
iterations = 3
algorithms = ["cup"]
tasks = ["HopperSpeed"]
seeds = 2
"""


@pytest.fixture
def sweep(tmp_path: Path, synthetic_sweep: Callable[..., None]) -> SweepDirectory:
    synthetic_sweep(tmp_path / "sweep", FILE)
    return SweepDirectory.open(tmp_path / "sweep")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "../../elsewhere"}, r"a cell cannot be called '\.\./\.\./elsewhere'"),
        ({"name": ""}, "a cell cannot be called ''"),
        ({"seed": "one"}, "'cells' item 1 'seed' must be a whole number, not 'one'"),
        ({"fields": {"iterations": 1e400}}, "'iterations' must be a whole number, not inf"),
        ({"label": "\ud800"}, "it is not UTF-8"),
        ({"more": 1}, "unexpected keyword argument 'more'"),
    ],
)
def test_a_damaged_list_of_cells_is_one_sentence(sweep, change, said):
    record = json.loads((sweep.path / "sweep.json").read_text())
    record["cells"][0] |= change
    (sweep.path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(CupolaError, match=rf"sweep\.json is damaged \(.*{said}"):
        SweepDirectory.open(sweep.path)


@pytest.mark.parametrize("damage", ["number", "limit", "no check value"])
def test_a_damaged_result_is_told_and_evaluated_again(sweep, damage):
    """A digit that changed in an evaluation was shown as if it had been measured."""
    name, other = sweep.cells
    whole = sweep.result(name)
    record = json.loads((sweep.path / name / "result.json").read_text())
    if damage == "number":
        record["sampled"]["return"]["mean"] += 1e-9
    elif damage == "limit":
        next(iter(record["deterministic"]["costs"].values()))["limit"] += 1
    else:
        del record["check"]
    (sweep.path / name / "result.json").write_text(json.dumps(record))
    assert sweep.status(name).state == "interrupted"
    found = load(sweep.path)
    assert [run.name for run in found.runs] == [other]
    assert f"{name}/result.json is damaged" in found.left_out[0].reason
    sweep.write_result(name, whole)
    assert sweep.status(name).state == "finished"
    assert [run.result for run in load(sweep.path).runs] == [whole, sweep.result(other)]


def test_a_directory_in_place_of_the_lock_is_one_sentence(sweep, command):
    (sweep.path / "sweep.lock").mkdir()
    file = sweep.path.with_suffix(".toml")
    status, _, err = command("sweep", file, "--out", sweep.path)
    assert (status, err) == (1, f"cupola: {sweep.path}/sweep.lock is not a regular file.\n")


def test_a_lock_that_the_system_refuses_is_one_sentence(sweep, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Folder, "extend", refuse)
    said = rf"cannot write to {sweep.path} \(Permission denied\)"
    with pytest.raises(CupolaError, match=said), sweep.lock():
        pass


def test_a_cell_that_is_a_link_is_not_worked_on(sweep, probe_run, tmp_path):
    other = Path(shutil.copytree(probe_run, tmp_path / "other"))
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    name = next(iter(sweep.cells))
    shutil.rmtree(sweep.path / name)
    (sweep.path / name).symlink_to(other)
    assert attempt(sweep, name) == 1
    assert f"{name} is a link" in sweep.status(name).reason
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == before


def test_a_worker_beside_a_resume_says_who_is_at_work(sweep, tmp_path):
    from cupola.runs.directory import RunDirectory

    name = next(iter(sweep.cells))
    (sweep.path / name / "result.json").unlink()
    with RunDirectory.open(sweep.run_path(name)) as run:
        run.lock()
        assert attempt(sweep, name) == 1
    assert "is in use: process " in sweep.status(name).reason


def test_reasons_are_kept_in_one_line(sweep):
    name = next(iter(sweep.cells))
    (sweep.path / name / "result.json").unlink()
    sweep.record_failure(name, "first\nsecond \x1b[31m" + "x" * 10_000)
    assert sweep.status(name).reason.startswith("first second  [31mxxx")
    (sweep.path / "failures" / f"{name}.json").write_text('{"reason": 5}')
    assert "is damaged ('reason' must be a text, not 5)" in sweep.status(name).reason
