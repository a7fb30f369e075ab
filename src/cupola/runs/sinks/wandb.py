"""Weights & Biases: pip install 'cupola[wandb]'.

The variables of its own decide where to: WANDB_PROJECT (default cupola), WANDB_ENTITY,
WANDB_MODE=offline. The run's files are in RUN/wandb; RUN/wandb.json names it, so that a resumed
training continues the same run.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any

from cupola.errors import CupolaError
from cupola.runs import schema
from cupola.runs.files import Folder


class Wandb:
    """One run of Weights & Biases, with the iteration as the axis of every metric."""

    def __init__(self) -> None:
        import wandb

        self._wandb = wandb
        self._run: Any = None

    def start(self, path: Path, config: dict[str, Any], first_iteration: int) -> None:
        folder = Folder(path)
        (folder / "wandb").make()  # and not somewhere else, where a link leads
        if (folder / "wandb").has("settings"):
            # They say which server gets the user's key.
            raise CupolaError(f"{path / 'wandb' / 'settings'} is not of this run: remove it")
        known = schema.read_record(folder, "wandb.json", schema.WANDB)
        if known is None:
            project = os.environ.get("WANDB_PROJECT", "cupola")
            known = {"id": secrets.token_hex(4), "project": project}
            schema.write_record(folder, "wandb.json", known)
        if not re.fullmatch(r"[a-z0-9_-]{1,64}", known["id"]):  # a part of the names of its files
            raise CupolaError(f"{path / 'wandb.json'} names a run that cannot be")
        self._run = self._wandb.init(
            id=known["id"],
            project=known["project"],
            name=path.resolve().name,
            dir=str(path),
            config=config,
            resume="allow",
            reinit="create_new",  # the user's own run, where there is one, is left alone
            settings=self._wandb.Settings(console="off"),  # does not record the progress display
        )
        # Steps of its own would refuse iterations that come a second time after a crash.
        self._run.define_metric("iteration")
        self._run.define_metric("*", step_metric="iteration")

    def log(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None:
        both = metrics | timings
        self._run.log({name: value for name, value in both.items() if value is not None})

    def close(self, finished: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if finished else 1)


make = Wandb
