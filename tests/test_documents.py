"""What README, docs and tutorials tell the reader to type runs as it stands, from top to bottom.

Only trainings, diagnoses and grids are smaller.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import cupola
from cupola import interface
from cupola.cli import main

ROOT = Path(__file__).parents[1]
BRIEF = {
    "batch_size": 200,
    "num_envs": 4,
    "minibatch_size": 50,
    "epochs": 2,
    "hidden": (8, 8),
    "iterations": 6,
    "threads": 1,
    "sinks": (),
    "progress": False,
}
# Of tutorials, in Python and on the command line, so that one compilation serves both. Some
# episodes of 1000 steps end, so that there is a best policy.
BRIEF_TUTORIAL = {
    "batch_size": 4000,
    "num_envs": 4,
    "minibatch_size": 500,
    "epochs": 1,
    "critic_epochs": 1,
    "iterations": 3,
    "threads": 1,
}
BRIEF_OPTIONS = {
    "train": {f"--{name.replace('_', '-')}": str(x) for name, x in BRIEF_TUTORIAL.items()},
    "diagnose": {"--batches": "2", "--episodes": "2"},
    "eval": {"--episodes": "2"},
}
BLOCK = re.compile(r'^```(python|sh|toml)(?: title="(.+?)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def snippets(document: str) -> str:
    """All that a document tells to type as Python, line for line where it stands.

    A block with a title is a file to save; a line of a block of shell is a command.
    """
    text = (ROOT / document).read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        language, title, inside = block.groups()
        first = text[: block.start(3)].count("\n")
        code = inside.splitlines()
        if title:
            code = [f"save({title!r}, {inside!r})"]
        elif language == "sh":
            code = [f"shell({line!r})" for line in code]
        elif language == "toml":
            continue
        lines[first : first + len(code)] = code
    return "\n".join(lines)


def save(name: str, text: str) -> None:
    """Write a file as the reader would; an experiment gets one short run per algorithm."""
    text = re.sub(r"^iterations = \d+$", "iterations = 3", text, flags=re.MULTILINE)
    Path(name).write_text(re.sub(r"^seeds = \d+$", "seeds = 1", text, flags=re.MULTILINE))


def shell(line: str) -> None:
    """A command of cupola in this process, shortened where that is possible."""
    program, command, *words = shlex.split(line)
    assert program == "cupola"
    options = BRIEF_OPTIONS.get(command, {})
    for name in options:
        if name in words:
            at = words.index(name)
            del words[at : at + 2]
    main([command, *words, *(word for option in options.items() for word in option)])


@pytest.fixture
def executed(tmp_path, monkeypatch, trained):
    """Runs a document in an empty folder, in which a run of `cupola train` is where they expect it:
    the names that it defines."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.path, tmp_path / "runs" / "cup-HopperSpeed-0")
    monkeypatch.syspath_prepend(tmp_path)

    def run(document: str) -> dict[str, Any]:
        sizes = BRIEF_TUTORIAL if document.startswith("docs/tutorials/") else BRIEF

        def brief(*args: Any, **fields: Any) -> cupola.Run:
            return interface.train(*args, **(fields | sizes))

        monkeypatch.setattr(cupola, "train", brief, raising=False)
        names: dict[str, Any] = {"save": save, "shell": shell}
        exec(compile(snippets(document), document, "exec"), names)
        return names

    return run


def test_readme(executed):
    names = executed("README.md")
    assert names["run"].finished
    assert names["obs"].shape == (11,)
    assert names["policy"].iteration == names["run"].best.iteration


def test_the_page_on_gymnasium(executed):
    names = executed("docs/tasks/gymnasium.md")
    assert list(names["run"].config.limits) == ["fast"]
    assert names["info"]["cost"] == names["info"]["costs"]["speed"]
    assert names["envs"].num_envs == 16


def test_the_page_on_runs(executed):
    names = executed("docs/runs.md")
    assert len(names["costs"]) == 6
    assert names["ended"]
    assert names["result"].episodes == 50


def test_the_tutorial_of_a_first_run(executed):
    names = executed("docs/tutorials/first-run.md")
    assert (names["early"]["iteration"], names["last"]["iteration"]) == (2, 3)
    assert names["ended"]
    assert names["run"].path == Path("runs/second")


def test_the_tutorial_of_two_costs(executed):
    names = executed("docs/tutorials/two-costs.md")
    assert names["run"].config.limits == {"fuel": 30, "speeding": 10}
    assert names["run"].config.gym is not None
    assert 0 < names["spent"]["fuel"] <= 100
    assert list(cupola.load("runs/road").config.limits) == ["fuel", "speeding"]
    del sys.modules["road"]


def test_the_tutorial_of_comparing(executed, capsys):
    executed("docs/tutorials/comparing.md")
    page = Path("runs/comparing/report.html").read_text()
    assert all(name in page for name in ("cup", "ppo_lag", "ppo"))
    assert "settings that differ" in capsys.readouterr().out


def test_the_tutorial_of_diagnosing(executed, capsys):
    names = executed("docs/tutorials/diagnosing.md")
    result, shown = names["result"], capsys.readouterr().out
    assert (result["task"], result["iteration"]) == ("SwimmerSpeed", 3)
    assert shown.count("critic explains, before an update") == 2
    assert result["updates"] == 2
    assert {finding["status"] for finding in result["findings"]} <= {"ok", "warning"}


def test_every_tutorial_is_executed():
    pages = {path.name for path in (ROOT / "docs" / "tutorials").glob("*.md")} - {"README.md"}
    source = Path(__file__).read_text()
    assert pages
    assert all(f'executed("docs/tutorials/{page}")' in source for page in pages)
