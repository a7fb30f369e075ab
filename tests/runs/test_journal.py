"""A line that was changed, lost, doubled or moved is noticed and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import cupola
from cupola.errors import CupolaError
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.runs.journal import Journal
from cupola.runs.schema import Number, Table, Whole

LINE = Table({"iteration": Whole(1)}, others=Number())


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Five lines."""
    journal = Journal(Folder(tmp_path), "file.jsonl", LINE)
    journal.rewind(0)
    for i in range(1, 6):
        journal.append({"iteration": i, "return": i / 4})
    journal.close()
    return journal


@pytest.fixture
def run(probe_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(probe_run, tmp_path / "run"))


def edit(path: Path, change) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))


def test_lines_are_plain_json_with_a_check_value(journal):
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert [line["return"] for line in lines] == [0.25, 0.5, 0.75, 1.0, 1.25]
    assert [set(line) for line in lines] == [{"iteration", "return", "check"}] * 5
    assert len({line["check"] for line in lines}) == 5
    assert lines[-1]["check"] == journal.check
    assert journal.records() == [{"iteration": i, "return": i / 4} for i in range(1, 6)]


DAMAGE = {
    "changed": (3, lambda lines: [*lines[:2], lines[2].replace(b"0.75", b"0.76"), *lines[3:]]),
    "missing": (3, lambda lines: lines[:2] + lines[3:]),
    "first missing": (1, lambda lines: lines[1:]),
    "doubled": (4, lambda lines: [*lines[:3], lines[2], *lines[3:]]),
    "swapped": (2, lambda lines: [lines[0], lines[2], lines[1], *lines[3:]]),
    "a hole": (3, lambda lines: [*lines[:2], bytes(len(lines[2]) - 1) + b"\n", *lines[3:]]),
    "another's": (2, lambda lines: [lines[0], b'{"iteration": 2}\n', *lines[2:]]),
    "an empty line": (2, lambda lines: [lines[0], b"\n", *lines[1:]]),
    "not UTF-8": (5, lambda lines: [*lines[:4], b"\xff" + lines[4]]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_with_its_line(journal, damage):
    number, change = DAMAGE[damage]
    edit(journal.path, change)
    with pytest.raises(CupolaError, match=rf"^line {number} of {journal.path} is damaged: .*\.$"):
        journal.records()
    assert len(journal.read().records) == number - 1


def test_any_flipped_bit_is_noticed(journal):
    whole, data = journal.records(), journal.path.read_bytes()
    for position in range(len(data) - 1):  # the last end of line makes a line cut short
        damaged = bytearray(data)
        damaged[position] ^= 1
        journal.path.write_bytes(damaged)
        with pytest.raises(CupolaError):
            journal.records()
    journal.path.write_bytes(data)
    assert journal.records() == whole


@pytest.mark.parametrize("missing", [1, 10, 40])
def test_a_last_line_cut_short_is_dropped(journal, missing):
    journal.path.write_bytes(journal.path.read_bytes()[:-missing])
    assert [record["iteration"] for record in journal.records()] == [1, 2, 3, 4]


def test_what_could_not_be_read_is_not_written(journal):
    journal.rewind(5)
    with pytest.raises(CupolaError, match="'return' must be a number, not 'high'"):
        journal.append({"iteration": 6, "return": "high"})
    journal.close()


def test_rewinding_goes_by_iterations(tmp_path):
    """Not by lines: some may be missing where that is allowed."""
    journal = Journal(Folder(tmp_path), "file.jsonl", LINE, gaps=True)
    journal.rewind(0)
    for i in (1, 2, 7, 8, 9):
        journal.append({"iteration": i})
    journal.close()
    journal.rewind(7)
    journal.append({"iteration": 8})
    journal.close()
    assert [record["iteration"] for record in journal.records()] == [1, 2, 7, 8]


def test_metrics_that_end_before_the_newest_checkpoint(run):
    edit(run / "metrics.jsonl", lambda lines: lines[:3])
    with pytest.raises(CupolaError, match="ends at iteration 3, but there is a checkpoint of iter"):
        RunDirectory.open(run).metrics()


# --- Resuming ---


def test_a_run_with_a_damaged_line_goes_back_to_where_it_was_whole(run, probe_run):
    """Checkpoints 2, 4 and 6: line 4 is damaged, so 2 is the newest that helps."""
    edit(run / "metrics.jsonl", lambda lines: [*lines[:3], b"{}\n", *lines[4:]])
    with pytest.warns(UserWarning, match=r"line 4 of .* Going back to iteration 2\.") as warned:
        cupola.resume(run)
    assert len(warned) == 1
    assert (run / "metrics.jsonl").read_bytes() == (probe_run / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("line", [1, 2])
def test_a_line_before_all_checkpoints_is_refused(run, line):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    edit(run / "metrics.jsonl", lambda lines: [*lines[: line - 1], *lines[line:]])
    refused = rf"^line {line} of .*metrics\.jsonl is damaged: .*'cupola resume {run} --restart'"
    with pytest.raises(CupolaError, match=refused):
        cupola.resume(run)
    for path, data in before.items():
        assert path.name in ("metrics.jsonl", ".lock") or path.read_bytes() == data


def test_metrics_of_another_run_are_noticed(run, tmp_path):
    """Whole in themselves, but not those that the checkpoints know."""
    with RunDirectory.open(run) as other:
        records, timings = other.metrics(), other.timings()
        checkpoints = Path(shutil.copytree(run / "checkpoints", tmp_path / "kept"))
        other.rewind(0, keep=3)
        for record, times in zip(records, timings, strict=True):
            other.log(record | {"return": 8.47}, times)
    shutil.rmtree(run / "checkpoints")
    checkpoints.rename(run / "checkpoints")
    with pytest.raises(CupolaError, match="does not fit the checkpoint of iteration 6"):
        cupola.resume(run)


def test_damaged_timings_are_dropped_with_a_warning(run, probe_run):
    edit(run / "timings.jsonl", lambda lines: [*lines[:3], b"{}\n", *lines[4:]])
    with pytest.warns(UserWarning, match=r"line 4 of .*timings\.jsonl .* timings from there on"):
        cupola.resume(run)
    assert [record["iteration"] for record in RunDirectory.open(run).timings()] == [1, 2, 3]
    assert (run / "metrics.jsonl").read_bytes() == (probe_run / "metrics.jsonl").read_bytes()


# --- Nothing is thrown away ---


def content(run: Path) -> dict[str, bytes]:
    files = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def test_a_finished_run_without_checkpoints_asks_before_it_begins_again(run, probe_run):
    shutil.rmtree(run / "checkpoints")
    before = content(run)
    with pytest.raises(
        CupolaError, match=r"has 6 iterations of metrics and no checkpoint: .*--res"
    ):
        cupola.resume(run)
    assert content(run) == before
    assert cupola.resume(run, restart=True).finished
    assert (run / "metrics.jsonl").read_bytes() == (probe_run / "metrics.jsonl").read_bytes()


def test_a_run_whose_checkpoints_are_all_damaged_asks_too(run, command):
    for file in (run / "checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    before = content(run)
    status, _, err = command("resume", run)
    assert (status, err.count("\n")) == (1, 1)
    assert "not a readable checkpoint" in err
    assert "--restart" in err
    assert content(run) == before
    assert command("resume", run, "--restart")[0] == 0


@pytest.mark.parametrize("done", [1, 2, 6])
def test_a_run_killed_before_its_first_checkpoint_begins_again(probe_run, tmp_path, done):
    """Also right before it, when the line of its iteration is there."""
    run = tmp_path / "run"
    with RunDirectory.open(probe_run) as whole:
        records, timings, config = whole.metrics(), whole.timings(), whole.config()
    with RunDirectory.create(run, config) as killed:
        killed.rewind(0, keep=3)
        for record, times in list(zip(records, timings, strict=True))[:done]:
            killed.log(record, times)
    assert cupola.resume(run).finished
    assert (run / "metrics.jsonl").read_bytes() == (probe_run / "metrics.jsonl").read_bytes()


def test_fewer_iterations_than_are_done_are_refused(run):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"iterations": 5}))
    before = content(run)
    with pytest.raises(CupolaError, match=r"asks for 5 iterations, and 6 are done: .*--restart"):
        cupola.resume(run)
    assert content(run) == before


@pytest.mark.parametrize("name", ["5", "²", "000000004", "00000007"])
def test_a_renamed_checkpoint_is_not_taken_for_another(run, probe_run, name):
    (run / "checkpoints" / "00000006.safetensors").rename(
        run / "checkpoints" / f"{name}.safetensors"
    )
    said = "of iteration 6: it was renamed" if name == "00000007" else "not called as a checkpoint"
    with pytest.warns(UserWarning, match=said):
        assert cupola.resume(run).finished
    assert (run / "metrics.jsonl").read_bytes() == (probe_run / "metrics.jsonl").read_bytes()


def test_a_renamed_checkpoint_that_is_loaded_says_so(run):
    file = run / "checkpoints" / "00000006.safetensors"
    file = file.rename(file.with_stem("00000005"))
    with pytest.raises(CupolaError, match=r"00000005\.safetensors is of iteration 6: it was ren"):
        cupola.load(file)
