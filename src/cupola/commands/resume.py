"""`cupola resume`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cupola.commands.parsing import OptionalNumber, RunPath, parse
from cupola.commands.train import conclude
from cupola.compilation import warm_up_cache
from cupola.display import ProgressDisplay, Terminal


@dataclass(frozen=True)
class ResumeArgs:
    """Continue a run from its newest checkpoint, exactly as if it had never stopped."""

    run: RunPath
    """The run's directory."""
    restart: bool = False
    """Throw away what the run has done, and begin again at iteration 1."""
    iterations: OptionalNumber = None
    """Train to so many iterations in all, more or fewer than were asked for."""
    decay: Literal["stretch", "restart"] = "stretch"
    """With --iterations: learning rates fall to 0 at the new end, from what they would be there in
    a run of that length, or from their full values."""
    trust: bool = False
    """Import code that the run names, and use its services (docs/security.md)."""


def run(args: Sequence[str]) -> None:
    parsed = parse(ResumeArgs, args, "resume")
    from cupola.training import resume

    console = Terminal()
    warm_up_cache()
    with ProgressDisplay(console) as progress:
        run = resume(
            parsed.run,
            restart=parsed.restart,
            iterations=parsed.iterations,
            decay=parsed.decay,
            watcher=progress,
            trust=parsed.trust,
        )
    conclude(console, run)
