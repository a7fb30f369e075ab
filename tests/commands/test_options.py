"""Options in groups, and what a shell completes."""

import dataclasses
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest

from cupola import algos, tasks
from cupola.cli import COMMANDS
from cupola.commands.completion import arguments_of_commands
from cupola.commands.options import field_texts, gathered, groups, names_of_fields
from cupola.config import RunOptions


@dataclass(frozen=True, kw_only=True)
class Base:
    """What all have."""

    GROUP = "base"

    size: int = 1
    """How large
    it is."""
    plain: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Derived(Base):
    """What is special."""

    size: int = 2
    name: str = "x"
    """What it is called."""


def test_a_field_belongs_to_the_class_that_declares_it_first():
    (base, base_kind, base_default), (own, own_kind, _) = groups(Derived(), own="mine")
    assert (base, own) == ("base", "mine")
    assert base_default == base_kind(size=2, plain=0.5)
    assert [field.name for field in dataclasses.fields(own_kind)] == ["name"]
    assert (base_kind.__doc__, own_kind.__doc__) == ("What all have.", "What is special.")
    assert gathered(Derived, [base_kind(size=3, plain=1.0), own_kind(name="y")]) == Derived(
        size=3, plain=1.0, name="y"
    )


def test_all_commands_are_completed():
    assert set(arguments_of_commands()) | {"train"} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_shows_how_a_missing_value_is_written_in_python(command, name):
    status, out, _ = command(name, "--help")
    assert status == 0
    assert "None" not in out


def test_texts_of_fields_are_inherited():
    assert field_texts(Derived) == {"size": "How large it is.", "name": "What it is called."}


@pytest.mark.parametrize("algo", algos.names())
def test_the_help_of_every_algorithm(command, monkeypatch, algo):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, err = command("train", algo, "--help")
    assert (status, err) == (0, "")
    assert f"usage: cupola train {algo}" in out
    for group in ("run", "sampling", "advantage", "network", "learning", "update", "gymnasium"):
        assert out.count(f" {group} options ") == 1
    config = algos.load_algorithm(algo).Config
    assert (" multiplier options " in out) == hasattr(config, "nu_max")
    assert "None" not in out
    for field in (*dataclasses.fields(config), *dataclasses.fields(RunOptions)):
        assert len(re.findall(rf"--{field.name.replace('_', '-')} ", out.replace(",", " "))) == 1
    assert set(field_texts(config)) == {field.name for field in dataclasses.fields(config)}


def test_the_help_without_an_algorithm_says_that_each_has_more(command):
    status, out, err = command("train", "--help")
    assert (status, err) == (0, "")
    assert "ALGO TASK" in out
    assert "cupola train cup --help" in out
    assert "--seed" in out
    assert "--clip" not in out


def test_capitals_and_dashes_of_an_algorithm_do_not_matter(command):
    status, out, err = command("train", "PPO-Lag", "--help")
    assert (status, err) == (0, "")
    assert " ppo-lag options " in out


COMPLETE = """
source ./script
complete_words() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  ${function}; echo "${COMPREPLY[*]}"
}
function=$(complete -p cupola | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_completion_in_bash(command, tmp_path):
    status, script, err = command("completion", "bash")
    assert (status, err) == (0, "")
    (tmp_path / "script").write_text(script)
    asked = {
        "tr": ["train"],
        "train fo": ["focops"],
        "train cup Hop": ["HopperSpeed"],
        "train cup HopperSpeed --multiplier-o": ["--multiplier-optimiser"],
        "train cup gym:Pendulum-v1 --multiplier ''": ["integral", "pid", "predicted"],
        "bench CarG": [name for name in tasks.specs() if name.startswith("CarG")],
        "eval somewhere --chec": ["--checkpoint"],
        "eval somew": [],
    }
    lines = "".join(f"complete_words cupola {words}\n" for words in asked)
    child = subprocess.run(
        ["bash", "-c", COMPLETE + lines], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert child.stderr == ""
    assert [line.split() for line in child.stdout.splitlines()] == list(asked.values())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_for_other_shells_names_commands_and_options(command, shell):
    status, script, _ = command("completion", shell)
    assert status == 0
    for word in ("train", "ppo_lag", "--multiplier-optimiser", "--checkpoint"):
        assert word in script


@pytest.mark.parametrize("algo", algos.names())
def test_fields_that_are_read_without_loading_an_algorithm(algo):
    fields = dataclasses.fields(algos.load_algorithm(algo).Config)
    assert names_of_fields(algo) == {field.name for field in fields}


def test_fields_of_an_algorithm_that_derives_from_something_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "config.py").write_text("class Common:\n    x: int = 1\n")
    (tmp_path / "mine.py").write_text("class Config(Common):\n    y: int = 2\n")
    (tmp_path / "theirs.py").write_text("class Config(other.Config):\n    y: int = 2\n")
    monkeypatch.setattr(algos, "__path__", [str(tmp_path)])
    assert names_of_fields("mine") == {"x", "y"}
    assert names_of_fields("theirs") is None
