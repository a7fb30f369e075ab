"""kill -9 before or after a random call to the file system, then resume: the same, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from attacks.kinds.kills import lines_of
from attacks.places import Place
from attacks.programs import REPOSITORY, fork
from attacks.subjects import GRID, QUADRATIC, Subject, check_resumes, made_once, reference, stopped
from attacks.verdicts import check_manners, require

SHARE, SECONDS, WARM, COUNTS = 9.0, 120.0, False, "kill"

CALLS = frozenset(
    {
        *("open", "write", "writelines", "flush", "fsync", "fdatasync", "replace", "rename"),
        *("unlink", "remove", "rmdir", "mkdir", "link", "symlink", "truncate", "ftruncate"),
        *("flock", "lockf", "posix_fallocate", "copy_file_range"),
    }
)
OURS = str(REPOSITORY / "src" / "cupola")
DEPTH = 8
"""Frames to go up until one of cupola's own files is found."""


class Counter:
    """A profile function: counts the calls that cupola makes to the file system."""

    def __init__(self, fatal: int = 0, after: bool = False) -> None:
        self.count, self._fatal = 0, fatal
        self._event = "c_return" if after else "c_call"

    def __call__(self, frame: FrameType, event: str, function: Any) -> None:
        if event != self._event or getattr(function, "__name__", "") not in CALLS:
            return
        caller: FrameType | None = frame
        for _ in range(DEPTH):
            if caller is None:
                return
            if caller.f_code.co_filename.startswith(OURS):
                self.count += 1
                if self.count == self._fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                return
            caller = caller.f_back

    def install(self) -> None:
        from cupola.training import Trainer

        threading.setprofile(self)
        sys.setprofile(self)
        for name in ("__init__", "iterate"):  # they compile, which is slow under a profile
            setattr(Trainer, name, self._unseen(getattr(Trainer, name)))

    def _unseen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def unseen(*args: Any, **options: Any) -> Any:
            sys.setprofile(None)
            try:
                return function(*args, **options)
            finally:
                sys.setprofile(self)

        return unseen


def attack(random: Random, place: Place) -> None:
    subject = random.choice((QUADRATIC, GRID))
    whole, run = reference(place.library, subject), place.work / "run"
    command = subject.command(run)
    resumes = random.random() < 0.4
    if resumes:
        shutil.copytree(stopped(place.library, subject, subject.every + 1), run)
        command = ["resume", str(run)]
    total = number_of_calls(place.library, subject, resumes)
    counter = Counter(1 + random.randrange(total), after=random.random() < 0.5)
    outcome = fork(command, place.work, counter.install).wait()
    if outcome.code != -signal.SIGKILL:
        check_manners(outcome)
        require(outcome.code == 0, f"it ended before it was killed: {outcome.sentence}")
    if random.random() < 0.5:
        lose_unsaved(random, run, subject)
    check_resumes(subject, run, whole)


def number_of_calls(library: Path, subject: Subject, resumes: bool) -> int:
    """How many calls an undisturbed training makes; counted once."""

    def make(path: Path) -> None:
        path.mkdir()
        run, counter = path / "run", Counter()
        command = subject.command(run)
        if resumes:
            shutil.copytree(stopped(library, subject, subject.every + 1), run)
            command = ["resume", str(run)]

        def count() -> None:
            import cupola.cli

            counter.install()
            original = cupola.cli.main

            def main(args: list[str]) -> None:
                original(args)
                sys.setprofile(None)
                (path / "count").write_text(str(counter.count))

            cupola.cli.main = main  # type: ignore[assignment]

        require(fork(command, path, count).wait().code == 0, "the calls cannot be counted")

    name = f"{subject.name}-calls-{'resume' if resumes else 'train'}"
    return int((made_once(library / name, make) / "count").read_text())


def lose_unsaved(random: Random, run: Path, subject: Subject) -> None:
    """As a power cut does: lines after the newest checkpoint may be gone or cut short."""
    saved = [int(path.stem) for path in (run / "checkpoints").glob("*.safetensors")]
    for name in ("metrics.jsonl", "timings.jsonl"):
        file = run / name
        if file.exists() and lines_of(run) > max(saved, default=0):
            data = file.read_bytes()
            kept = sum(map(len, data.splitlines(keepends=True)[: max(saved, default=0)]))
            file.write_bytes(data[: random.randint(kept, len(data))])
