"""Trained policies that come with cupola: `cupola.load("zoo:HopperSpeed")` (docs/zoo.md).

Each is a folder beside this file, a small run directory that holds nothing but the policy:

config.json                        what it was trained with, as any run has it
checkpoints/NNNNNNNN.safetensors   network and observation statistics, a few kilobytes
card.json                          how it was chosen and how it does

So a policy of the zoo is read by the reader of all checkpoints, which can run no code.
"""

from __future__ import annotations

from pathlib import Path

from cupola.errors import CupolaError, unknown
from cupola.runs import schema
from cupola.runs.files import Folder
from cupola.runs.schema import Record

PREFIX = "zoo:"
HOME = Path(__file__).parent
CARD = "card.json"

_INTERVAL = schema.Table({"mean": schema.Number(finite=True)})
_COST = schema.Table(
    {
        "mean": schema.Number(finite=True),
        "limit": schema.Number(finite=True),
        "safe_share": schema.Number(finite=True),
    }
)
_EVALUATION = schema.Table({"return": _INTERVAL, "costs": schema.Map(_COST)})
_CARD = schema.Table(
    {
        "task": schema.Text(),
        "algorithm": schema.Text(),
        "preset": schema.Text(),
        "cupola": schema.Text(),
        "seed": schema.Whole(),
        "seeds": schema.List(schema.Whole()),
        "iteration": schema.Whole(1),
        "steps": schema.Whole(1),
        "limits": schema.Map(schema.Number(finite=True)),
        "training": schema.Table(
            {"return": schema.Number(finite=True), "costs": schema.Map(schema.Number(finite=True))}
        ),
        "evaluation": schema.Table(
            {
                "episodes": schema.Whole(1),
                "seed": schema.Whole(),
                "sampled": _EVALUATION,
                "deterministic": _EVALUATION,
            }
        ),
        "sha256": schema.Text(),
    }
)
"""What card.json must say; ``sha256`` is that of the checkpoint's file."""


def names() -> list[str]:
    """The policies that are there: mostly they are called as their tasks."""
    return [name for name, inside in Folder(HOME).entries().items() if inside and is_entry(name)]


def is_entry(name: str) -> bool:
    return Folder(HOME, name).has(CARD)


def is_named(path: str | Path) -> bool:
    """Whether a user means a policy of the zoo."""
    return str(path).startswith(PREFIX)


def folder(path: str | Path) -> Path:
    """The run directory behind zoo:NAME."""
    name = str(path).removeprefix(PREFIX)
    if name not in names():  # so that no name leads out of the zoo
        if not names():
            raise CupolaError(
                f"there is no policy {PREFIX}{name}: this version has none in its zoo."
            )
        raise unknown("policy of the zoo", name, names())
    return HOME / name


def card(name: str) -> Record:
    """How a policy was trained and chosen, and how it does."""
    return read_card(folder(name))


def read_card(path: Path) -> Record:
    found = schema.read_record(Folder(path), CARD, _CARD)
    if found is None:
        raise CupolaError(f"{path} has no {CARD}.")
    return found
