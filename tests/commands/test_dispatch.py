"""The command line itself: usage, unknown commands, errors of a real process."""

import os
import subprocess
import sys

import pytest

import cupola

REFUSED = [
    ("trian cup HopperSpeed", "unknown command 'trian': did you mean 'train'?"),
    ("list everything", "everything"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()


def test_no_command_shows_the_usage_and_help_is_not_an_error(command):
    status, out, _ = command()
    assert status == 2
    assert "cupola train ALGO TASK" in out
    for args in (("--help",), ("train", "cup", "--help"), ("eval", "--help")):
        status, out, err = command(*args)
        assert (status, err) == (0, "")
        assert "usage" in out.lower()
    assert "--minibatch-size" in command("train", "cup", "--help")[1]
    for asked in ("--version", "version"):
        assert command(asked) == (0, f"cupola {cupola.__version__}\n", "")


def test_a_command_that_fails_in_a_real_process(tmp_path):
    args = [sys.executable, "-m", "cupola", "train", "cup", "HoperSpeed"]
    child = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr == "cupola: unknown task 'HoperSpeed': did you mean 'HopperSpeed'?\n"
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_traceback(tmp_path):
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run(
        [sys.executable, "-m", "cupola", "list"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert child.stderr == b""
    assert child.returncode == 0


@pytest.mark.parametrize(
    "line",
    ["--help", "--version", "eval --help", "bench --help", "diagnose --help", "board --help"],
)
def test_help_does_not_wait_for_jax(line):
    program = "import sys; from cupola.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    program += "sys.exit('jax' in sys.modules)"
    command = [sys.executable, "-c", program, *line.split()]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
