"""What the code of an environment may do wrong, as one sentence that names the environment."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from cupola.errors import CupolaError


class EnvironmentFailedError(CupolaError):
    """An environment or its cost function failed; nothing is wrong with the training."""


REQUESTS_TO_END = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What is no failure, whoever raises it. All else is, also where it is no `Exception`."""


@contextmanager
def blaming(name: str, doing: str, remedy: str = "fix the environment") -> Iterator[None]:
    """Turn any exception within into a sentence: ``name`` failed ``doing``; the ``remedy``."""
    try:
        yield
    except REQUESTS_TO_END:
        raise
    except BaseException as error:
        raise blamed(error, name, doing, remedy) from error


def blamed(
    error: BaseException, name: str, doing: str, remedy: str = "fix the environment"
) -> CupolaError:
    """The sentence for an exception; one that is a sentence already is left as it is."""
    if isinstance(error, CupolaError):
        return error
    return EnvironmentFailedError(f"{name} failed {doing} ({described(error)}): {remedy}.")


def described(error: BaseException) -> str:
    """An exception in a few words, with the place that raised it."""
    text = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f", {frames[-1].filename} line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
