"""The counter-examples: tiny, rational, exact, and not forged."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.theory import bounds, counterexample, exact, make_cmdp
from cupola.theory.bounds import Cases


@pytest.fixture(scope="module", name="found")
def found_fixture():
    return {name: counterexample.search(name) for name in counterexample.CLAIMS}


def as_floats(value):
    return np.array([[float(Fraction(x)) for x in row] for row in value])


@pytest.mark.parametrize("name", counterexample.CLAIMS)
def test_it_is_tiny_and_holds_exactly_and_in_floating_point(found, name):
    record = json.loads(json.dumps(found[name]))
    assert len(record["start"]) == len(record["old"][0]) == 2
    excess = counterexample.check(record)
    assert isinstance(excess, Fraction)
    assert excess > 0
    moves = np.array([as_floats(rows) for rows in record["transitions"]])
    cmdp = make_cmdp(
        moves, as_floats(record["reward"]), np.zeros((0, 2, 2)), [], [1.0, 0.0],
        float(Fraction(record["gamma"])),
    )  # fmt: skip
    many = type(cmdp)(*(array[None] for array in cmdp))
    old, new = as_floats(record["old"])[None], as_floats(record["new"])[None]
    lam = np.array([float(Fraction(record["lambda"]))])
    claim = counterexample.CLAIMS[name]
    phi = exact.values(many, old, many.reward) if claim.with_values else np.zeros((1, 2))
    bound = claim.screen(Cases(many, new, old, lam, phi, many.reward))
    assert bound.excess[0] == pytest.approx(float(excess), abs=1e-8)
    assert bound.truth[0] == pytest.approx(float(Fraction(record["truth"])))
    if name == "theorem_1":
        corrected = bounds.theorem_1(Cases(many, new, old, lam, phi, many.reward), 1, "corrected")
        assert corrected.excess[0] <= 1e-12


def test_the_example_to_proposition_1_by_hand(found):
    """Action 1 leads from state 0 to state 1, where it pays 1; the new policy never takes it there.

    J(old) = 1/2 (1/2 V(1)), V(1) = 1/2 + 1/2 V(0): J(old) = 1/5. J(new) = 0.
    """
    record = found["proposition_1"]
    assert Fraction(record["truth"]) == Fraction(-1, 5)
    assert Fraction(record["bound"]) == Fraction(-11, 60)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("excess", "1/2"),
        ("truth", "0"),
        ("new", [["1/2", "1/2"], ["1/2", "1/2"]]),
        ("old", [["1/2", "1/3"], ["1/2", "1/2"]]),
        ("gamma", "x"),
        ("reward", [[]]),
    ],
)
def test_a_forged_or_damaged_record_is_refused(found, key, value):
    record = copy.deepcopy(found["proposition_1"])
    record[key] = value
    with pytest.raises(CupolaError):
        counterexample.check(record)
