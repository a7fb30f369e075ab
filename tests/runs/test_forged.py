"""Checkpoints whose check values are right and whose arrays are wrong: somebody forged them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cupola
from cupola.runs import checkpoints
from cupola.runs.files import Folder

TASKS = ["HopperSpeed", "PointButton1", "ProbeRegulator", "TabularGrid", "gym:CartPole-v1"]
BOUNDED = {
    "collector0.task.button": (-1, 99),
    "collector0.task.states": (-1, 99),
    "collector0.task.taken": (-1, 10**9),
    "collector0.task.elapsed": (-1,),
    "collector0.task.episodes": (-1,),
}
"""Numbers that are indices or counts, and some that they cannot be."""


@pytest.fixture(scope="module", params=TASKS)
def original(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One iteration of two."""
    path = tmp_path_factory.mktemp("original") / "run"
    sizes = {"batch_size": 40, "num_envs": 4, "minibatch_size": 20, "epochs": 1, "hidden": (4,)}
    algo = "ppo" if request.param.startswith("gym:") else "ppo_lag"
    cupola.train(
        algo, request.param, out=path, iterations=1, threads=1, preset="paper", **sizes, sinks=()
    )
    return path


def forge(run: Path, change: Callable[[checkpoints.Arrays], None]) -> None:
    """Rewrite the checkpoint, with its check values."""
    folder = Folder(run, "checkpoints")
    found = checkpoints.read(folder, checkpoints.name_of(1))
    change(found.arrays)
    checkpoints.write(folder, found, keep=1)


def test_arrays_that_numpy_would_stretch_are_refused(original, tmp_path):
    """An array [1] fits into one [N] without a word."""
    state = checkpoints.read(Folder(original, "checkpoints"), checkpoints.name_of(1)).arrays
    kept = [
        name
        for name, array in state.items()
        if name.startswith(("collector0.", "prediction_check."))
        and array.ndim
        and len(array) > 1
        and ".env" not in name
    ]
    assert len(kept) >= 8
    for name in kept:
        run = Path(shutil.copytree(original, tmp_path / "run"))
        forge(run, lambda arrays, name=name: arrays.update({name: arrays[name][:1]}))
        before = (run / "metrics.jsonl").read_bytes()
        with pytest.raises(cupola.CupolaError, match="does not fit its run"):
            cupola.resume(run)
        assert (run / "metrics.jsonl").read_bytes() == before
        shutil.rmtree(run)


def test_indices_of_nothing_are_refused(original, tmp_path):
    state = checkpoints.read(Folder(original, "checkpoints"), checkpoints.name_of(1)).arrays
    for name, values in BOUNDED.items():
        for value in values if name in state else ():
            run = Path(shutil.copytree(original, tmp_path / "run"))
            forge(
                run, lambda arrays, n=name, v=value: arrays.update({n: np.full_like(arrays[n], v)})
            )
            with pytest.raises(cupola.CupolaError, match="does not fit its run"):
                cupola.resume(run)
            shutil.rmtree(run)
