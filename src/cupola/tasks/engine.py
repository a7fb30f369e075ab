"""N MuJoCo simulations of one model, stepped together.

There are two engines. On the same MuJoCo they give the same bits (tests/tasks/test_engine.py):

- `native`: an `MjData` per simulation, stepped by cupola's compiled part. Tasks can leave whole
  rollouts to it (`NativeEngine.share_out`);
- `plain`: MuJoCo's own Python bindings, where cupola was installed without a C compiler.

The environment variable ``CUPOLA_ENGINE`` asks for one of the two by its name
(docs/decisions/0014-native-rollouts.md).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

import mujoco
import numpy as np

from cupola import native
from cupola.cores import available_cores
from cupola.errors import CupolaError

VARIABLE = "CUPOLA_ENGINE"
ENGINES = ("native", "plain")

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


def make_engine(model: mujoco.MjModel, num_envs: int, threads: int) -> NativeEngine | PlainEngine:
    """``num_envs`` simulations on ``threads`` threads (0: one per core)."""
    made = NativeEngine if engine_name() == "native" else PlainEngine
    return made(model, num_envs, threads)


def engine_name() -> str:
    """The name of the engine that `make_engine` makes."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", *ENGINES):
        raise CupolaError(
            f"{VARIABLE} is {asked!r}: write {' or '.join(ENGINES)}, or unset it and let cupola"
            " choose."
        )
    there = native.library() is not None and _mujoco() is not None
    if asked == "native" and not there:
        raise CupolaError(
            f"{VARIABLE} asks for native, but cupola was installed without its compiled part:"
            f" install it again where there is a C compiler, or write {VARIABLE}=plain."
        )
    return asked or ("native" if there else "plain")


@functools.cache
def _mujoco() -> ctypes.CDLL | None:
    """MuJoCo's own library, which its Python package has loaded."""
    for path in Path(mujoco.__file__).parent.glob("*mujoco.*"):
        if path.suffix in (".dll", ".dylib") or ".so" in path.name:
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    return None


def initial_state(model: mujoco.MjModel) -> np.ndarray:
    """The state row [S] that simulations begin in."""
    data, initial = mujoco.MjData(model), np.empty(mujoco.mj_stateSize(model, _STATE))
    mujoco.mj_forward(model, data)
    mujoco.mj_getState(model, data, initial, _STATE)
    return initial


def part_of(state: np.ndarray, model: mujoco.MjModel, name: str, field: np.ndarray) -> np.ndarray:
    """The columns of state rows [N, S] that hold a field, as a view [N, ...]."""
    begin = mujoco.mj_stateSize(model, _STATE & (int(_PARTS[name]) - 1))
    return state[:, begin : begin + field.size].reshape(len(state), *field.shape)


