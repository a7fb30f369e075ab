"""Nothing of POSIX is in the way: whole commands in a Python without it (tests/windows)."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest

from cupola import drawing, memory, processes
from cupola.board.server import Board
from cupola.commands import parsing
from cupola.errors import CupolaError
from cupola.gym import lines
from cupola.reports.compare import short_names
from cupola.runs import files, handles
from cupola.runs.files import Folder
from cupola.sweeps import worker

WINDOWS = Path(__file__).parent / "windows"
linux = pytest.mark.skipif(sys.platform != "linux", reason="the simulation locks as Linux can")


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(WINDOWS), os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path, "COLUMNS": "160"}


def cupola(*args: object) -> subprocess.CompletedProcess[str]:
    """A command as on Windows."""
    command = [sys.executable, "-m", "cupola", *map(str, args)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


def begun(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cupola", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe, text=True)


def wait_for(condition: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lines_of(run: Path) -> int:
    file = run / "metrics.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


@linux
def test_the_simulation_takes_away_what_windows_does_not_have():
    program = (
        "import cupola.runs.lock as lock, cupola.signals as signals, cupola.runs.handles as h;"
        "from pathlib import Path;"
        "print(lock.fcntl, hasattr(h.os, 'O_NOFOLLOW'), type(h.entered(Path('.'))).__name__,"
        " [s.name for s in signals.REQUESTS])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert told.stdout == "None False ByName ['SIGINT', 'SIGTERM', 'SIGUSR2']\n", told.stderr


@linux
def test_a_run_is_trained_stopped_and_resumed_bit_for_bit(tmp_path, tiny_args):
    """And nobody else writes to it meanwhile."""
    run, whole, more = tmp_path / "run", tmp_path / "whole", ("--limit", "0.4")
    args = ("train", "ppo_lag", "ProbeQuadratic", *tiny_args, *more, "--iterations", "300")
    process = begun(*args, "--out", run)
    try:
        wait_for(lambda: lines_of(run) > 3, process)
        process.send_signal(signal.SIGSTOP)  # it waits, for the second one to look at it
        second = cupola("resume", run)
        assert second.returncode == 1
        assert f"{run} is in use: process {process.pid} on " in second.stderr
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        process.communicate()
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()
    assert lines_of(run) < 300
    resumed = cupola("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    here = [sys.executable, "-m", "cupola", *map(str, args), "--out", str(whole)]
    subprocess.run(here, check=True, capture_output=True)  # on the system as it is
    for name in ("metrics.jsonl", "checkpoints/00000300.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    evaluated = cupola("eval", run, "--episodes", 2)
    assert evaluated.returncode == 0, evaluated.stderr


@linux
def test_environments_in_workers(tmp_path, tiny_args):
    """Over their standard streams; what they print is no message."""
    at = tiny_args.index("--multiplier-lr")  # PPO has none
    args = ("train", "ppo", "gym:Pendulum-v1", *tiny_args[:at], "--iterations", "2")
    metrics = []
    for name, workers in (("alone", 0), ("workers", 2)):
        ended = cupola(*args, "--out", tmp_path / name, "--workers", workers)
        assert ended.returncode == 0, ended.stderr
        metrics.append((tmp_path / name / "metrics.jsonl").read_bytes())
    assert metrics[0] == metrics[1]


EXPERIMENT = """
name = "pair"
evaluation_episodes = 2
iterations = {iterations}
algorithms = ["ppo_lag"]
tasks = ["ProbeQuadratic"]
seeds = [0, 1]
[shared]
batch_size = 200
num_envs = 4
minibatch_size = 50
epochs = 2
hidden = [8, 8]
threads = 1
checkpoint_every = 1000000
"""


@linux
def test_a_sweep_is_stopped_saved_and_thrown_away(tmp_path):
    """Workers are asked over their standard input: they save what they have."""
    file, sweep = tmp_path / "pair.toml", tmp_path / "sweep"
    file.write_text(EXPERIMENT.format(iterations=1_000_000))
    process = begun("sweep", file, "--out", sweep, "--jobs", "2")
    try:
        wait_for(lambda: sum(lines_of(run) > 2 for run in sweep.glob("*")) == 2, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert (process.returncode, err) == (130, ""), out
    finally:
        process.kill()
        process.communicate()
    runs = [path.parent for path in sweep.glob("*/metrics.jsonl")]
    for run in runs:
        saved = [int(path.stem) for path in (run / "checkpoints").glob("*.safetensors")]
        assert saved == [lines_of(run)]
    file.write_text(EXPERIMENT.format(iterations=3))
    done = cupola("sweep", file, "--out", sweep, "--retrain-changed")
    assert done.returncode == 0, done.stderr
    assert [lines_of(run) for run in runs] == [3, 3]
    report = cupola("report", sweep)
    assert report.returncode == 0, report.stderr


@pytest.fixture
def by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder without descriptors."""
    monkeypatch.setattr(os, "supports_dir_fd", set())
    inside = tmp_path / "inside"
    inside.mkdir()
    assert isinstance(handles.entered(inside), handles.ByName)
    return Folder(inside)


def test_files_by_name(by_name):
    folder = by_name / "checkpoints"
    folder.make()
    folder.write("a", b"one")
    folder.write("a", b"two")
    with folder.extend("a") as file:
        files.append(file, b"!")
    with folder.create("b") as file:
        files.append(file, b"new")
    assert (folder.read("a"), folder.read("b"), folder.read("c")) == (b"two!", b"new", None)
    assert (folder.names(), by_name.entries()) == (["a", "b"], {"checkpoints": True})
    folder.remove("b")
    folder.remove("b")
    assert folder.names() == ["a"]
    with pytest.raises(CupolaError, match="is not a regular file"):
        by_name.read("checkpoints")


