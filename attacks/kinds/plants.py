"""Links, FIFOs, devices and directories in place of files: nothing outside is touched, no hang."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from attacks.kinds.mutants import curves_file, prepare, sweep_of
from attacks.places import Place
from attacks.programs import call
from attacks.subjects import QUADRATIC, TINY, reference, stopped
from attacks.verdicts import check_manners

__all__ = ["attack", "prepare"]

SHARE, SECONDS, WARM, COUNTS = 7.0, 30.0, True, "attack"

OF_A_RUN = (
    *("config.json", "metrics.jsonl", "timings.jsonl", "checkpoints", "tensorboard", "result.json"),
    *("checkpoints/00000006.safetensors", "checkpoints/00000009.safetensors", "lock", "run.lock"),
    *("checkpoints/00000012.safetensors", "checkpoints/00000005.safetensors", ".lock"),
)
OF_A_SWEEP = (
    *("sweep.json", "sweep.lock", "stop", "failures", "logs", "locks", "notes.txt"),
    *("ppo_lag-ProbeQuadratic-0", "ppo_lag-ProbeQuadratic-0/config.json"),
    *("ppo_lag-ProbeQuadratic-0/metrics.jsonl", "ppo_lag-ProbeQuadratic-0/result.json"),
    *("ppo_lag-ProbeQuadratic-0/checkpoints", "failures/ppo_lag-ProbeQuadratic-0.json"),
    *("locks/ppo_lag-ProbeQuadratic-0", "logs/ppo_lag-ProbeQuadratic-0.log"),
)
OF_A_REPORT = (
    *("report.html", "report", "report/tables", "report/figures", "report/curves.csv.gz"),
    *("report/tables/summary.csv", "report/tables/runs.md", "report/tables/performance.tex"),
    *("report/figures/curves-ProbeQuadratic.png", "report/figures/curves-ProbeQuadratic.pdf"),
)


def attack(random: Random, place: Place) -> None:
    kind = random.choice(("run", "run", "sweep", "new run", "curves"))
    target = place.work / "target"
    if kind == "new run":
        target.mkdir()
        names, commands = OF_A_RUN, [train(target)]
    elif kind == "curves":
        target.mkdir()
        shutil.copy(curves_file(place.library), target / "curves.csv.gz")
        names = (*OF_A_REPORT, "curves.csv.gz")
        commands = [["report", str(target / "curves.csv.gz")]]
    elif kind == "sweep":
        shutil.copytree(sweep_of(place.library), target)
        names = (*OF_A_SWEEP, *OF_A_REPORT)
        again = ["sweep", str(target / "toy.toml"), "--out", str(target)]
        commands = [["report", str(target)], again, ["compare", str(next_run(target))]]
    else:
        library = place.library
        choices = (reference(library, QUADRATIC), stopped(library, QUADRATIC, 7))
        shutil.copytree(random.choice(choices), target)
        names = (*OF_A_RUN, *OF_A_REPORT)
        commands = [["resume"], ["eval", "--episodes", "2"], ["compare"], ["report"]]
        commands = [[name, str(target), *rest] for name, *rest in commands]
    for name in random.choices(names, k=random.choice((1, 1, 1, 2, 4))):
        plant(random, target, target / name, place.outside)
    place.guard()
    random.shuffle(commands)
    for command in commands[:2]:
        check_manners(call(command, place.work), command[0])
        place.check()


def train(out: Path) -> list[str]:
    return [*("train", "ppo_lag", "ProbeQuadratic", *TINY), *("--iterations", "2"),
            *("--checkpoint-every", "1", "--out", str(out))]  # fmt: skip


def next_run(sweep: Path) -> Path:
    return min((path.parent for path in sweep.glob("*/config.json")), default=sweep / "none")


def plant(random: Random, target: Path, path: Path, outside: Path) -> None:
    """Something else in place of a file, or of the temporary file that it is written to."""
    if random.random() < 0.4:
        ending = random.choice(("tmp", "part", "new"))
        path = path.with_name(random.choice((f".{path.name}.{ending}", f"{path.name}.{ending}")))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # something was planted there before
    if path.parent.resolve() != path.parent and not path.parent.resolve().is_relative_to(target):
        return  # a link that was planted before leads outside
    original = path.read_bytes() if path.is_file() else b""
    if path.is_dir() and not path.is_symlink():
        kept = path.with_name(f"{path.name}-was")
        if not kept.exists():
            path.rename(kept)
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists() or path.is_symlink():
        path.unlink()
    what = random.choice(
        ("file", "same", "hard", "folder", "dangling", "loop", "fifo", "zero", "full", "null",
         "directory")
    )  # fmt: skip
    if what in ("same", "hard"):  # a link to a copy outside that is good
        copy = outside / f"copy-{random.randrange(10**9)}"
        copy.write_bytes(original)
        if what == "same":
            path.symlink_to(copy)
        else:
            path.hardlink_to(copy)  # another name of the file, which looks like a file
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
        (path / "inside").write_text("x")
    else:
        path.symlink_to(
            {
                "file": outside / "victim.txt",
                "folder": outside / "folder",
                "dangling": outside / "not-there",
                "loop": path,
            }.get(what, Path("/dev") / what)
        )
