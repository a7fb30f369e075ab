"""Sinks: where the metrics of a run go beside its own files. One file per sink.

TensorBoard writes into the run directory, so a failed write ends the training as one to
metrics.jsonl does: on a full disk the checkpoints would be next. Weights & Biases and MLflow are
services that may be away for a while. A service that does not start is an error, before any time
is spent. One that fails later gives one warning and is left out from then on, until the run is
resumed: the training goes on, and metrics.jsonl has everything.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from cupola.checks import check
from cupola.errors import CupolaError, CupolaWarning, unknown

Record = dict[str, Any]
SinkName = Literal["tensorboard", "wandb", "mlflow"]
NAMES: tuple[SinkName, ...] = get_args(SinkName)


class Sink(Protocol):
    """Something that metrics are given to, one line after the other."""

    def start(self, path: Path, config: Record, first_iteration: int) -> None:
        """Begin, or go on where the run in ``path`` began already.

        Lines from ``first_iteration`` on may have been given before: they come again, the same.
        """

    def log(self, metrics: Record, timings: Record) -> None:
        """Take one iteration."""

    def close(self, finished: bool) -> None:
        """End, also where `start` was never called; ``finished``: all iterations are done."""


class Service:
    """A sink outside of the run directory, which must not end a training when it fails."""

    def __init__(self, name: SinkName, sink: Sink) -> None:
        self._name, self._sink, self._path = name, sink, Path()
        self._works = False

    def start(self, path: Path, config: Record, first_iteration: int) -> None:
        self._path = path
        try:
            self._sink.start(path, config, first_iteration)
        except Exception as error:
            with contextlib.suppress(Exception):  # what it has opened so far
                self._sink.close(False)
            raise CupolaError(
                f"the sink {self._name} cannot start ({in_brief(error)}): put that right and write"
                f" 'cupola resume {path} --trust', or first take {self._name!r} out of the sinks in"
                f" {path / 'config.json'}."
            ) from error
        self._works = True

    def log(self, metrics: Record, timings: Record) -> None:
        if not self._works:
            return
        try:
            self._sink.log(metrics, timings)
        except Exception as error:
            self._give_up(error, metrics["iteration"])

    def close(self, finished: bool) -> None:
        if not self._works:
            return
        try:
            self._sink.close(finished)
        except Exception as error:
            self._give_up(error, None)

    def _give_up(self, error: Exception, iteration: int | None) -> None:
        self._works = False
        when = "at the end" if iteration is None else f"in iteration {iteration}"
        warnings.warn(
            f"the sink {self._name} failed {when} ({in_brief(error)}) and is left out from now on;"
            f" {self._path / 'metrics.jsonl'} has all metrics.",
            CupolaWarning,
            stacklevel=4,
        )


def in_brief(error: Exception) -> str:
    """An exception on one line."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check_names(names: Sequence[str]) -> None:
    """Refuse what is not a list of different sinks."""
    check(
        isinstance(names, tuple | list),
        f"sinks must be a list of names, for example sinks=('tensorboard',), not {names!r}.",
    )
    for name in names:
        if name not in NAMES:
            raise unknown("sink", str(name), NAMES)
    check(len(set(names)) == len(names), "every sink can be named only once.")


def make_sinks(names: Sequence[SinkName]) -> list[Sink]:
    """The named sinks; a sentence where a package is missing that one of them needs."""
    sinks: list[Sink] = []
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        try:
            sink: Sink = module.make()
        except ImportError as error:
            raise CupolaError(
                f"the sink {name} needs a package that is not installed ({error}): pip install"
                f" 'cupola[{name}]', or leave {name} out of --sinks."
            ) from None
        sinks.append(sink if name == "tensorboard" else Service(name, sink))
    return sinks
