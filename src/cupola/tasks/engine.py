"""N MuJoCo simulations of one model, stepped together: the one file that knows of mjbatch.

There are two engines. On the same MuJoCo they give the same bits (tests/tasks/test_engine.py):

- `mjbatch`: a pool of C++ threads. Each release of mjbatch is built for one release of MuJoCo;
- `plain`: MuJoCo's own Python bindings and Python threads, on whatever MuJoCo is installed.

mjbatch is chosen where it can be imported. The environment variable ``CUPOLA_ENGINE`` asks for one
of the two by its name (docs/decisions/0002-batch-engine.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Protocol

import mujoco
import numpy as np

from cupola.cores import available_cores
from cupola.errors import CupolaError

_WHY_NOT = ""
try:
    import mjbatch
except ImportError as error:  # not installed, or built for another MuJoCo
    mjbatch, _WHY_NOT = None, str(error)

VARIABLE = "CUPOLA_ENGINE"
ENGINES = ("mjbatch", "plain")

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
"""All that the next step depends on. A state row holds its parts in the order of their bits."""
_PARTS = {
    "time": mujoco.mjtState.mjSTATE_TIME,
    "qpos": mujoco.mjtState.mjSTATE_QPOS,
    "qvel": mujoco.mjtState.mjSTATE_QVEL,
    "ctrl": mujoco.mjtState.mjSTATE_CTRL,
    "qfrc_applied": mujoco.mjtState.mjSTATE_QFRC_APPLIED,
    "mocap_pos": mujoco.mjtState.mjSTATE_MOCAP_POS,
    "mocap_quat": mujoco.mjtState.mjSTATE_MOCAP_QUAT,
}
"""Fields of `mujoco.MjData` that are parts of the state and that tasks use."""


class Engine(Protocol):
    """N simulations of one model, which begin in the model's initial state."""

    def bind(self, name: str, /) -> np.ndarray:
        """A live array [N, ...] over a field of `mujoco.MjData`, or over ``"state"``.

        ``"state"`` is [N, S]: all that the future depends on, one row per simulation, to be saved
        and restored. Fields such as ``qpos`` and ``ctrl`` are parts of it: what is written to them
        is what the next call starts from. All other fields are derived. Every call fills them in,
        for the simulations that it is about, and what is written to them has no effect.
        """

    def step(self, *, nstep: int = 1) -> None:
        """``nstep`` times `mj_step`. Derived fields are those of the state before the last one."""

    def forward(self, ids: np.ndarray | None = None) -> None:
        """`mj_forward`: make all derived fields of simulations ``ids`` (default: all) current."""


def make_engine(model: mujoco.MjModel, num_envs: int, threads: int) -> Engine:
    """``num_envs`` simulations on ``threads`` threads (0: one per core)."""
    if engine_name() == "plain":
        return PlainEngine(model, num_envs, threads)
    batch = mjbatch.Batch(model, num_sims=num_envs, num_threads=threads)
    batch.reset()
    return batch


def engine_name() -> str:
    """The name of the engine that `make_engine` makes."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", *ENGINES):
        raise CupolaError(
            f"{VARIABLE} is {asked!r}: write {' or '.join(ENGINES)}, or unset it and let cupola"
            " choose."
        )
    if asked == "mjbatch" and not mjbatch:
        raise CupolaError(
            f"{VARIABLE} asks for mjbatch, which cannot be imported ({_WHY_NOT}): install an"
            f" mjbatch for MuJoCo {mujoco.__version__}, or write {VARIABLE}=plain."
        )
    return asked or ("mjbatch" if mjbatch else "plain")


class PlainEngine:
    """State rows that each thread loads into an `MjData` of its own, one after the other.

    A row decides all that follows, so results do not depend on the number of threads.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int, threads: int) -> None:
        count = min(threads or available_cores(), num_envs)
        self._model = model
        self._data = [mujoco.MjData(model) for _ in range(count)]
        self._pool = ThreadPoolExecutor(count) if count > 1 else None
        initial = np.empty(mujoco.mj_stateSize(model, _STATE))
        mujoco.mj_forward(model, self._data[0])
        mujoco.mj_getState(model, self._data[0], initial, _STATE)
        self._state = np.tile(initial, (num_envs, 1))
        self._derived: dict[str, np.ndarray] = {}

    def bind(self, name: str, /) -> np.ndarray:
        if name == "state":
            return self._state
        count, field = len(self._state), np.asarray(getattr(self._data[0], name))
        if name not in _PARTS:
            empty = np.zeros((count, *field.shape), field.dtype)
            return self._derived.setdefault(name, empty)
        part = int(_PARTS[name])
        begin = mujoco.mj_stateSize(self._model, _STATE & (part - 1))
        return self._state[:, begin : begin + field.size].reshape(count, *field.shape)

    def step(self, *, nstep: int = 1) -> None:
        self._share_out(partial(mujoco.mj_step, nstep=nstep), np.arange(len(self._state)))

    def forward(self, ids: np.ndarray | None = None) -> None:
        self._share_out(mujoco.mj_forward, np.arange(len(self._state)) if ids is None else ids)

    def _share_out(self, call: Callable[..., None], ids: np.ndarray) -> None:
        if self._pool is None:
            self._work(call, self._data[0], ids)
            return
        shares = np.array_split(ids, len(self._data))
        for _ in self._pool.map(self._work, repeat(call), self._data, shares):
            pass  # what a thread raised is raised here

    def _work(self, call: Callable[..., None], data: mujoco.MjData, ids: np.ndarray) -> None:
        """``call`` of simulations ``ids`` in one thread; MuJoCo releases the GIL meanwhile."""
        model, derived = self._model, [(getattr(data, k), v) for k, v in self._derived.items()]
        for i in ids.tolist():
            row = self._state[i]
            mujoco.mj_setState(model, data, row, _STATE)
            call(model, data)
            mujoco.mj_getState(model, data, row, _STATE)
            for source, target in derived:
                target[i] = source
