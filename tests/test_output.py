"""Output that breaks does no harm: real trainings whose reader, terminal or disk goes away."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cupola
from cupola import training
from cupola.errors import CupolaError
from cupola.output import Forgiving, forgiving_output, showable, visible
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.sinks.tensorboard import TensorBoard
from cupola.signals import stop_requests

# The shapes of tests/conftest.py: they are compiled once.
ENDLESS = ["--iterations", "1000000", "--checkpoint-every", "1000000"]


def command(run: Path, tiny_args: list[str], *more: str) -> list[str]:
    train = ["train", "cup", "ProbeRegulator", "--out", str(run), *tiny_args, *more]
    return [sys.executable, "-m", "cupola", *train]


def lines(run: Path) -> int:
    """Of the metrics, while a training writes them."""
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for_lines(run: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while lines(run) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def started(args: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that does not outlive a test that fails."""
    with subprocess.Popen(args, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def newest(run: Path) -> checkpoints.Checkpoint:
    found, faults = checkpoints.newest(RunDirectory(run).checkpoints)
    assert found is not None, faults
    return found


def assert_saved_to_the_last_iteration(run: Path) -> None:
    done = len(RunDirectory(run).metrics())
    assert checkpoints.iterations(RunDirectory(run).checkpoints) == [done]
    assert newest(run).iteration == done


def test_ctrl_c_behind_a_dead_pipe(tmp_path, tiny_args):
    """`cupola train ... 2>&1 | tee log`, where Ctrl-C ends tee too."""
    run = tmp_path / "run"
    with started(
        command(run, tiny_args, *ENDLESS), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        assert b"compiling" in process.stdout.readline()
        assert b"return" in process.stdout.readline()
        process.stdout.close()
        reached = lines(run)
        time.sleep(2.5)  # in which a line is due
        wait_for_lines(run, reached + 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert_saved_to_the_last_iteration(run)


def test_a_closed_terminal_is_a_request_to_stop(tmp_path, tiny_args):
    run = tmp_path / "run"
    terminal, inside = pty.openpty()
    owning = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    owning += " os.execv(sys.argv[1], sys.argv[1:])"
    with started(
        [sys.executable, "-c", owning, *command(run, tiny_args, *ENDLESS)],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    ) as process:
        os.close(inside)
        os.set_blocking(terminal, False)
        deadline = time.monotonic() + 120
        while not lines(run):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            with contextlib.suppress(BlockingIOError):
                os.read(terminal, 65536)
        os.close(terminal)
        assert process.wait(60) == 130
    assert_saved_to_the_last_iteration(run)


@pytest.mark.parametrize("redirection", [">/dev/full 2>&1", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_training_without_a_place_to_print_is_the_same_training(
    tmp_path, tiny, tiny_args, redirection
):
    """With a descriptor closed, the next file that is opened would take its place."""
    run = tmp_path / "run"
    args = command(run, tiny_args)
    child = subprocess.run(["bash", "-c", f'exec "$@" {redirection}', "-", *args], check=False)
    assert child.returncode == 0
    other = cupola.train("cup", "ProbeRegulator", out=tmp_path / "other", **tiny)
    assert RunDirectory(run).metrics() == other.metrics
    ours, theirs = (newest(path).arrays for path in (run, tmp_path / "other"))
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in theirs)


def failing_at(iteration: int) -> Callable[[Any, Any], None]:
    def listener(metrics: Any, timings: Any) -> None:
        if metrics["iteration"] == iteration:
            raise BrokenPipeError("of the listener")

    return listener


def test_a_listener_that_fails_loses_nothing(tmp_path, tiny):
    run, fields = tmp_path / "run", tiny | {"checkpoint_every": 100}
    with pytest.raises(BrokenPipeError, match="of the listener"):
        cupola.train("cup", "ProbeRegulator", out=run, listener=failing_at(3), **fields)
    assert_saved_to_the_last_iteration(run)
    whole = cupola.train("cup", "ProbeRegulator", out=tmp_path / "whole", **fields)
    assert cupola.resume(run).metrics == whole.metrics


def test_a_checkpoint_comes_before_its_iteration_is_told(tmp_path, tiny):
    run, seen = tmp_path / "run", {}

    def listener(metrics, timings):
        seen[metrics["iteration"]] = checkpoints.iterations(RunDirectory(run).checkpoints)
        if metrics["iteration"] == 4:
            signal.raise_signal(signal.SIGHUP)

    fields = tiny | {"checkpoint_every": 3}
    stopped = training.train("cup", "ProbeRegulator", out=run, listener=listener, **fields)
    assert not stopped.finished
    assert seen == {1: [], 2: [], 3: [3], 4: [3]}
    assert cupola.resume(run, listener=listener).finished
    assert seen[5] == [3, 4]
    assert seen[6] == [3, 4, 6]


def test_a_sink_without_room_does_not_cost_the_iteration(tmp_path, tiny, monkeypatch):
    def full(self, metrics, timings):
        if metrics["iteration"] == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(TensorBoard, "log", full)
    run = tmp_path / "run"
    with pytest.raises(CupolaError, match=r"No space left.*the run is safe up to iteration 3"):
        cupola.train("cup", "ProbeRegulator", out=run, **tiny | {"checkpoint_every": 100})
    assert_saved_to_the_last_iteration(run)


def test_a_closed_terminal_that_is_ignored_stays_ignored():
    """As `nohup` asks for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert not stopping.is_set()
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_stops_also_what_a_shell_started_in_the_background():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_requests() as stopping:
            signal.raise_signal(signal.SIGINT)
            assert stopping.is_set()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # a second one ends at once
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_every_request_stops_and_the_handlers_come_back():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        before = signal.getsignal(number)
        with stop_requests() as stopping:
            signal.raise_signal(number)
            assert stopping.is_set()
        assert signal.getsignal(number) is before


# --- The streams themselves ---


def test_a_stream_falls_silent(capfd):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as broken:
        stream = Forgiving(broken)
        for _ in range(3):
            print("lost", file=stream, flush=True)
        assert os.readlink(f"/proc/self/fd/{write}") == os.devnull
    closed = io.StringIO()
    closed.close()
    print("lost", file=Forgiving(closed), flush=True)
    assert capfd.readouterr() == ("", "")


def test_the_streams_of_before_come_back(capsys, monkeypatch):
    with forgiving_output():
        print("kept")
    assert capsys.readouterr().out == "kept\n"
    monkeypatch.setattr(sys, "stdout", None)
    with forgiving_output():
        print("lost")
    assert sys.stdout is None


def test_characters_that_are_not_there_have_stand_ins():
    text = "± 1 … ┏━┓ │ \udcff é"
    assert showable(text, "ascii") == "+- 1 . +-+ | ? ?"
    assert showable(text, "utf-8") == "± 1 … ┏━┓ │ ? é"
    assert showable("é", "latin-1") == "é"


def test_what_a_terminal_would_obey_is_written_out():
    assert visible("a\x1b[31mb\x07\x9bc\nd é") == r"a\x1b[31mb\x07\x9bc" + "\nd é"
