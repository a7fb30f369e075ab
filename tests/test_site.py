"""The documentation site: it builds without a dead link, and loads nothing from elsewhere."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import cupola
from cupola import zoo

ROOT = Path(__file__).parents[1]


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=folder, env=quiet, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. This takes about 6 seconds of processor time."""
    pytest.importorskip("mkdocs")
    site = tmp_path_factory.mktemp("docs") / "site"
    ended = build(ROOT, site)
    assert ended.returncode == 0, ended.stderr
    return site


class Loaded(HTMLParser):
    """What a page loads by itself; links that a reader may follow are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.append(found.get("id") or "")
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.addresses.append(found["href"])
        self.addresses += [found[name] for name in ("src", "srcset", "poster") if found.get(name)]


def parsed(page: Path) -> Loaded:
    found = Loaded()
    found.feed(page.read_text())
    return found


def test_pages_load_files_of_the_site_alone(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in set(pages) - {site / "404.html"}:
        for address in parsed(page).addresses:
            assert (page.parent / address).resolve().is_relative_to(site.resolve()), address
            assert (page.parent / address).exists(), (page, address)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text()), style


def test_formulas_need_no_script(site):
    page = (site / "algorithms" / "cup.html").read_text()
    assert page.count("<math ") > 50
    assert r"\(" not in page
    assert "arithmatex" not in page


def test_the_reference_shows_what_cupola_exports(site):
    ids = parsed(site / "api" / "cupola.html").ids
    assert {f"cupola.{name}" for name in cupola.__all__} <= set(ids)


def test_a_link_out_of_docs_leads_to_the_file(site):
    page = site / "holding-limits.html"
    target = re.search(r'href="(experiments/results/lambda-trials\.csv)"', page.read_text())[1]
    source = ROOT / "experiments" / "results" / "lambda-trials.csv"
    assert (page.parent / target).read_bytes() == source.read_bytes()


def test_a_link_to_a_folder_leads_to_its_files(site):
    assert 'href="decisions/index.html"' in (site / "index.html").read_text()
    listing = (site / "decisions" / "index.html").read_text()
    decisions = [path.stem for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert decisions
    assert all(f'href="{name}.html"' in listing for name in decisions)


def test_the_search_knows_the_pages_and_not_the_data(site):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    assert {"runs.html", "api/cupola.html", "tutorials/first-run.html"} <= found
    assert not [page for page in found if page.startswith("experiments/")]


def test_the_search_works_in_a_page_that_is_opened_as_a_file(site, browser):
    browser.open(site / "index.html")
    field = "document.querySelector('.md-search__input')"
    browser.ask(f"{field}.focus()")
    browser.call("Input.insertText", text="multiplier")
    key = f"{field}.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}}))"
    browser.wait(f"{key} && document.querySelector('.md-search-result__item a')")
    outside = "performance.getEntriesByType('resource').filter(e => !e.name.startsWith('file:'))"
    assert browser.ask(f"{outside}.length") == 0
    assert browser.messages == []


def test_the_gallery_is_small_and_complete():
    films = {path.stem: path for path in (ROOT / "docs" / "gallery").iterdir()}
    page = (ROOT / "docs" / "gallery.md").read_text()
    script = ast.parse((ROOT / "docs" / "site" / "gallery.py").read_text())
    names = {node.value for node in ast.walk(script) if isinstance(node, ast.Constant)}
    trained = {f"trained_{name}" for name in zoo.names()}
    assert set(films) <= names | trained
    assert {name for name in films if name.startswith("trained_")} == trained
    assert set(re.findall(r"\(gallery/(\w+)\.gif\)", page)) == set(films)
    assert sum(path.stat().st_size for path in films.values()) < 3e6


@pytest.mark.slow
def test_dead_links_are_errors(tmp_path):
    pytest.importorskip("mkdocs")
    for name in ("docs", "results", "experiments", "benchmarks", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    links = ("none.md", "runs.md#none", "../README.md#none", "../experiments/none.csv", "none/")
    text = "# New\n\n" + " ".join(f"[here]({link})" for link in links) + " ![](none.png)\n"
    (tmp_path / "docs" / "new.md").write_text(text)
    ended = build(tmp_path, tmp_path / "site")
    assert ended.returncode != 0
    warned = re.findall(r"WARNING .*'docs/new\.md' contains a link '(.+?)'", ended.stderr)
    assert sorted(warned) == sorted([*links[:-1], "none/README.md", "none.png"])
    (tmp_path / "docs" / "new.md").write_text("# New\n\n$\\nosuchcommand x$\n")
    ended = build(tmp_path, tmp_path / "site")
    assert ended.returncode != 0
    assert r"docs/new.md: \nosuchcommand cannot be drawn" in ended.stderr


@pytest.mark.slow
def test_make_docs(tmp_path):
    """With the packages that are installed: both stamps are newer than what they depend on."""
    pytest.importorskip("mkdocs")
    variables = {
        "BIN": Path(sys.executable).parent,
        "READY": tmp_path / "a",
        "DOCS": tmp_path / "b",
    }
    variables["READY"].touch()
    variables["DOCS"].touch()
    command = ["make", "docs", *(f"{name}={value}" for name, value in variables.items())]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (ROOT / "site" / "index.html").exists()
