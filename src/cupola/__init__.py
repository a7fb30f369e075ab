"""cupola: safe reinforcement learning.

Three lines to a policy::

    run = cupola.train("cup", "HopperSpeed", seed=0)
    policy = cupola.load(run.path, checkpoint="best")
    action = policy.predict(obs)
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from cupola.version import __version__

# Before JAX starts: one thread per operation, so that results do not depend on the number of
# cores and two computations can run side by side (docs/decisions/0001).
_FLAG = "--xla_cpu_multi_thread_eigen=false"
if "xla_cpu_multi_thread_eigen" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}".strip()

if TYPE_CHECKING:
    from cupola.diagnosis.diagnose import diagnose
    from cupola.errors import CupolaError
    from cupola.evaluation import evaluate
    from cupola.gym.safety_gymnasium import safety_gymnasium_make
    from cupola.interface import resume, train
    from cupola.policy import Policy, load
    from cupola.tasks.base import TaskFactory
    from cupola.training import STOP, Run

__all__ = [
    "STOP",
    "CupolaError",
    "Policy",
    "Run",
    "TaskFactory",
    "__version__",
    "diagnose",
    "evaluate",
    "load",
    "resume",
    "safety_gymnasium_make",
    "train",
]

_HOMES = {
    "CupolaError": "errors",
    "diagnose": "diagnosis.diagnose",
    "evaluate": "evaluation",
    "Policy": "policy",
    "load": "policy",
    "Run": "training",
    "TaskFactory": "tasks.base",
    "STOP": "training",
    "resume": "interface",
    "safety_gymnasium_make": "gym.safety_gymnasium",
    "train": "interface",
}


def __getattr__(name: str) -> Any:
    """Load JAX and the rest only when something is used: `cupola --help` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'cupola' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"cupola.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def _register() -> None:
    """Make Gymnasium know the tasks: `gymnasium.make("cupola/HopperSpeed-v0")`."""
    from cupola.gym.register import register_all

    register_all()


def _show_warnings_plainly() -> None:
    """Warnings of cupola are sentences for a user: the line of source below them says nothing."""
    from cupola.errors import CupolaWarning

    before = warnings.formatwarning

    def formatted(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if issubclass(category, CupolaWarning):
            return f"cupola: warning: {message}\n"
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = formatted


_register()
_show_warnings_plainly()
