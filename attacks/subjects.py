"""The small trainings that are attacked, and what they give when nobody disturbs them."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from attacks import programs
from attacks.programs import Victim
from attacks.verdicts import Outcome, check_manners, require

TINY = (
    *("--batch-size", "40", "--num-envs", "4", "--minibatch-size", "20", "--epochs", "1"),
    *("--hidden", "4", "--threads", "1", "--limit", "0.4", "--multiplier-lr", "0.1"),
)

SHARED = """\
evaluation_episodes = 2
[shared]
batch_size = 40
num_envs = 4
minibatch_size = 20
epochs = 1
hidden = [4]
"""
"""Of experiment files: cells as small; keys of ``[shared]`` can follow."""

KEPT = 2
CHECKPOINT = re.compile(r"checkpoints/\d{8}\.safetensors")


class Subject(NamedTuple):
    """A training that takes about a second."""

    name: str
    algo: str
    task: str
    iterations: int
    every: int
    """Iterations between checkpoints."""
    options: tuple[str, ...] = TINY
    sinks: tuple[str, ...] = ()

    def command(self, out: Path) -> list[str]:
        return [
            *("train", self.algo, self.task, *self.options, "--out", str(out)),
            *("--iterations", str(self.iterations), "--checkpoint-every", str(self.every)),
            *("--keep-checkpoints", str(KEPT), "--sinks", *self.sinks),
        ]


TRUST_REGION = tuple(
    word
    for pair in zip(TINY[::2], TINY[1::2], strict=True)
    if pair[0] not in ("--minibatch-size", "--epochs", "--multiplier-lr")
    for word in pair
)
QUADRATIC = Subject("quadratic", "ppo_lag", "ProbeQuadratic", 12, 3, sinks=("tensorboard",))
REGULATOR = Subject("regulator", "cup", "ProbeRegulator", 20, 3)
GRID = Subject("grid", "cpo", "TabularGrid", 20, 4, TRUST_REGION)
HOPPER = Subject("hopper", "cup", "HopperSpeed", 16, 5)
SUBJECTS = (QUADRATIC, REGULATOR, GRID, HOPPER)


def reference(library: Path, subject: Subject) -> Path:
    """The run of a subject that nobody disturbed; trained once for a campaign."""
    return made_once(library / f"{subject.name}-whole", lambda path: train(subject, path))


def stopped(library: Path, subject: Subject, iteration: int, number: int = signal.SIGKILL) -> Path:
    """A run that got a signal after ``iteration``; with SIGKILL it has no checkpoint of its own."""

    def make(path: Path) -> None:
        def interrupt() -> None:
            from cupola.display import ProgressDisplay

            def stop(_: object, metrics: dict[str, int], timings: object) -> None:
                if metrics["iteration"] == iteration:
                    os.kill(os.getpid(), number)

            ProgressDisplay.__call__ = stop  # type: ignore[method-assign, assignment]

        victim = programs.fork(subject.command(path), path.parent, interrupt)
        code = victim.wait().code
        require(code in (-signal.SIGKILL, 130), f"{subject.name} ended with {code}, not stopped")

    return made_once(library / f"{subject.name}-stopped-{iteration}-{number}", make)


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """A directory that the first who needs it makes; others find it whole."""
    if not path.exists():
        folder = path.with_name(f".{path.name}-{os.getpid()}")
        (folder / "cwd").mkdir(parents=True)
        make(folder / "cwd" / path.name)
        try:
            os.rename(folder / "cwd" / path.name, path)
        except OSError:  # somebody else was quicker
            require(path.is_dir(), f"{path} cannot be made")
        shutil.rmtree(folder)
    return path


def train(subject: Subject, out: Path) -> None:
    outcome = programs.fork(subject.command(out), out.parent).wait(300)  # it compiles
    require(outcome.code == 0, f"an undisturbed {subject.name} failed: {outcome.err}")


def resume(run: Path, trust: bool = False) -> Outcome:
    """Continue to the end, in a child.

    A run without any checkpoint may have to be begun again: then that is asked for.
    """
    begun = any((run / "checkpoints").glob("*.safetensors"))
    options = programs.consent("resume") if trust else []
    outcome = start_resume(run, *options).wait()
    if outcome.code == 1 and "--restart" in outcome.err and not begun:
        check_manners(outcome, "resume")
        outcome = start_resume(run, "--restart", *options).wait()
    return outcome


def start_resume(run: Path, *options: str) -> Victim:
    return programs.fork(["resume", str(run), *options], run.parent)


def check_resumes(subject: Subject, run: Path, whole: Path, trust: bool = False) -> None:
    """The run, continued (or begun, where nothing is there yet), ends as the undisturbed one."""
    if (run / "config.json").exists():
        outcome = resume(run, trust)
    else:
        outcome = programs.fork(subject.command(run), run.parent).wait()
    check_manners(outcome, "resume")
    require(outcome.code == 0, f"resume failed: {outcome.sentence}")
    check_same(run, whole)


def check_same(run: Path, whole: Path) -> None:
    """Metrics bit for bit, the newest checkpoint bit for bit, and the same files."""
    ours, theirs = ((path / "metrics.jsonl").read_bytes() for path in (run, whole))
    if ours != theirs:
        count = (ours.count(b"\n"), theirs.count(b"\n"))
        pairs = zip(ours.splitlines(), theirs.splitlines(), strict=False)
        first = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), min(count) + 1)
        message = f"metrics.jsonl differs from line {first} on ({count[0]} of {count[1]} lines)"
        require(False, message)
    mine, other = files_of(run), files_of(whole)
    require(mine == other, f"other files than undisturbed: {sorted(mine ^ other)}")
    check_arrays(run, whole)


def files_of(run: Path) -> set[str]:
    """Without those that may differ: TensorBoard's, locks, checkpoints but the newest.

    A run that was asked to stop has a checkpoint where it stopped.
    """
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    saved = sorted(name for name in names if CHECKPOINT.fullmatch(name))
    require(len(saved) <= KEPT, f"too many checkpoints: {saved}")
    others = names - set(saved[:-1])
    return {name for name in others if "tensorboard" not in name and "lock" not in name}


def check_arrays(run: Path, whole: Path) -> None:
    from safetensors.numpy import load_file

    newest = sorted((whole / "checkpoints").iterdir())[-1].name
    ours, theirs = (load_file(path / "checkpoints" / newest) for path in (run, whole))
    require(ours.keys() == theirs.keys(), "the last checkpoint has other arrays")
    for name, array in theirs.items():
        same = ours[name].dtype == array.dtype and ours[name].tobytes() == array.tobytes()
        require(same, f"the array {name} of the last checkpoint differs")
