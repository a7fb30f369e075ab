"""Damaged files of runs, sweeps and curves against every command that reads them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
from pathlib import Path
from random import Random

from attacks import mutate
from attacks.kinds.kills import lines_of
from attacks.places import Place
from attacks.programs import call, program
from attacks.subjects import QUADRATIC, SHARED, check_arrays, made_once, reference, stopped
from attacks.verdicts import Failed, Outcome, check_manners, require
from cupola.runs import checkpoints
from cupola.runs.files import Folder

SHARE, SECONDS, WARM, COUNTS = 62.0, 40.0, True, "mutant"

SWEEP = f"""\
iterations = 4
algorithms = ["ppo_lag"]
tasks = ["ProbeQuadratic"]
seeds = 2
{SHARED}limit = 0.4
multiplier_lr = 0.1
checkpoint_every = 2
sinks = []
"""


def sweep_of(library: Path) -> Path:
    """A finished sweep of two cells, with its experiment file in it."""

    def make(path: Path) -> None:
        path.mkdir()
        file = path.parent / "toy.toml"
        file.write_text(SWEEP)
        outcome = program(["sweep", str(file), "--out", str(path)], path.parent).wait(180)
        require(outcome.code == 0, f"an undisturbed sweep failed: {outcome.err}")
        shutil.copy(file, path / "toy.toml")

    return made_once(library / "sweep-whole", make)


def curves_file(library: Path) -> Path:
    """The file of curves of the sweep's report."""

    def make(path: Path) -> None:
        path.mkdir()
        sweep = sweep_of(library)
        page = path / "page.html"
        outcome = program(["report", str(sweep), "--out", str(page)], path).wait()
        require(outcome.code == 0, f"an undisturbed report failed: {outcome.err}")

    return made_once(library / "curves-whole", make) / "page" / "curves.csv.gz"


def prepare(library: Path) -> None:
    reference(library, QUADRATIC)
    stopped(library, QUADRATIC, 7)
    curves_file(library)


def attack(random: Random, place: Place) -> None:
    kind = random.choices(("whole", "stopped", "sweep", "curves"), (5, 4, 3, 1))[0]
    target = place.work / "target"
    if kind == "curves":
        target.mkdir()
        origin = curves_file(place.library)
        file = Path(shutil.copy(origin, target / "curves.csv.gz"))
        mutate.any_bytes(random, file)
        # Numbers are not compared: a file of curves is a table that anybody may edit.
        page = ["--out", str(place.work / "page.html")]
        check_manners(call(["report", str(file), *page], place.work), "report")
        return
    origin = {
        "whole": lambda: reference(place.library, QUADRATIC),
        "stopped": lambda: stopped(place.library, QUADRATIC, 7),
        "sweep": lambda: sweep_of(place.library),
    }[kind]()
    shutil.copytree(origin, target)
    mutated: set[str] = set()
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        mutated |= mutate.directory(random, target)
    runs = [target] if kind != "sweep" else sorted(p.parent for p in target.glob("*/*.jsonl"))[:1]
    if kind == "sweep":
        try_report(place, target, origin, mutated)
    for run in runs:
        undamaged = origin / run.relative_to(target)
        try_compare(place, run, undamaged, mutated)
        reader = random.choices(("resume", "eval", "load", "report", "diagnose"), (5, 3, 3, 3, 1))
        read(random, reader[0], place, run, undamaged, mutated)


def read(
    random: Random, reader: str, place: Place, run: Path, origin: Path, mutated: set[str]
) -> None:
    if reader == "report":
        try_report(place, run, origin, mutated)
    elif reader == "load":
        try_load(run)
    elif reader == "resume" and not grown(run, origin):
        try_resume(place, run, mutated)
    elif reader in ("eval", "diagnose") and not grown(run, origin):
        sizes = {"eval": ["--episodes", "2"], "diagnose": ["--batches", "2", "--episodes", "2"]}
        which = run
        if random.random() < 0.3:
            which = random.choice(sorted((run / "checkpoints").glob("*")) or [run])
        check_manners(call([reader, str(which), *sizes[reader]], place.work), reader)


def try_compare(place: Place, run: Path, origin: Path, mutated: set[str]) -> None:
    # The same last part of the path, so that the tables have the same names.
    outcome = check_manners(call(["compare", run.name], run.parent), "compare")
    if outcome.code == 0 and not outcome.warnings and spoils(mutated):
        link = place.root / "undamaged" / run.name
        link.parent.mkdir(exist_ok=True)
        shutil.copytree(origin, link)
        metrics = link / "metrics.jsonl"
        lines = metrics.read_bytes().splitlines(keepends=True)
        metrics.write_bytes(b"".join(lines[: remaining(run, len(lines))]))
        expected = call(["compare", run.name], link.parent)
        require(outcome.out == expected.out, f"compare: other numbers, no word ({named(mutated)})")


