"""Defects of earlier versions, each as a user met it: by the command line and by files.

These tests know nothing of how runs are read and written, so they can be run on any version.
docs/attacks.md lists them beside those of the other defects.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cupola
from cupola.diagnosis.figure import draw_diagnosis

pytestmark = pytest.mark.filterwarnings("always")


@pytest.fixture
def run(probe_run: Path, tmp_path: Path) -> Path:
    """Six iterations, a checkpoint every two."""
    return Path(shutil.copytree(probe_run, tmp_path / "run"))


@pytest.fixture
def in_seconds() -> Iterator[None]:
    """What waits for ever fails."""

    def late(*_: object) -> None:
        raise TimeoutError("it did not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines."""
    text = (run / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def checkpoint(run: Path, name: str) -> Path:
    return run / "checkpoints" / f"{name}.safetensors"


def test_a_planted_link_overwrites_no_file(command, run, tmp_path):
    """The temporary file of metrics.jsonl had a name that anybody could foresee."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run / ".metrics.jsonl.tmp").symlink_to(victim)
    checkpoint(run, "00000006").unlink()
    command("resume", run)
    assert victim.read_text() == "precious"


def test_two_processes_do_not_write_to_one_run(command, run):
    """Both went on, and overwrote each other's lines."""
    edit(run / "config.json", iterations=300)
    first = subprocess.Popen([sys.executable, "-P", "-m", "cupola", "resume", str(run)])
    try:
        while len(metrics(run)) <= 6 and first.poll() is None:
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        before = (run / "metrics.jsonl").read_bytes()
        status, _, err = command("resume", run)
        assert (status, "in use" in err) == (1, True)
        assert (run / "metrics.jsonl").read_bytes() == before
        first.send_signal(signal.SIGCONT)
        assert first.wait() == 0
    finally:
        first.kill()
        first.wait()
    assert [line["iteration"] for line in metrics(run)] == list(range(1, 301))


def test_a_damaged_line_is_not_a_shorter_run(command, run):
    """The report showed the numbers before the damage, and called the run finished."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([*lines[:2], b"{?}\n", *lines[3:]]))
    status, _, err = command("report", run)
    assert status == 1
    assert "line 3 of" in err


def test_resume_deletes_no_checkpoints_of_another_run(command, run, tmp_path):
    """`checkpoints` was a link to those of a longer run: resume kept its own last few there."""
    other = tmp_path / "other"
    shutil.copytree(run / "checkpoints", other)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(other)
    edit(run / "config.json", iterations=8)
    before = sorted(other.iterdir())
    command("resume", run)
    assert sorted(other.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", b"\xff\xfe\n"),
        ("config.json", b"[" * 100_000),
        ("metrics.jsonl", b"[1, 2]\n"),
        ("metrics.jsonl", b'{"iteration": 1e400}\n'),
    ],
    ids=["not UTF-8", "deep", "a list", "no number"],
)
@pytest.mark.parametrize("action", ["compare", "report"])
def test_a_damaged_file_is_one_sentence(command, run, action, name, content):
    """All of these were tracebacks."""
    (run / name).write_bytes(content)
    status, _, err = command(action, run)
    assert status == 1
    assert name in err
    assert all(line.startswith("cupola: ") for line in err.splitlines())


def test_a_hole_in_the_metrics_is_not_filled_with_later_lines(command, run):
    """Rewinding kept as many lines as the checkpoint had iterations, whichever they were."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join([lines[0], *lines[2:5]]))  # 1, 3, 4, 5
    checkpoint(run, "00000006").unlink()
    status, _, err = command("resume", run)
    assert [line["iteration"] for line in metrics(run)] == [1, 3, 4, 5], "nothing was rewritten"
    assert (status, err.count("\n")) == (1, 1)
    assert "line 2 of" in err


@pytest.mark.usefixtures("in_seconds")
def test_metrics_without_an_end_are_refused(command, run):
    """`compare` waited for a pipe, for ever."""
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    status, _, err = command("compare", run)
    assert status == 1
    assert "metrics.jsonl is not a regular file" in err


def test_a_finished_run_that_lost_its_checkpoints_is_not_trained_again(command, run):
    shutil.rmtree(run / "checkpoints")
    before = (run / "metrics.jsonl").stat().st_ino
    status, _, err = command("resume", run)
    assert status == 1
    assert "--restart" in err
    assert (run / "metrics.jsonl").stat().st_ino == before


def test_a_path_that_looks_like_markup_breaks_no_table(command, run, monkeypatch):
    odd = run.parent / "[/b] [red]"
    odd.parent.mkdir()
    run.rename(odd)
    monkeypatch.setenv("COLUMNS", "300")
    status, out, err = command("compare", odd)
    assert (status, err) == (0, "")
    assert "[/b] [red]" in out


def test_a_task_that_looks_like_mathematics_breaks_no_figure(run):
    """That of a diagnosis, whose task may be one of the user's, with any name."""
    found = cupola.diagnose(run, batches=2, episodes=2)
    picture = draw_diagnosis(found._replace(task=r"$\frac{$"))
    assert picture.startswith(b"\x89PNG")


def test_fewer_iterations_than_are_done(command, run):
    """They were said to be finished, and the evaluation was of another number of iterations."""
    edit(run / "config.json", iterations=3)
    status, _, err = command("resume", run)
    assert status == 1
    assert "asks for 3 iterations, and 6 are done" in err


@pytest.mark.parametrize(
    ("name", "said"),
    [("5", "is not called as a checkpoint is"), ("00000007", "of iteration 6: it was renamed")],
)
def test_a_renamed_checkpoint_is_told(command, run, name, said):
    before = metrics(run)
    checkpoint(run, "00000006").rename(checkpoint(run, name))
    status, _, err = command("resume", run)
    assert status == 0
    assert said in err
    assert metrics(run) == before


def test_gamma_0_with_a_discounted_limit_says_what_is_wrong(complaint, tiny_args):
    line = ("train", "cup", "HopperSpeed", "--gamma", "0", *tiny_args)
    assert "the discounted return, of which gamma=0 leaves" in complaint(*line)


def test_cup_on_a_batch_of_one_says_what_is_possible(complaint):
    """It asked for a minibatch of at most 0."""
    sizes = ("--batch-size", "1", "--num-envs", "1", "--minibatch-size", "1")
    said = complaint("train", "cup", "HopperSpeed", "--multiplier", "predicted", *sizes)
    assert "at least 2" in said