class NativeEngine:
    """An `MjData` per simulation. Its rows are loaded where Python has changed them."""

    name = "native"

    def __init__(self, model: mujoco.MjModel, num_envs: int, threads: int) -> None:
        library, functions = native.library(), _mujoco()
        assert library is not None
        assert functions is not None
        self.library, self._model, self.num_envs = library, model, num_envs
        self.threads = min(threads or available_cores(), num_envs)
        self._data = [mujoco.MjData(model) for _ in range(num_envs)]
        self._state = np.tile(initial_state(model), (num_envs, 1))
        self._bound: dict[str, np.ndarray] = {}
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self.physics = native.Physics()
        for name in ("step", "step2", "forward", "setState", "getState"):
            address = ctypes.cast(getattr(functions, f"mj_{name}"), ctypes.c_void_p).value
            field = {"setState": "set_state", "getState": "get_state"}.get(name, name)
            self.physics.fill(**{field: address})
        self.physics.fill(
            model=model._address,
            data=np.array([data._address for data in self._data], np.uintp),
            state=self._state,
            loaded=np.zeros_like(self._state),
            stage=np.zeros(num_envs, np.uint8),
            size=self._state.shape[1],
            signature=_STATE,
        )

    def addresses(self, name: str, offset: int = 0) -> np.ndarray:
        """Where a field of each `MjData` lies [N]; ``offset`` counts numbers."""
        fields = [getattr(data, name) for data in self._data]
        return np.array([field.ctypes.data + 8 * offset for field in fields], np.uintp)

    def size(self, name: str) -> int:
        """How many numbers a field has."""
        return int(getattr(self._data[0], name).size)

    def bind(self, name: str, /) -> np.ndarray:
        if name == "state":
            return self._state
        field = np.asarray(getattr(self._data[0], name))
        if name in _PARTS:
            return part_of(self._state, self._model, name, field)
        if name not in self._bound:
            self._bound[name] = np.zeros((self.num_envs, *field.shape))
            targets = {key: array for key, array in self._bound.items() if array.size}
            fields = [(self.addresses(k), a, a[0].size) for k, a in targets.items()]
            self.physics.keep(fields)
            self.physics.fill(fields=native.field_array(fields), field_count=len(fields))
        return self._bound[name]

    def step(self, *, nstep: int = 1) -> None:
        self.call(self.library.physics_step, None, self.physics, nstep)

    def forward(self, ids: np.ndarray | None = None) -> None:
        self.call(self.library.physics_forward, ids, self.physics)

    def call(
        self,
        function: Callable[..., None],
        ids: np.ndarray | None,
        of: native.Structure,
        *more: Any,
    ) -> None:
        """A compiled function of simulations ``ids`` (default: all), shared by the threads."""
        chosen = np.arange(self.num_envs) if ids is None else np.asarray(ids, np.int64)
        count = min(self.threads, len(chosen))
        if self._pool is None or count < 2:
            function(of.at, chosen.ctypes.data, len(chosen), *more)
            return
        shares = np.array_split(chosen, count)
        jobs = [
            self._pool.submit(function, of.at, share.ctypes.data, len(share), *more)
            for share in shares[1:]
        ]
        function(of.at, shares[0].ctypes.data, len(shares[0]), *more)
        for job in jobs:
            job.result()

    def drive(
        self,
        function: Callable[..., None],
        of: native.Structure,
        actions: np.ndarray,
        *more: int,
    ) -> None:
        """A compiled function that steps each simulation with its actions of [T, N, A]."""
        numbers = np.ascontiguousarray(actions, np.float64)

        def drive_one(i: int, at: int, until: int) -> int:
            function(of.at, i, at, until, numbers.ctypes.data, *more)
            return until

        self.share_out(drive_one, len(numbers))

    def share_out(self, play: Callable[[int, int, int], int], steps: int) -> None:
        """Let every simulation take ``steps`` steps, in turns of the threads.

        ``play(i, t, until)`` plays simulation i from step t on and returns the step where it
        stopped. Turns are short where there are several threads, so that none waits long at the
        end.
        """
        turn = steps if self.threads == 1 else max(16, steps // 8)
        waiting = deque((i, 0) for i in range(self.num_envs))

        def work() -> None:
            while waiting:
                try:
                    i, at = waiting.popleft()
                except IndexError:  # another thread was quicker
                    return
                until = min(steps, at + turn)
                while at < until:
                    at = play(i, at, until)
                if at < steps:
                    waiting.append((i, at))

        if self._pool is None:
            work()
            return
        jobs = [self._pool.submit(work) for _ in range(self.threads)]
        try:
            for job in jobs:
                job.result()
        finally:
            waiting.clear()
            wait(jobs)


class PlainEngine:
    """State rows that each thread loads into an `MjData` of its own, one after the other.

    A row decides all that follows, so results do not depend on the number of threads.
    """

    name = "plain"

    def __init__(self, model: mujoco.MjModel, num_envs: int, threads: int) -> None:
        count = min(threads or available_cores(), num_envs)
        self._model = model
        self._data = [mujoco.MjData(model) for _ in range(count)]
        self._pool = ThreadPoolExecutor(count) if count > 1 else None
        self._state = np.tile(initial_state(model), (num_envs, 1))
        self._derived: dict[str, np.ndarray] = {}

    def bind(self, name: str, /) -> np.ndarray:
        if name == "state":
            return self._state
        field = np.asarray(getattr(self._data[0], name))
        if name not in _PARTS:
            empty = np.zeros((len(self._state), *field.shape), field.dtype)
            return self._derived.setdefault(name, empty)
        return part_of(self._state, self._model, name, field)

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
