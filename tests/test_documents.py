"""The Python in README and docs runs as it stands, from top to bottom, with short trainings."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import cupola
from cupola import interface

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


def snippets(document: str) -> str:
    """All Python of a document, line for line where it stands."""
    text = (ROOT / document).read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        first = text[: block.start(1)].count("\n")
        inside = block[1].splitlines()
        lines[first : first + len(inside)] = inside
    return "\n".join(lines)


@pytest.fixture
def executed(tmp_path, monkeypatch, trained):
    """Runs a document in an empty folder, in which a run of `cupola train` is where they expect it:
    the names that it defines."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.path, tmp_path / "runs" / "cup-HopperSpeed-0")
    brief = functools.partial(interface.train, **BRIEF)
    monkeypatch.setattr(cupola, "train", brief, raising=False)

    def run(document: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
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
