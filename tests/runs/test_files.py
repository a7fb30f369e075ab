"""Nothing outside of a directory is read or written, whatever lies in it."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import cupola
from cupola.errors import CupolaError
from cupola.runs import files
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder, is_stale, read_file


@pytest.fixture
def run(probe_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(probe_run, tmp_path / "run"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


# --- Links ---


def test_a_temporary_file_cannot_be_planted(run, victim, monkeypatch):
    """The names of earlier versions, and any other: a temporary file is always a new one."""
    for name in ("metrics.jsonl", "timings.jsonl", "config.json"):
        (run / f".{name}.tmp").symlink_to(victim)
    cupola.resume(run)
    assert victim.read_text() == "precious"
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    (run / f".{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        Folder(run).write("metrics.jsonl", b"chosen text")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl", "config.json", ".lock"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_file_that_is_a_link_is_refused(run, victim, tmp_path, name, dangling):
    target = tmp_path / "nowhere" if dangling else victim
    (run / name).unlink()
    (run / name).symlink_to(target)
    with pytest.raises(CupolaError, match=rf"{name} is a link, which cupola does not follow"):
        cupola.resume(run)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("folder", ["checkpoints", "tensorboard"])
def test_a_folder_that_is_a_link_is_refused(run, probe_run, tmp_path, folder):
    """Resume deleted the other run's checkpoints, and made folders where a dangling link led."""
    other = Path(shutil.copytree(probe_run, tmp_path / "other"))
    before = sorted(other.rglob("*"))
    for target in (other / folder, tmp_path / "nowhere"):
        if (run / folder).is_symlink():
            (run / folder).unlink()
        else:
            shutil.rmtree(run / folder)
        (run / folder).symlink_to(target)
        with pytest.raises(CupolaError, match=rf"{folder} is a link"):
            cupola.resume(run)
    assert sorted(other.rglob("*")) == before
    assert not (tmp_path / "nowhere").exists()


def test_a_run_that_is_reached_through_a_link_is_fine(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert cupola.resume(tmp_path / "link").finished
    assert cupola.load(tmp_path / "link").iteration == 6


@pytest.mark.parametrize("part", ["report", "report/tables", "report/figures"])
def test_a_report_does_not_follow_links(run, tmp_path, command, part):
    target = tmp_path / "target"
    target.mkdir()
    (run / part).parent.mkdir(exist_ok=True)
    (run / part).symlink_to(target)
    status, _, err = command("report", run)
    assert status == 1
    assert f"{part} is a link" in err
    assert list(target.iterdir()) == []


def test_files_of_a_report_that_are_links_are_replaced(run, victim, command):
    (run / "report" / "tables").mkdir(parents=True)
    for name in ("report.html", "report/curves.csv.gz", "report/tables/runs.csv"):
        (run / name).symlink_to(victim)
    assert command("report", run)[0] == 0
    assert victim.read_text() == "precious"
    assert not (run / "report.html").is_symlink()


# --- Directories that move while a run is trained ---


def trained_while(probe_run: Path, run: Path, act: Callable[[], object]) -> None:
    """The run of ``probe_run`` again, with something that happens after its third iteration."""
    fields = json.loads((probe_run / "config.json").read_text())
    sizes = ("batch_size", "num_envs", "minibatch_size", "epochs", "hidden")
    cupola.train(
        "ppo_lag",
        "ProbeQuadratic",
        out=run,
        listener=lambda metrics, timings: act() if metrics["iteration"] == 3 else None,
        **{name: fields["algorithm"][name] for name in sizes},
        **{name: fields[name] for name in ("iterations", "checkpoint_every", "threads")},
    )


def test_a_run_that_is_renamed_goes_on_in_its_directory(probe_run, tmp_path):
    run, moved = tmp_path / "new", tmp_path / "moved"
    trained_while(probe_run, run, lambda: run.rename(moved))
    assert not run.exists()
    for name in ("metrics.jsonl", "checkpoints/00000006.safetensors"):
        assert (moved / name).read_bytes() == (probe_run / name).read_bytes()


def test_another_run_that_gets_the_name_is_left_alone(run, probe_run, tmp_path):
    """Its checkpoints were replaced, and the oldest removed."""
    new, before = tmp_path / "new", contents(run)

    def swap() -> None:
        new.rename(tmp_path / "moved")
        run.rename(new)

    trained_while(probe_run, new, swap)
    assert contents(new) == before
    assert (tmp_path / "moved" / "checkpoints" / "00000006.safetensors").exists()


def test_a_run_that_is_deleted_ends_with_a_sentence(probe_run, tmp_path):
    run = tmp_path / "new"
    with pytest.raises(CupolaError, match="cannot write to"):
        trained_while(probe_run, run, lambda: shutil.rmtree(run))
    assert not run.exists()


def contents(run: Path) -> dict[str, tuple[int, bytes]]:
    """By name: which file it is, and what it holds."""
    files = (path for path in run.rglob("*") if path.is_file())
    return {str(path.relative_to(run)): (path.stat().st_ino, path.read_bytes()) for path in files}


# --- Pipes and devices ---


@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "timings.jsonl", "result.json"])
def test_what_is_no_file_is_refused_at_once(run, command, name, what):
    (run / name).unlink()
    if what == "pipe":
        os.mkfifo(run / name)
    elif what == "folder":
        (run / name).mkdir()
    else:
        (run / name).symlink_to("/dev/zero")
    status, _, err = command("compare", run)
    assert status == 1
    assert f"{name} is {'a link' if what == 'device' else 'not a regular file'}" in err


