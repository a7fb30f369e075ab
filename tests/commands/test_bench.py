"""`cupola bench`."""

import pytest

REFUSED = [
    ("bench HoperSpeed", "unknown task 'HoperSpeed': did you mean 'HopperSpeed'?"),
    ("bench HopperSpeed --iterations 0", "iterations must be at least 1, not 0"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()
