"""What a training takes of the memory at the very least, known before any of it is taken.

A config may come from a stranger or from a slip of the finger. The numbers here are lower bounds:
what they refuse could never have run.
"""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from cupola.algos.config import LagrangianConfig
from cupola.algos.learner import REMEMBERED
from cupola.config import RunConfig
from cupola.errors import CupolaError
from cupola.runs.files import MAX_CHECKPOINT
from cupola.types import Problem

FOREIGN_ENV = 2000
"""Bytes of a Gymnasium environment, which is an object of Python with wrappers around it."""
WORKER = 20 * 2**20
"""Bytes of a process that has imported numpy and Gymnasium."""
UNKNOWN = 2**50
"""Bytes of a machine that does not tell: whatever is larger is a slip everywhere."""
CONTAINER = Path("/sys/fs/cgroup/memory.max")


def refuse_too_large(config: RunConfig, problem: Problem, obs_size: int, batches: int = 1) -> None:
    """Raise where a training, with ``batches`` of its batches at a time, cannot fit."""
    parts = needs(config, problem, obs_size, batches)
    total, available = sum(parts.values()), machine_memory()
    if total > available:
        raise CupolaError(
            f"this needs at least {size(total)} of memory, and the machine has {size(available)}:"
            f" choose a smaller {largest(parts)}."
        )
    saved = {name: parts[name] for name in SAVED}
    if sum(saved.values()) > MAX_CHECKPOINT:
        raise CupolaError(
            f"a checkpoint would take {size(sum(saved.values()))}, and at most"
            f" {size(MAX_CHECKPOINT)} can be read again: choose a smaller {largest(saved)}."
        )


def largest(parts: dict[str, int]) -> str:
    """The fields behind most of it."""
    share = sum(parts.values()) / 5
    return " or ".join(name for name, count in parts.items() if count > share)


SAVED = ("hidden", "critic_memory", "pid_delay")
"""Fields that decide how large a checkpoint is."""


def needs(config: RunConfig, problem: Problem, obs_size: int, batches: int) -> dict[str, int]:
    """Bytes at least, by the field that decides about them."""
    algorithm, costs = config.algorithm, len(problem.costs)
    inputs, actions, heads = problem.obs_size, problem.act_size, 1 + costs
    # Observations before and after the step, action, reward, costs, two flags, time; and the noise.
    step = 4 * (2 * inputs + actions + 1 + costs) + 2 + 4
    sample = 2 * step + 4 * actions  # as the policy saw them, beside as the task gave them
    env = FOREIGN_ENV if config.gym else 8 * obs_size
    policy, critic = (
        sum((a + 1) * b for a, b in pairwise((inputs, *algorithm.hidden, outputs)))
        for outputs in (actions, 1)
    )
    remembered = math.ceil(REMEMBERED * algorithm.batch_size) * (2 * inputs + 4 * heads)
    parts = {
        "batch_size": batches * algorithm.batch_size * sample,
        "num_envs": algorithm.num_envs * env,
        "hidden": 4 * (policy + 3 * heads * critic),  # Adam has two numbers for each
        "critic_memory": algorithm.critic_memory * remembered,
        "pid_delay": 0,
        "workers": 0,
    }
    if isinstance(algorithm, LagrangianConfig) and algorithm.multiplier == "pid":
        parts["pid_delay"] = 4 * algorithm.pid_delay * costs
    if config.gym:
        parts["workers"] = min(config.gym.workers, algorithm.num_envs) * WORKER
    return parts


def machine_memory() -> int:
    """Bytes that this process could have if it were alone, with the bound of its container."""
    found = _physical_memory()
    try:
        return min(found, int(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return found


def _physical_memory() -> int:
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    import ctypes

    kilobytes = ctypes.c_ulonglong()  # Windows
    system: Any = ctypes
    told = system.windll.kernel32.GetPhysicallyInstalledSystemMemory(ctypes.byref(kilobytes))
    return 1024 * kilobytes.value if told else UNKNOWN


def size(count: int) -> str:
    """Bytes as people say them."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count} bytes"
