"""What `pip install cupola` brings must be enough to use it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]

PROGRAM = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None  # importing it fails
import cupola
for module in pkgutil.walk_packages(cupola.__path__, "cupola."):
    if module.name not in ("cupola.__main__", "cupola.sweeps.ray_engine"):
        importlib.import_module(module.name)
"""


SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_no_module_needs_a_package_that_only_developers_install():
    project = SETTINGS["project"]

    def names(requirements: list[str]) -> set[str]:
        return {r.split(">=")[0].split("[")[0].replace("-", "_") for r in requirements}

    extra = names(project["optional-dependencies"]["dev"]) - names(project["dependencies"])
    assert "imageio" in extra
    command = [sys.executable, "-c", PROGRAM, *sorted(extra)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def targets(markdown: str) -> list[str]:
    """Where links and pictures lead, by a parser of its own."""
    tokens = [part for block in MarkdownIt().parse(markdown) for part in block.children or ()]
    found = [part.attrs.get("href") or part.attrs.get("src") for part in tokens]
    return [str(target) for target in found if target]


def on_the_index(text: str) -> str:
    """As the hook of the build makes it."""
    hook = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_the_readme_of_the_index_leads_nowhere_that_is_not_there():
    """Relative links lose their target, not their words."""
    text = (ROOT / "README.md").read_text() + "\n[a page](https://example.org/a) [here](#start)\n"
    text = on_the_index(text)
    assert targets(text) == ["https://example.org/a", "#start"]
    assert "Constrained Update Projection (NeurIPS 2022)" in text
    assert len(targets((ROOT / "README.md").read_text())) > 20
    assert "](" not in text.replace("](https://example.org/a)", "").replace("](#start)", "")
    assert "<img" not in text


PICTURES = [
    ("a\n\n![x](docs/x.png)\n\nb\n", "a\n\n\nb\n"),
    ("![x](x.png) ![y](y.gif)\nb\n", "b\n"),
    ("[![x](x.png)](docs/page.md)\nb\n", "b\n"),
    ('<img src="x.png" width="200">\nb\n', "b\n"),
    ('| ![Hopper](x.gif) | ![Ant](y.gif "t") |\n', "| Hopper | Ant |\n"),
    ("| [![Hopper](x.gif)](page.md) | 2 |\n", "| Hopper | 2 |\n"),
    ('| <img src="x.gif" alt="Hopper"> | <img src="y.gif"/> |\n', "| Hopper |  |\n"),
    ("see ![x](x.png) there\n", "see x there\n"),
    ("![x](https://e.org/x.png)\n", "![x](https://e.org/x.png)\n"),
    ("[![x](https://e.org/x.png)](page.md)\n", "![x](https://e.org/x.png)\n"),
    ("[![x](x.png) words](https://e.org)\n", "[x words](https://e.org)\n"),
    ('| <img src="https://e.org/x.png"> |\n', '| <img src="https://e.org/x.png"> |\n'),
]


@pytest.mark.parametrize(("before", "after"), PICTURES)
def test_pictures_on_the_index(before, after):
    """Alone on a line they go, elsewhere they become their words: a table stays a table."""
    assert on_the_index(before) == after


def test_classifiers_name_the_versions_that_were_run():
    table = re.findall(r"^\| (3\.\d+) \| yes ", (ROOT / "docs/releasing.md").read_text(), re.M)
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in SETTINGS["project"]["classifiers"] if prefix in c]
    assert table
    assert named == ["3", *table]


def test_every_dependency_has_a_lower_bound_and_types_are_shipped():
    project = SETTINGS["project"]
    extras = project["optional-dependencies"].values()
    for requirement in (*project["dependencies"], *(r for extra in extras for r in extra)):
        assert ">=" in requirement or requirement.startswith("mujoco<"), requirement
    assert (ROOT / "src/cupola/py.typed").exists()
