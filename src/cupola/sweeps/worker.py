"""One cell in a process of its own: train or resume, evaluate, write the result.

    python -P -m cupola.sweeps.worker SWEEP CELL [--trust] [CORE ...]

The process ends as soon as its standard input does, so a parent that dies leaves no worker behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupola.processes import apart
from cupola.runs.files import Folder

if TYPE_CHECKING:
    from cupola.sweeps.directory import SweepDirectory

ORPHANED = 131
PACKAGES = ("jax", "jaxlib", "mujoco", "numpy", "optax")


def start(
    sweep: Path, name: str, cores: Sequence[int] = (), *, trust: bool = False
) -> subprocess.Popen[bytes]:
    """Start a worker; it ends when its standard input is closed, also by the parent's death.

    The ``trust`` that the sweep was given is passed on. Without -P Python would import whatever
    the working directory has.
    """
    command = [sys.executable, "-P", "-m", "cupola.sweeps.worker", str(sweep), name]
    command += ["--trust"] if trust else []
    with Folder(sweep, "logs").create(f"{name}.log") as output:
        return subprocess.Popen(
            [*command, *map(str, cores)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            **apart(),  # a Ctrl-C is for the parent, who asks its workers to stop
        )


def ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    """Let a worker save its run and end; it ends at once where it has not begun."""
    if hasattr(signal, "SIGKILL"):
        process.terminate()
    elif process.stdin:  # Windows knows no such request: it would end at once
        with contextlib.suppress(OSError):  # it has ended
            process.stdin.write(b"s")
            process.stdin.flush()


def main(arguments: Sequence[str]) -> int:
    sweep, name, *rest = arguments
    trust, cores = "--trust" in rest, [core for core in rest if core != "--trust"]
    if cores and hasattr(os, "sched_setaffinity"):
        # Before numpy and JAX count the cores.
        os.sched_setaffinity(0, {int(core) for core in cores})
    threading.Thread(target=end_with_parent, daemon=True).start()
    from cupola.compilation import warm_up_cache
    from cupola.output import forgiving_output
    from cupola.sweeps.directory import SweepDirectory

    warm_up_cache()
    with forgiving_output():  # the disk of the log may be full
        return attempt(SweepDirectory.open(Path(sweep)), name, trust)


def attempt(sweep: SweepDirectory, name: str, trust: bool = False) -> int:
    """Run a cell; whatever goes wrong is recorded, and the exit code is 1."""
    from cupola.errors import CupolaError

    try:
        with sweep.lock_cell(name):
            return run(sweep, name, trust)
    except CupolaError as error:
        return fail(sweep, name, str(error))
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        full = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text
        kind = "out of memory" if full else type(error).__name__
        return fail(sweep, name, f"{kind}: {text}" if text else kind)


def end_with_parent() -> None:
    """End when standard input does; a byte is a request to stop, as a termination signal is."""
    while os.read(0, 1):
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # nothing has begun
            from cupola.sweeps.loop import STOPPED

            os._exit(STOPPED)
        signal.raise_signal(signal.SIGTERM)
    os._exit(ORPHANED)


def fail(sweep: SweepDirectory, name: str, reason: str) -> int:
    print(reason, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError):  # on a full disk the last line of the log may still tell
        sweep.record_failure(name, reason)
    return 1


def run(sweep: SweepDirectory, name: str, trust: bool) -> int:
    """Exit code: 0 when the cell is finished, 130 when it was stopped."""
    from cupola.evaluation import evaluate
    from cupola.policy import load
    from cupola.sweeps.loop import STOPPED
    from cupola.sweeps.pruning import pruner
    from cupola.training import resume, train

    cell, path = sweep.cells[name], sweep.run_path(name)
    listener = pruner(path, cell.bars, cell.iterations)
    if sweep.has_begun(name):
        done = resume(path, listener=listener, trust=trust)
    else:
        done = train(cell.algo, cell.task, out=path, listener=listener, **cell.arguments())
    if not done.finished:
        return STOPPED
    policy, episodes = load(path), sweep.experiment.evaluation_episodes
    result: dict[str, Any] = {"episodes": episodes, "versions": versions()}
    for kind in ("sampled", "deterministic"):
        deterministic = kind == "deterministic"
        evaluation = evaluate(policy, episodes=episodes, deterministic=deterministic, trust=trust)
        result[kind] = evaluation.summary()
    sweep.write_result(name, result)
    return 0


def versions() -> dict[str, str]:
    from cupola.version import __version__

    found = {"cupola": __version__, "python": sys.version.partition(" ")[0]}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
