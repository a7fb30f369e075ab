"""One writer per run, and a lock that goes with its process."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cupola
from cupola.errors import CupolaError
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.runs.lock import locked


@pytest.fixture
def run(probe_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(probe_run, tmp_path / "run"))


HOLD = """
import sys, time
from pathlib import Path
from cupola.runs.directory import RunDirectory
run = RunDirectory.open(Path(sys.argv[1]))
run.lock()
{more}
print("held", flush=True)
time.sleep(600)
"""
FORK = """
import os
if os.fork() == 0:
    time.sleep(600)
"""


def hold(run: Path, more: str = "") -> subprocess.Popen[str]:
    """A process that holds the lock of a run."""
    command = [sys.executable, "-c", HOLD.format(more=more), str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_writer_says_who_the_first_is(run, command):
    holder = hold(run)
    try:
        who = f"process {holder.pid} on {platform.node()} has been at work on it since 20"
        status, _, err = command("resume", run)
        assert (status, err.count("\n")) == (1, 1)
        assert err.startswith(f"cupola: {run} is in use: {who}")
        # Readers do not mind.
        assert command("compare", run)[0] == 0
        assert cupola.load(run).iteration == 6
    finally:
        holder.kill()
        holder.communicate()
    assert cupola.resume(run).finished  # kill -9 leaves no lock behind


def test_a_new_run_is_locked_before_its_config_is_there(tmp_path):
    path = tmp_path / "new"
    path.mkdir()
    with locked(Folder(path), ".lock", "it", 0.0), pytest.raises(CupolaError, match="is in use"):
        cupola.train("ppo_lag", "ProbeQuadratic", out=path, iterations=1)
    assert [file.name for file in path.iterdir()] == [".lock"]
    assert cupola.train("ppo_lag", "ProbeQuadratic", out=path, iterations=1).finished


def test_a_forked_child_does_not_keep_the_lock(run):
    """As an environment may have them; it lives on when its parent is killed."""
    holder = hold(run, FORK)
    try:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with RunDirectory.open(run) as mine:
            mine.lock()
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


def test_a_child_process_does_not_get_the_lock(run):
    with RunDirectory.open(run) as mine:
        mine.lock()
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with RunDirectory.open(run) as again:
        again.lock()
    child.communicate()


def test_a_lock_with_nonsense_in_it(run):
    with RunDirectory.open(run) as mine:
        mine.lock()
        (run / ".lock").write_text("\x1b[31m")
        with pytest.raises(CupolaError, match="is in use: another process is at work on it"):
            RunDirectory.open(run).lock()


def test_a_lock_waits_for_who_is_dying(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from cupola.runs.files import Folder;"
        "from cupola.runs.lock import locked\n"
        "with locked(Folder(Path(sys.argv[1])), 'lock', 'it', 0.0):\n"
        "    print('held', flush=True); time.sleep(0.5)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    began = time.monotonic()
    with locked(Folder(tmp_path), "lock", "it", 60.0):
        assert time.monotonic() - began > 0.2
    process.communicate()
