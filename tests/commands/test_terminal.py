"""What a terminal shows: plain sentences, names as they are, characters that it has."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

LONG = "y" * 150
REFUSED = {
    "resume": "cupola: cupola resume needs RUN: The run's directory.",
    f"eval x --seed {LONG}": f"cupola: --seed takes a whole number, not '{LONG}'",
    "train cup HopperSpeed --gamma x": "cupola: --gamma takes a number, not 'x'",
    "sweep x --engine foo": "cupola: invalid choice 'foo' for argument '--engine'. Expected one of"
    " ('local', 'ray').",
    "list a b": "cupola: Unrecognized options: a, b",
    "eval a\x1b[31m": r"cupola: there is no directory a\x1b[31m.",
}


def on_terminal(*args: str, **variables: str) -> str:
    """What `cupola ARGS` shows on a terminal of 80 columns."""
    terminal, inside = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color"} | variables
    environment.pop("COLUMNS", None)
    with subprocess.Popen(
        [sys.executable, "-m", "cupola", *args],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=environment,
    ):
        os.close(inside)
        shown = b""
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:  # the end, on Linux
            pass
    os.close(terminal)
    return shown.decode()


@pytest.mark.parametrize("line", REFUSED)
def test_an_error_on_a_terminal_is_one_plain_sentence(line):
    assert on_terminal(*line.split()) == REFUSED[line] + "\r\n"


def test_help_on_a_terminal_has_its_colours():
    shown = on_terminal("eval", "--help")
    assert shown.count("usage:") == 1
    assert "\x1b[1m" in shown
    assert "╭" in shown


ODD = "[/b] :apple: [red]$x"


@pytest.fixture
def odd(copy: Path, tmp_path: Path) -> Path:
    """A run whose names look like markup and emoji."""
    folder = tmp_path / "[/b] [link=x]"
    folder.parent.mkdir()
    copy.rename(folder)
    config = json.loads((folder / "config.json").read_text())
    config["task"] = ODD
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_names_are_shown_as_they_are(command, odd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = command("compare", odd)
    assert status == 0
    assert ODD in out
    assert "[/b] [link=x]" in out


def test_no_name_is_a_terminal_code(command, odd):
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(config | {"task": "red\x1b[31m"}))
    status, out, err = command("compare", odd)
    assert status == 1
    assert "\x1b" not in out + err


def test_no_path_is_a_terminal_code(command, copy):
    """What `report` prints last is where the page is."""
    folder = copy.rename(copy.with_name("red\x1b[31m\r\x07"))
    for action in ("report", "compare"):
        status, out, err = command(action, folder)
        assert status == 0
        assert not set("\x1b\r\x07") & set(out + err)


def test_a_path_that_looks_like_markup(command, tiny_args, tmp_path):
    out = tmp_path / "[/b] [red]"
    status, shown, err = command("train", "cup", "ProbeRegulator", "--out", out, *tiny_args)
    assert (status, err) == (0, "")
    assert f"eval {out} --episodes 20" in shown


ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
QUICK = ("list", "eval --help", "eval nowhere-\u2014-\u0101", "compare {run}")
SLOW = ("eval {run} --episodes 2", "diagnose {run} --batches 2 --episodes 2")
EACH = """
import sys
from cupola.cli import main
for line in sys.argv[1:]:
    code = 0
    try:
        main(line.split())
    except SystemExit as stop:
        code = stop.code or 0
    print(end="\\0", flush=True)
    print(f"\\0{code}\\0", end="", file=sys.stderr, flush=True)
"""
LINES = {
    "ascii": (ASCII, QUICK),
    "ascii, eval": (ASCII, SLOW[:1]),
    "ascii, diagnose": (ASCII, SLOW[1:]),
    "locale": (LOCALE, QUICK),
    "latin-1": ({"PYTHONIOENCODING": "latin-1"}, QUICK),
}


@pytest.mark.parametrize(("variables", "lines"), LINES.values(), ids=LINES)
def test_tables_without_unicode(trained, tmp_path, variables, lines):
    command = [sys.executable, "-c", EACH, *(line.format(run=trained.path) for line in lines)]
    child = subprocess.run(
        command, capture_output=True, env=os.environ | variables, cwd=tmp_path, check=True
    )
    outs, errs = (
        text.decode("ascii", "replace").split("\0")[:-1] for text in (child.stdout, child.stderr)
    )
    for line, out, err, code in zip(lines, outs, errs[::2], errs[1::2], strict=True):
        if "nowhere" in line:
            assert (code, out) == ("1", "")
            assert err.startswith("cupola: there is no directory nowhere-")
            assert err.count("\n") == 1
        else:
            assert (code, err) == ("0", ""), line
            assert "?" not in out.replace(" ? ", "")
            rows = [row for row in out.splitlines() if row.startswith("|")]
            assert all(row.endswith("|") for row in rows)
            assert len({len(row) for row in rows}) <= 3, rows  # tables, each with one width