def remaining(run: Path, count: int) -> int:
    """How many of ``count`` lines of metrics a run must show.

    Those after its newest checkpoint may be gone, as after a power cut: nothing else is lost, and
    the table says how many iterations there are.
    """
    saved = max(checkpoints.iterations(Folder(run, "checkpoints")), default=0)
    return max(saved, min(count, lines_of(run)))


def spoils(mutated: set[str]) -> bool:
    """Whether a change of numbers would be silent; settings that were changed are shown."""
    return not any(name.endswith(("config.json", "timings.jsonl")) for name in mutated)


def try_load(run: Path) -> None:
    import cupola

    try:
        cupola.load(run)
    except cupola.CupolaError:
        pass
    except Exception as error:
        raise Failed(f"load: traceback, {type(error).__name__}: {error}") from None


def try_resume(place: Place, run: Path, mutated: set[str]) -> None:
    outcome = check_manners(call(["resume", str(run)], place.work), "resume")
    honest = not any(name.endswith(("config.json", mutate.FORGED)) for name in mutated)
    if outcome.code == 0 and honest and run.name == "target" and not outcome.warnings:
        whole = reference(place.library, QUADRATIC)
        ours, theirs = ((path / "metrics.jsonl").read_bytes() for path in (run, whole))
        require(ours == theirs, f"resume: other metrics, no word ({named(mutated)})")
        if not any("safetensors" in name for name in mutated):
            check_arrays(run, whole)


def try_report(place: Place, source: Path, origin: Path, mutated: set[str]) -> None:
    page = place.work / "page.html"
    outcome = check_manners(call(["report", str(source), "--out", str(page)], place.work), "report")
    if outcome.code or said(outcome, page):
        return
    require(page.is_file(), "report: no page, no word")
    ours, theirs = page.with_suffix(""), expected_report(place, origin)
    changed = f"other numbers, no word ({named(mutated)})"
    rows, expected = (numbers(folder / "curves.csv.gz") for folder in (ours, theirs))
    if (source / "metrics.jsonl").exists():  # a run, not a sweep
        expected = expected[: remaining(source, len(expected))]
    if any(name.endswith(("config.json", "sweep.json", "result.json")) for name in mutated):
        # Other settings or fewer cells may be asked for, but no cell has other numbers.
        require(set(rows) <= {*expected, ()}, f"report: {changed}")
    else:
        require(rows == expected, f"report: {changed}")
        require(evaluations(ours) == evaluations(theirs), f"evaluation in the report: {changed}")
    if all(name.endswith("result.json") for name in mutated):
        fewer = not evaluations(ours) <= evaluations(theirs)
        require(not fewer, f"evaluation in the report: {changed}")


def expected_report(place: Place, origin: Path) -> Path:
    """The report of the undamaged directory, made once in this process."""
    folder = place.library / f"{origin.name}-report-{os.getpid()}"
    if not folder.exists():
        call(["report", str(origin), "--out", f"{folder}.html"], place.root)
    return folder


def evaluations(report: Path) -> set[str]:
    """The cells of the table of evaluations that are numbers."""
    file = report / "tables" / "evaluation.csv"
    if not file.exists():
        return set()
    rows = csv.reader(file.read_text().splitlines())
    return {cell for row in rows for cell in row if any(map(str.isdigit, cell))}


def said(outcome: Outcome, page: Path) -> bool:
    """Whether the report says that something was left out."""
    return bool(outcome.warnings) or "left out" in outcome.out or "left out" in page.read_text()


MEASURED = ("iteration", "steps", "episodes", "length", "return", "cost/", "limit/", "nu/")


def numbers(file: Path) -> list[tuple[str, ...]]:
    """The rows of a file of curves, without names and states."""
    with gzip.open(file) as packed:
        rows = csv.DictReader(io.TextIOWrapper(packed, newline=""))
        return [tuple(v for k, v in row.items() if k.startswith(MEASURED) and v) for row in rows]


def named(mutated: set[str]) -> str:
    return ", ".join(sorted(mutated))


def grown(run: Path, origin: Path) -> bool:
    """Whether the config now asks for a training that takes long: no damage, but no try either."""
    if not mutate.is_readable(run / "config.json"):
        return False
    try:
        ours, theirs = (json.loads((path / "config.json").read_text()) for path in (run, origin))
    except (OSError, ValueError, RecursionError):
        return False
    return largest(ours) > 10 * largest(theirs)


def largest(value: object) -> float:
    if isinstance(value, bool) or value is None:
        return 0.0
    if isinstance(value, int | float):
        return abs(value) if value == value else 0.0
    if isinstance(value, dict):
        return max(map(largest, value.values()), default=0.0)
    if isinstance(value, list):
        return max(map(largest, value), default=0.0)
    return 0.0
