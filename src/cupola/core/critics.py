"""Fitting the critics, on a second core while the policy is improved on the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.types import CriticMemory, Params

Result = TypeVar("Result")

_SECOND_CORE = ThreadPoolExecutor(1, thread_name_prefix="cupola-critics")


class Fit(NamedTuple):
    """Critics and how well they fit."""

    critics: Params
    opt_state: Params
    losses: jax.Array  # [1 + K], mean squared errors over the last epoch

    @classmethod
    def start(cls, critics: Params, opt_state: Params) -> Fit:
        count = len(jax.tree.leaves(critics)[0])
        return cls(critics, opt_state, jnp.zeros(count))

    def part(self, which: slice) -> Fit:
        """Some of the critics: each has an optimiser of its own."""
        return jax.tree.map(lambda leaf: leaf[which], self)

    def joined(self, other: Fit) -> Fit:
        """All critics of both fits."""
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), self, other)


def losses(critics: Params, obs: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared error of each critic, [1 + K]; ``obs`` [B, O], ``targets`` [B, 1 + K]."""
    return jnp.mean((nets.apply_critics(critics, obs) - targets) ** 2, axis=0)


def loss(
    critics: Params, obs: jax.Array, targets: jax.Array, l2: float
) -> tuple[jax.Array, jax.Array]:
    """Sum over the critics of mean squared error + l2 * sum of squared parameters; the errors."""
    penalty = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(critics))
    errors = losses(critics, obs, targets)
    return jnp.sum(errors) + l2 * penalty, errors


def empty_memory(batches: int, samples: int, obs: int, targets: int) -> CriticMemory:
    """A memory of that many batches, without samples yet, and of ``samples`` of each. float16 is
    exact enough for normalised observations, and halves what a checkpoint holds."""
    return CriticMemory(
        jnp.zeros((batches, samples, obs), jnp.float16),
        jnp.zeros((batches, samples, targets)),
        jnp.int32(0),
    )


@jax.jit
def remember(memory: CriticMemory, obs: jax.Array, targets: jax.Array) -> CriticMemory:
    """The memory with ``obs`` [S, O] and ``targets`` [S, 1 + K], and without its oldest batch."""
    return CriticMemory(
        jnp.concatenate([memory.obs[1:], obs[None].astype(jnp.float16)]),
        jnp.concatenate([memory.targets[1:], targets[None]]),
        jnp.minimum(memory.filled + 1, len(memory.obs)),
    )


@jax.jit
def recall(memory: CriticMemory, obs: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What it holds, the newest last, and then these: observations [M S + B, O], targets."""
    batches, samples = memory.targets.shape[:2]
    old = (leaf.reshape(batches * samples, -1) for leaf in (memory.obs, memory.targets))
    old_obs, old_targets = old
    obs = jnp.concatenate([old_obs.astype(obs.dtype), obs])
    return obs, jnp.concatenate([old_targets, targets])


def known(memory: CriticMemory) -> int:
    """How many samples it holds, at the end of what `recall` gives."""
    return int(memory.filled) * memory.obs.shape[1]


class Background(Generic[Result]):
    """``work()`` on a second core, begun at once, or done when its result is asked for.

    Leaving the context waits for it, so that nothing goes on behind an error.
    """

    def __init__(self, work: Callable[[], Result], cores: int) -> None:
        self._work, self._cores = work, cores
        self._future: Future[Result] | None = None

    def result(self) -> Result:
        return self._future.result() if self._future else self._work()

    def __enter__(self) -> Self:
        if self._cores > 1:
            self._future = _SECOND_CORE.submit(self._work)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if self._future:
            self._future.exception()


class Relay(Background[Fit]):
    """Two fits beside other work, so shared out that two cores are busy for as long: the second one
    makes the first ``part`` of one and then all of the ``other``, and whoever asks for the result
    makes the ``rest`` of the first."""

    def __init__(
        self,
        part: Callable[[], Fit],
        rest: Callable[[Fit], Fit],
        other: Callable[[], Fit],
        cores: int,
    ) -> None:
        self._part, self._other = Background(part, cores), Background(other, cores)
        self._rest = rest
        super().__init__(self._finish, 1)

    def _finish(self) -> Fit:
        return self._rest(self._part.result()).joined(self._other.result())

    def __enter__(self) -> Self:
        self._part.__enter__()
        self._other.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._part.__exit__(kind, error, trace)
        self._other.__exit__(kind, error, trace)


class Epochs(Background[Fit]):
    """Epochs of a fit, in the given ``orders`` [E, count, minibatch], beside the policy's.

    How many count is known only when the policy's first step has ended: the fit runs ahead, and
    `keep` says which of its states is the result. It does not depend on which side is faster.
    """

    def __init__(
        self,
        epoch: Callable[[Fit, np.ndarray], Fit],
        begin: Fit,
        orders: np.ndarray,
        cores: int,
    ) -> None:
        self._epoch, self._orders = epoch, orders
        self._states = [begin]
        self._wanted: int | None = None
        self._known = threading.Event()
        super().__init__(self._run, cores)

    def keep(self, count: int) -> None:
        """Want the state after ``count`` epochs."""
        self._wanted = count
        self._known.set()

    def _run(self) -> Fit:
        for order in self._orders:
            if self._known.is_set() and len(self._states) > self._kept():
                break
            self._states.append(jax.block_until_ready(self._epoch(self._states[-1], order)))
        self._known.wait()
        return self._states[self._kept()]

    def _kept(self) -> int:
        return self._wanted or 0

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if not self._known.is_set():  # an error came first
            self.keep(0)
        super().__exit__(kind, error, trace)
