"""A disk that is full at a random moment: one sentence, and once there is room the same result."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from attacks.places import Place
from attacks.programs import fork
from attacks.subjects import GRID, QUADRATIC, Subject, check_resumes, reference
from attacks.verdicts import check_manners, require

SHARE, SECONDS, WARM, COUNTS = 5.0, 120.0, False, "attack"

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS of Linux


def attack(random: Random, place: Place) -> None:
    subject = random.choice((QUADRATIC, GRID))
    whole = reference(place.library, subject)
    total = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    if may_mount() and random.random() < 0.7:
        size = random.randrange(4096, 2 * total)
        with small_disk(place.work / "disk", size) as enlarge:
            fill(random, subject, place.work / "disk", whole, enlarge)
    else:
        folder = place.work / "disk"
        folder.mkdir()
        size = random.randrange(1, max(p.stat().st_size for p in whole.rglob("*") if p.is_file()))
        bound = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
        fill(random, subject, folder, whole, lambda: None, bound)


def fill(
    random: Random,
    subject: Subject,
    folder: Path,
    whole: Path,
    enlarge: Callable[[], None],
    prepare: Callable[[], None] | None = None,
) -> None:
    """Train until the disk is full; report on it; make room; go on."""
    run = folder / "run"
    cwd = folder.parent
    outcome = fork(subject.command(run), cwd, prepare).wait()
    check_manners(outcome, "train")
    if outcome.code:
        require("cannot write" in outcome.err, f"not about writing: {outcome.sentence}")
    if random.random() < 0.4 and (run / "config.json").exists():
        command = random.choice((["report", str(run)], ["resume", str(run)]))
        check_manners(fork(command, cwd, prepare).wait(), command[0])
    enlarge()
    for leftover in ("report", "report.html"):  # not part of the run
        path = run / leftover
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if run.exists() and not any(run.iterdir()):
        run.rmdir()
    check_resumes(subject, run, whole)


def may_mount() -> bool:
    """Whether this process may mount a disk of its own, seen by nobody else and gone with it."""
    if os.geteuid() != 0 or not hasattr(ctypes.CDLL(None), "unshare"):
        return False
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) != 0:
        return False
    return not subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True).returncode


@contextlib.contextmanager
def small_disk(path: Path, size: int) -> Iterator[Callable[[], None]]:
    """A disk of ``size`` bytes, and a function that makes it large."""
    path.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "none", str(path))
    try:
        yield lambda: mount("-o", "remount,size=256m", str(path))
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