def test_links_are_refused_by_name(by_name, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"precious")
    (by_name.path / "file").symlink_to(outside / "victim")
    (by_name.path / "nowhere").symlink_to(outside / "new")
    (by_name.path / "checkpoints").symlink_to(outside)
    os.mkfifo(by_name.path / "pipe")
    for attempt in (
        lambda: by_name.read("file"),
        lambda: by_name.extend("file"),
        lambda: by_name.extend("nowhere"),
        lambda: (by_name / "checkpoints").write("victim", b""),
        lambda: (by_name / "checkpoints").make(),
    ):
        with pytest.raises(CupolaError, match="is a link, which cupola does not follow"):
            attempt()
    with pytest.raises(CupolaError, match="is not a regular file"):
        by_name.read("pipe")
    by_name.write("file", b"mine")  # replaces the link
    assert by_name.read("file") == b"mine"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"victim": b"precious"}


def test_a_link_that_comes_in_between_is_refused(by_name, tmp_path, monkeypatch):
    (tmp_path / "victim").write_bytes(b"precious")
    by_name.write("file", b"mine")
    real = os.open

    def swap(path, *args, **options):
        if str(path).endswith("/file"):
            os.unlink(path)
            os.symlink(tmp_path / "victim", path)
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(CupolaError, match="is a link"):
        by_name.read("file")


def test_a_junction_is_a_link(tmp_path):
    class Found:
        st_mode, st_reparse_tag = stat.S_IFDIR, 0xA0000003

    assert handles.is_link(Found())
    assert not handles.is_link(os.lstat(tmp_path))


def test_a_file_that_somebody_reads_is_replaced_a_little_later(by_name, monkeypatch):
    """Windows refuses it as long as the file is open."""
    real, refused = os.replace, []

    def replace(old, new):
        if len(refused) < 3:
            refused.append(new)
            raise PermissionError(errno.EACCES, "Permission denied")
        real(old, new)

    monkeypatch.setattr(os, "replace", replace)
    by_name.write("a", b"data")
    assert (by_name.read("a"), by_name.names(), len(refused)) == (b"data", ["a"], 3)
    monkeypatch.setattr(handles, "PATIENCE", 0.0)
    refused.clear()
    with pytest.raises(PermissionError):
        by_name.write("a", b"more")
    assert (by_name.read("a"), by_name.names()) == (b"data", ["a"])


def test_memory_of_a_machine_without_sysconf(monkeypatch):
    """As Windows tells it: in kilobytes, or not at all."""
    import ctypes

    def tell(pointer):
        pointer._obj.value = 8 * 2**20
        return told

    kernel = types.SimpleNamespace(GetPhysicallyInstalledSystemMemory=tell)
    windll = types.SimpleNamespace(kernel32=kernel)
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    monkeypatch.setattr(memory, "CONTAINER", Path("/nowhere"))
    monkeypatch.delattr(os, "sysconf")
    told = 1
    assert memory.machine_memory() == 8 * 2**30
    told = 0
    assert memory.machine_memory() == memory.UNKNOWN


def test_figures_where_directories_have_no_descriptors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(os, "fchdir")
    with drawing._elsewhere():
        assert Path.cwd() == Path(drawing.__file__).parent
    assert Path.cwd() == tmp_path


def test_processes_apart_without_sessions(monkeypatch):
    assert processes.apart() == {"start_new_session": True}
    monkeypatch.delattr(os, "setsid")
    assert processes.apart() == {"creationflags": 0x200}


def test_messages_on_streams():
    a, b = (os.pipe() for _ in range(2))
    ours = lines.Streams(os.fdopen(a[0], "rb"), os.fdopen(b[1], "wb"))
    theirs = lines.Streams(os.fdopen(b[0], "rb"), os.fdopen(a[1], "wb"))
    message = {"large": bytes(3_000_000), "small": [1.5, None]}
    sender = threading.Thread(target=theirs.send, args=[message])
    sender.start()
    assert ours.recv() == message
    sender.join()
    ours.send_bytes(b"")
    assert theirs.recv_bytes() == b""
    theirs.close()
    with pytest.raises(EOFError):
        ours.recv()
    with pytest.raises(OSError, match="pipe"):
        ours.send(message)
    ours.close()


def test_a_worker_is_asked_to_stop_without_signals(monkeypatch):
    """Before its training begins it ends at once."""
    program = "import time; from cupola.sweeps.worker import end_with_parent as e; {}"
    monkeypatch.delattr(signal, "SIGKILL")
    process = subprocess.Popen([sys.executable, "-c", program.format("e()")], stdin=subprocess.PIPE)
    worker.ask_to_stop(process)
    assert process.wait(60) == 130
    worker.ask_to_stop(process)  # too late, and no harm
    with contextlib.suppress(OSError):
        process.stdin.close()


def test_several_drives(monkeypatch):
    def fail(*_):
        raise ValueError("Paths don't have the same drive")

    monkeypatch.setattr(os.path, "commonpath", fail)
    assert short_names([Path("/a/x"), Path("/b/y")]) == ["/a/x", "/b/y"]
    monkeypatch.setattr(os.path, "relpath", fail)
    monkeypatch.setattr(parsing.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["/d/cupola.exe"])
    assert parsing.program() == "/d/cupola.exe"


@pytest.mark.parametrize(("system", "shared"), [("linux", True), ("win32", False)])
def test_the_port_of_the_board_is_its_own(monkeypatch, system, shared):
    monkeypatch.setattr(sys, "platform", system)
    with Board(None, 0) as board:
        assert board.allow_reuse_address is shared
