"""What `make docs` adds to MkDocs: the repository as one tree, pages of folders, MathML.

MkDocs reads one folder, but pages in docs/ link to data outside of it, and README.md links into it.
So files get the addresses that they have in the repository, by which MkDocs resolves and checks
all links as they stand. Only the addresses of the built pages leave out docs/.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDERS = ("docs", "results", "experiments", "benchmarks")
DATA = ("experiments/", "benchmarks/")
HIDDEN = {"__pycache__", "hooks.py"}
FOLDER_LINK = re.compile(r"\]\(([\w./-]+)/\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
IN_HEADING = re.compile(r"\\\(.*?\\\)")


def on_config(config: MkDocsConfig) -> None:
    """Replace each * of the navigation by the pages of that folder that are not named."""
    config.nav = expand(config.nav, set(named(config.nav)))


def named(entry: Any) -> list[str]:
    """All pages below an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    inside = entry.values() if isinstance(entry, dict) else entry
    return [page for each in inside for page in named(each)]


def expand(entries: list[Any], taken: set[str]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            title, inside = next(iter(entry.items()))
            found.append({title: expand(inside, taken) if isinstance(inside, list) else inside})
        elif "*" in entry:
            paths = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(entry))
            found += [path for path in paths if path.endswith(".md") and path not in taken]
        else:
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the repository that the site shows, by their paths there."""
    paths = [ROOT / page for page in PAGES]
    for folder in FOLDERS:
        paths += [path for path in sorted((ROOT / folder).rglob("*")) if shown(path)]
    found = [
        place(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
        for path in paths
    ]
    for folder in sorted({path.parent for path in paths} - {ROOT}):
        address = folder.relative_to(ROOT).as_posix()
        if not (folder / "README.md").exists() and address != "docs":
            listing = File.generated(config, f"{address}/README.md", content=contents(folder))
            found.append(place(listing))
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*found, *theme])


def shown(path: Path) -> bool:
    return path.is_file() and not HIDDEN & set(path.parts)


def place(file: File) -> File:
    """docs/runs.md becomes runs.html."""
    file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def contents(folder: Path) -> str:
    """A page with the files of a folder: what GitHub shows where a link ends in a slash."""
    lines = [f"# {folder.name.capitalize()}", ""]
    for path in sorted(filter(shown, folder.iterdir())):
        lines.append(f"- [{title(path)}]({path.name})")
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if any(map(shown, path.iterdir())):
            lines.append(f"- [{path.name}/]({path.name}/)")
    return "\n".join(lines)


def title(path: Path) -> str:
    """The heading of a page, the name of any other file."""
    heading = re.match(r"# (.+)", path.read_text()) if path.suffix == ".md" else None
    return heading[1] if heading else path.name


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to folders lead to their pages. Data are found by links, not by the search."""
    if page.file.src_uri.startswith(DATA):
        page.meta.setdefault("search", {"exclude": True})
    return FOLDER_LINK.sub(r"](\1/README.md)", markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, which browsers draw without a script; also in the contents."""
    entries = list(page.toc)
    while entries:
        entry = entries.pop()
        entry.title = IN_HEADING.sub(lambda found: formula(found[0], False, page), entry.title)
        entries += entry.children
    return FORMULA.sub(lambda found: formula(found[2], found[1] == "div", page), content)


def formula(text: str, block: bool, page: Page) -> str:
    r"""MathML of ``\(...\)`` or ``\[...\]``."""
    source = html.unescape(text).strip()[2:-2]
    drawn = convert(
        source.replace(r"\arg", r"\mathrm{arg}\,"), display="block" if block else "inline"
    )
    if unknown := re.search(r"\\[A-Za-z]+", re.sub(r"<[^>]*>", " ", drawn)):
        raise PluginError(f"{page.file.src_uri}: {unknown[0]} cannot be drawn in {source}")
    return f'<div class="formula">{drawn}</div>' if block else drawn
