"""What cupola may do under attack: succeed, or say one sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

EXIT_CODES = (0, 1, 2, 130)
WARNING = "cupola: warning: "
OTHER_MESSAGE = re.compile(r"^(cupola: interrupted\.|usage: cupola)")
NOT_PLAIN = re.compile("\x1b|[│╭╰─]")
"""Colour codes and the rules of boxes have no place in a sentence."""


class Failed(Exception):  # noqa: N818 (it is a verdict, not an error of the suite)
    """The attack got through; the message says what happened."""


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    """The exit code, or minus the signal."""
    out: str
    err: str

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith(WARNING)]

    @property
    def sentence(self) -> str:
        """What standard error says beside warnings."""
        lines = [line for line in self.err.splitlines() if not line.startswith(WARNING)]
        return "\n".join(lines)


def require(holds: object, message: str) -> None:
    if not holds:
        raise Failed(message)


def check_manners(outcome: Outcome, what: str = "") -> Outcome:
    """No traceback; an exit code that is documented; one sentence where it is not 0."""
    where = f"{what}: " if what else ""
    both = outcome.out + outcome.err
    if "Traceback (most recent call last)" in both:
        raise Failed(f"{where}traceback, {last_line(both)}")
    code = outcome.code
    require(code in EXIT_CODES, f"{where}exit code {code}, {last_line(outcome.err)}")
    sentence = outcome.sentence
    if code in (1, 2) and not (code == 2 and not sentence):
        require(sentence, f"{where}exit code {code} without a word")
        fine = sentence.startswith("cupola: ") and "\n" not in sentence
        require(fine, f"{where}exit code {code}, not one sentence: {sentence[:300]!r}")
    require(not NOT_PLAIN.search(sentence), f"{where}a sentence with frames: {sentence[:200]!r}")
    if code == 0:
        plain = not sentence or OTHER_MESSAGE.search(sentence)
        require(plain, f"{where}exit code 0, but: {sentence[:300]!r}")
    return outcome


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was printed"