def test_a_checkpoint_that_is_a_pipe_is_passed_over(run):
    newest = run / "checkpoints" / "00000006.safetensors"
    newest.unlink()
    os.mkfifo(newest)
    with pytest.warns(UserWarning, match="is not a regular file. Going back to iteration 4"):
        assert cupola.load(run).iteration == 4


def test_a_file_that_the_user_names_may_be_a_link_but_no_pipe(tmp_path, victim):
    (tmp_path / "link").symlink_to(victim)
    assert read_file(tmp_path / "link", 100) == b"precious"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CupolaError, match="is not a regular file"):
        read_file(tmp_path / "pipe", 100)


# --- Bounds ---


def test_sizes_are_bounded(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"x" * 101)
    with pytest.raises(CupolaError, match="too large: more than 100 bytes"):
        Folder(tmp_path).read("file", 100)
    assert Folder(tmp_path).read("file", 101) == b"x" * 101


def test_an_endless_line_is_refused_after_its_first_megabyte(run):
    with (run / "metrics.jsonl").open("ab") as file:
        file.truncate(2**33)  # a file with a hole, which takes no room
    with pytest.raises(CupolaError, match=r"line 7 of .*metrics\.jsonl is longer than any line"):
        RunDirectory.open(run).metrics()


def test_a_small_file_of_curves_that_unpacks_to_much(tmp_path, monkeypatch, complaint):
    import gzip

    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"0" * 10_000))
    monkeypatch.setattr("cupola.reports.curves.MAX_CURVES", 1000)
    assert "too large" in complaint("report", tmp_path / "bomb.csv.gz")


# --- What killed writers leave ---


def test_the_next_writer_removes_what_killed_ones_left(run):
    stale = [run / ".0123456789abcdef.tmp", run / "checkpoints" / ".fedcba9876543210.tmp"]
    for file in stale:
        file.write_text("half")
    (run / "notes.tmp").write_text("mine")
    cupola.resume(run)
    assert not any(file.exists() for file in stale)
    assert (run / "notes.tmp").read_text() == "mine"


def test_the_name_of_a_temporary_file(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "replace", lambda source, target, **_: seen.append(source))
    Folder(tmp_path).write("file", b"data")
    assert [is_stale(name) for name in (*seen, "file", ".file.tmp")] == [True, False, False]
    assert files.Folder(tmp_path).names() == seen


def test_a_small_file_takes_little_memory_whatever_its_bound(tmp_path):
    """Python's read(n) takes n bytes before it reads."""
    (tmp_path / "small").write_bytes(b"abc")
    tracemalloc.start()
    assert Folder(tmp_path).read("small", 2**32) == b"abc"
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
