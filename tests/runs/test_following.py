"""Runs that are read while they grow: the same numbers as from the whole files, each byte once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.runs import following
from cupola.runs.directory import RunDirectory, column
from cupola.runs.files import Folder
from cupola.runs.following import RunFollower
from cupola.runs.lock import is_held, locked
from cupola.runs.search import find


@pytest.fixture
def run(probe_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(probe_run, tmp_path / "run"))


def follow(path: Path) -> RunFollower:
    found = RunFollower(Folder(path))
    found.read_config()
    return found


def read_all(found: RunFollower) -> None:
    while found.read_on():
        pass


def expect_all(found: RunFollower, path: Path) -> None:
    """The columns are those of the files, as far as these have whole lines."""
    run = RunDirectory.open(path)
    metrics, timings = run._metrics.records(), run.timings()
    assert (found.metrics.count, found.timings.count) == (len(metrics), len(timings))
    for key in ("steps", "return", "cost/cost", "cost_error/cost", "nu/cost"):
        np.testing.assert_array_equal(found.metrics.column(key), column(metrics, key))
    seconds = column(timings, "update_seconds")
    np.testing.assert_array_equal(found.timings.column("update_seconds"), seconds)


def test_a_growing_file_is_read_on_whatever_the_pieces(run: Path) -> None:
    whole = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "timings.jsonl")}
    shutil.rmtree(run / "checkpoints")
    for name in whole:
        (run / name).unlink()
    found = follow(run)
    assert not found.read_on()
    assert found.metrics.count == 0
    rng = np.random.default_rng(0)
    for share in sorted(rng.random(40)):
        for name, data in whole.items():
            (run / name).write_bytes(data[: int(share * len(data))])
            # Written in place, as an appended file is: the same file, a little longer.
        found.read_on()
        expect_all(found, run)
    for name, data in whole.items():
        (run / name).write_bytes(data)
    found.read_on()
    expect_all(found, run)
    assert found.metrics.iteration == 6


def test_no_byte_is_read_twice(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = Folder.piece

    def piece(self: Folder, name: str, start: int, size: int):
        data, stamp = original(self, name, start, size)
        asked.append((name, start, len(data)))
        return data, stamp

    monkeypatch.setattr(Folder, "piece", piece)
    monkeypatch.setattr(following, "PIECE_BYTES", 1500)  # a line or two
    found = follow(run)
    read_all(found)
    expect_all(found, run)
    for name in ("metrics.jsonl", "timings.jsonl"):
        starts = [start for one, start, _ in asked if one == name]
        assert starts == sorted(set(starts))
    before = len(asked)
    assert not found.read_on()  # nothing is new
    assert len(asked) == before


def test_a_run_that_was_resumed_is_read_anew(run: Path) -> None:
    found = follow(run)
    found.read_on()
    with RunDirectory.open(run) as directory:
        records, timings = directory.metrics(), directory.timings()
        directory.rewind(2, keep=3)
        for record, times in zip(records[2:4], timings[2:4], strict=True):
            directory.log(record | {"return": 99.0}, times)
    found.read_on()
    expect_all(found, run)
    assert found.metrics.column("return")[-1] == 99.0
    assert found.metrics.iteration == 4


def test_damage_is_one_sentence_and_mended_files_are_read_again(run: Path) -> None:
    metrics = run / "metrics.jsonl"
    good = metrics.read_bytes()
    lines = good.splitlines(keepends=True)
    found = follow(run)
    for bad, expected in {
        b"".join(lines[:3] + lines[4:]): "line 4 of .* is damaged: its check value does not fit",
        lines[0] + b"x" * (2**20 + 5) + b"\n": "line 2 of .* more than can be shown",
        lines[0] + b"x" * (2**21 + 5): "line that is too long",
        b"".join(lines[:3]): "ends at iteration 3, but there is a checkpoint of iteration 6",
    }.items():
        metrics.write_bytes(bad)
        for _ in range(2):  # and so it stays
            with pytest.raises(CupolaError, match=expected):
                read_all(found)
    metrics.write_bytes(good)
    found.read_on()
    expect_all(found, run)


def test_links_are_not_followed(run: Path, tmp_path: Path) -> None:
    shutil.move(run / "metrics.jsonl", tmp_path / "elsewhere")
    (run / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CupolaError, match="is a link"):
        follow(run).read_on()


def test_a_held_lock_is_seen_and_kept_from_nobody(run: Path) -> None:
    folder = Folder(run)
    found = follow(run)
    assert not found.is_training()
    with RunDirectory.open(run) as directory:
        directory.lock()
        assert found.is_training()
        assert is_held(folder, ".lock")
    assert not found.is_training()
    before = (run / ".lock").read_bytes()
    assert not is_held(folder, ".lock")
    with locked(folder, ".lock", "the run", 0.0):
        pass
    assert before  # who held it last is still written there
    (run / ".lock").unlink()
    assert not found.is_training()
    assert not (run / ".lock").exists()


def test_runs_and_sweeps_are_found_without_links(run: Path, tmp_path: Path, monkeypatch) -> None:
    top = tmp_path / "top"
    for name in ("b/10", "a", "b/9", ".hidden/run", "a/checkpoints/inner"):
        shutil.copytree(run, top / name, dirs_exist_ok=True)
    (top / "link").symlink_to(run)
    (top / "model").mkdir()
    (top / "model" / "config.json").write_text('{"model_type": "bert"}')
    (top / "b" / "sweep.json").write_text("{}")
    found = find(Folder(top))
    assert [folder.inner for folder in found.runs] == [("a",), ("b", "9"), ("b", "10")]
    assert [folder.inner for folder in found.sweeps] == [("b",)]
    assert found.is_whole
    monkeypatch.setattr("cupola.runs.search.MOST_FOLDERS", 3)
    few = find(Folder(top))
    assert ([folder.inner for folder in few.runs], few.is_whole) == ([("a",)], False)
    assert find(Folder(tmp_path / "nothing")).runs == []
    [alone] = find(Folder(run)).runs
    assert alone.inner == ()
