"""`cupola resume`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cupola.commands.parsing import parse
from cupola.commands.train import conclude
from cupola.compilation import warm_up_cache
from cupola.display import ProgressDisplay, Terminal


@dataclass(frozen=True)
class ResumeArgs:
    """Continue a run from its newest checkpoint, exactly as if it had never stopped."""

    run: Positional[Path]
    """The run's directory."""
    restart: bool = False
    """Throw away what the run has done, and begin again at iteration 1."""
    trust: bool = False
    """Import code that the run names, and use its services (docs/security.md)."""


def run(args: Sequence[str]) -> None:
    parsed = parse(ResumeArgs, args, "resume")
    from cupola.config import RunConfig
    from cupola.runs.directory import RunDirectory
    from cupola.training import resume

    config = RunConfig.of(RunDirectory.open_to_load(parsed.run))
    console = Terminal()
    warm_up_cache()
    with ProgressDisplay(console, config.options.iterations) as progress:
        run = resume(parsed.run, restart=parsed.restart, listener=progress, trust=parsed.trust)
    conclude(console, run)
