"""The command line itself: usage, unknown commands, errors of a real process."""

import os
import subprocess
import sys

import pytest

import cupola

REFUSED = [
    ("trian cup HopperSpeed", "unknown command 'trian': did you mean 'train'?"),
    ("list everything", "everything"),
    ("export", "cupola export needs RUN: The run's directory, one of its checkpoints, or a policy"),
    ("export", "; FILE: policy.onnx for ONNX (needs the extra onnx), or policy.npz for plain"),
    ("render", "cupola render needs TASK: A task of cupola list, or gym:ID."),
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


HEAVY = (
    "jax",
    "jaxlib",
    "optax",
    "mujoco",
    "scipy",
    "matplotlib",
    "PIL",
    "tensorboardX",
)


LIGHT = (
    *("--help", "--version", "list", "train --help", "train", "eval --help", "resume --help"),
    *("bench --help", "diagnose --help", "board --help", "sweep --help", "report --help"),
    *("lits", "train cupp HopperSpeed", "train cup HoperSpeed", "train cup --preset papr"),
    *("train cup HopperSpeed --limits 3", "train ppo HopperSpeed --nu-init 3"),
    *("eval --episodes many", "resume --itreations 3", "sweep"),
)
LOADED = """
import sys
from cupola.cli import main
names, *lines = sys.argv[1:]
for line in lines:
    try:
        main(line.split())
    except SystemExit:
        pass
    print(line, [name for name in names.split() if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("lines", "names"),
    [(LIGHT, HEAVY), (("eval nowhere", "diagnose nowhere", "train cup --epochs x"), ("scipy",))],
    ids=["help, lists and wrong arguments", "what takes JAX to be refused"],
)
def test_what_is_quick_does_not_wait_for_heavy_packages(lines, names):
    """In one process: the first line that loads one is at fault."""
    command = [sys.executable, "-c", LOADED, " ".join(names), *lines]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    said = child.stderr.splitlines()
    assert [line for line in said if line.endswith("]")] == [f"{line} []" for line in lines]


def test_importing_cupola_loads_nothing_heavy():
    program = f"import sys, cupola; print([name for name in {HEAVY} if name in sys.modules])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_platform_that_jax_does_not_have_is_one_sentence(tmp_path):
    args = [sys.executable, "-m", "cupola", "train", "cup", "ProbeQuadratic"]
    surroundings = os.environ | {"JAX_PLATFORMS": "nonsense"}
    child = subprocess.run(
        args, capture_output=True, text=True, cwd=tmp_path, env=surroundings, check=False
    )
    assert child.returncode == 1
    assert child.stderr.startswith("cupola: JAX does not start: Unable to initialize backend")
    assert child.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
