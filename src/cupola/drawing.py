"""matplotlib with its own defaults. It would take settings, LaTeX and code among them, from a file
in the working directory, which may be a stranger's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_settings(**settings: Any) -> Iterator[None]:
    """Within, figures are drawn with the defaults and ``settings`` (with _ for a dot, once).

    Texts stay as they are: dollar signs in a name are no mathematics.
    """
    matplotlib = _matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["text.parse_math"] = False
        matplotlib.rcParams.update({k.replace("_", ".", 1): v for k, v in settings.items()})
        yield


def _matplotlib() -> Any:
    """matplotlib, imported where nobody can have put a matplotlibrc: it is read, a pipe too."""
    with _elsewhere():
        import matplotlib
    return matplotlib


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Within, the working directory is one of nobody else."""
    if hasattr(os, "fchdir"):
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir("/")
            yield
        finally:
            os.fchdir(here)
            os.close(here)
    else:  # Windows: a directory has no descriptor, and its root is the one of any drive
        path = os.getcwd()
        try:
            os.chdir(os.path.dirname(__file__))
            yield
        finally:
            os.chdir(path)
