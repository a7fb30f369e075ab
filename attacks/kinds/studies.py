"""Damaged studies of `tune`, and what the board and `export` make of damaged runs and sweeps."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

from attacks import mutate
from attacks.kinds import experiments, mutants
from attacks.places import Place
from attacks.programs import call, program
from attacks.subjects import QUADRATIC, SHARED, made_once, reference, stopped
from attacks.verdicts import Failed, check_manners, require

SHARE, SECONDS, WARM, COUNTS = 8.0, 40.0, True, "mutant"

STUDY = f"""\
algorithm = "ppo_lag"
task = "ProbeQuadratic"
seeds = 1
iterations = 4
trials = 3
{SHARED}limit = 0.9
checkpoint_every = 2
sinks = []
[space]
learning_rate = {{ low = 1e-5, high = 1e-2, log = true }}
multiplier_lr = {{ low = 0.01, high = 0.5 }}
value_l2 = [0.0, 0.001]
"""


def study_of(library: Path) -> Path:
    """A finished study of three trials, with its file in it."""

    def make(path: Path) -> None:
        path.mkdir()
        file = path.parent / "study.toml"
        file.write_text(STUDY)
        command = ["tune", str(file), "--out", str(path), "--jobs", "1"]
        outcome = program(command, path.parent).wait(300)
        require(outcome.code == 0, f"an undisturbed study failed: {outcome.err}")
        shutil.copy(file, path / "study.toml")

    return made_once(library / "study-whole", make)


def prepare(library: Path) -> None:
    mutants.prepare(library)
    study_of(library)


def attack(random: Random, place: Place) -> None:
    library, target = place.library, place.work / "target"
    kind = random.choice(("study", "study", "study", "run", "run", "stopped", "sweep"))
    origin = {
        "study": lambda: study_of(library),
        "run": lambda: reference(library, QUADRATIC),
        "stopped": lambda: stopped(library, QUADRATIC, 7),
        "sweep": lambda: mutants.sweep_of(library),
    }[kind]()
    shutil.copytree(origin, target)
    for _ in range(random.choice((1, 1, 2, 3))):
        if kind == "study" and random.random() < 0.6:
            change_study(random, target)
        else:
            mutate.directory(random, target)
    try_board(target if random.random() < 0.5 else place.work)
    if kind == "study":
        page = ["--out", str(place.work / "page.html")]
        check_manners(call(["report", str(target), *page], place.work), "report")
        try_tune(random, place, target)
    elif kind in ("run", "stopped"):
        check_manners(call(["export", str(target), "policy.npz"], place.work), "export")
        best = ["--checkpoint", random.choice(("best", "last", "9"))]
        if not mutants.grown(target, origin):
            args = ["eval", str(target), "--episodes", "2", *best]
            check_manners(call(args, place.work), "eval")


def change_study(random: Random, study: Path) -> None:
    """Another value somewhere in tuning.json, half of the time with the right check value."""
    from cupola.tuning.record import digest

    file = study / "tuning.json"
    try:
        record = json.loads(file.read_bytes())
        changed = mutate.change_json(random, record)
        data = mutate.to_text(changed, indent=1)
        if random.random() < 0.8:
            changed = json.loads(data)
            changed.pop("check", None)
            data = mutate.to_text(changed | {"check": digest(changed)}, indent=1)
        file.write_bytes(data)
    except Exception:  # it was damaged before
        if mutate.is_readable(file):
            mutate.any_bytes(random, file)


def try_board(folder: Path) -> None:
    """All that a browser can ask for."""
    from cupola.board.library import Library
    from cupola.board.server import Board

    try:
        library = Library(folder)
        for _ in range(100):
            if not library.refresh():
                break
        told = library.state(0)
        ids = [row["id"] for row in told["rows"]]
        with Board(library, 0) as board:
            board.page()
        json.dumps([told, library.curves(ids)], allow_nan=False).encode("ascii")
        for key in ids[:3]:
            library.video(key)
    except Exception as error:
        raise Failed(f"board: traceback, {type(error).__name__}: {error}") from None


def try_tune(random: Random, place: Place, study: Path) -> None:
    """Go on with the study; nothing is trained."""
    from cupola.tuning import search

    def work(sweep: Any, *_: object) -> dict[str, Any]:
        return {name: sweep.status(name) for name in sweep.cells}

    file = place.work / "study.toml"
    file.write_text(STUDY)
    if random.random() < 0.5:
        file.write_text(STUDY.replace("trials = 3", "trials = 6"))
    elif random.random() < 0.3:
        file.write_bytes(experiments.text(random, STUDY))
    original, search.work = search.work, work  # type: ignore[assignment]
    try:
        args = ["tune", file.name, "--out", os.fspath(study), "--jobs", "1"]
        check_manners(call(args, place.work), "tune")
    finally:
        search.work = original
