"""Files of studies: what they mean, and one sentence for what is wrong with them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupola.errors import CupolaError
from cupola.sweeps import grid
from cupola.tuning import study
from cupola.tuning.best import assignments
from cupola.tuning.space import Choice, Range

FILE = """
algorithm = "cup"
task = "HopperSpeed"
seeds = [3, 5]
iterations = 40
trials = 10

[shared]
limit = 80
epochs = 7

[space]
learning_rate = { low = 1e-5, high = 1, log = true }
epochs = { low = 1, high = 20 }
improvement = ["clip", "focops"]
hidden = [[8, 8], [64, 64]]
"""
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def parsed(text: str = FILE) -> study.Study:
    return study.parse(tomllib.loads(text), "toy")


def test_a_file_is_a_study() -> None:
    found = parsed()
    assert (found.name, found.trials, found.at_once, found.pruning) == ("toy", 10, 1, True)
    assert found.space == {
        "learning_rate": Range(1e-5, 1.0, log=True, whole=False),
        "epochs": Range(1, 20, log=False, whole=True),
        "improvement": Choice(("clip", "focops")),
        "hidden": Choice(([8, 8], [64, 64])),
    }


def test_a_trial_is_a_cell_for_every_seed() -> None:
    values = {"learning_rate": 1e-3, "epochs": 2, "improvement": "focops", "hidden": [8, 8]}
    cells = parsed().cells(7, values, ())
    assert [cell.name for cell in cells] == [f"cup-HopperSpeed-trial=7-{seed}" for seed in (3, 5)]
    config = cells[1].resolve()
    assert config is not None
    assert config.limits == {"speed": 80.0}
    assert (config.options.seed, config.options.iterations) == (5, 40)
    assert (config.algorithm.learning_rate, config.algorithm.epochs) == (1e-3, 2)
    assert config.algorithm.hidden == (8, 8)


def test_values_of_the_file_are_those_of_the_first_trial_where_the_space_holds_them() -> None:
    both = FILE.replace("[64, 64]", "[64, 64, 1]")
    assert parsed().own_values() == {
        "learning_rate": 6e-4,
        "epochs": 7,
        "improvement": "clip",
        "hidden": [64, 64],
    }
    assert parsed(both).own_values() is None


@pytest.mark.parametrize("name", [file.name for file in sorted(EXPERIMENTS.glob("tune-*.toml"))])
def test_the_studies_that_come_with_cupola_are_in_order(name: str) -> None:
    found = study.read(EXPERIMENTS / name)
    assert found.holds(found.own_values() or {}), "the first trial is the default"


RANGE = "learning_rate = { low = 1e-5, high = 1, log = true }"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("algorithm =", "algorithms ="), "unknown key of a study 'algorithms'.*'algorithm'"),
        (("trials = 10\n", ""), "the key 'trials' is missing: write for example trials = 25"),
        (("trials = 10", "trials = 0"), "trials must be a whole number from 1 to"),
        (("trials = 10", "trials = 1.5"), "trials must be a whole number from 1 to"),
        (("trials = 10", "trials = 10\nat_once = true"), "at_once must be a whole number"),
        (("trials = 10", "trials = 60000"), "more than 100000 runs"),
        (("trials = 10", "trials = 10\npruning = 1"), "pruning must be true or false, not 1"),
        (('"cup"', '["cup"]'), r"algorithm must be one name, not \['cup'\]"),
        (('"cup"', '"cop"'), "unknown algorithm 'cop'"),
        (("[3, 5]", "[]"), "seeds lists nothing"),
        ((FILE[FILE.index("[space]") :], "[space]"), "the space is empty: write for example"),
        ((FILE[FILE.index("[space]") :], ""), "the key 'space' is missing"),
        (("learning_rate =", "lerning_rate ="), "'lerning_rate': did you mean 'learning_rate'"),
        (("epochs = { low", "seed = { low"), "seed cannot be in the space"),
        (("epochs = { low", "iterations = { low"), "iterations cannot be in the space"),
        (("epochs = { low", "limit = { low"), "limit cannot be in the space"),
        (("epochs = { low", "threads = { low"), "threads cannot be in the space"),
        ((RANGE, "learning_rate = 1"), "space.learning_rate: write a range like"),
        (("high = 1,", "height = 1,"), "space.learning_rate: unknown key of a range 'height'"),
        (("high = 1,", ""), "space.learning_rate: 'high' is missing"),
        (("high = 1,", "high = 1e-6,"), "low must be below high, but 1e-05 is not below 1e-06"),
        (("high = 1,", "high = 1e-5,"), "low must be below high"),
        (("high = 1,", "high = inf,"), "high must be a number, not inf"),
        (("high = 1,", 'high = "1",'), "high must be a number, not '1'"),
        (("low = 1e-5", "low = 0"), "on a logarithmic scale low must be above 0, not 0"),
        (("low = 1e-5", "low = -1"), "on a logarithmic scale low must be above 0, not -1"),
        (("log = true", "log = 10"), "log must be true or false, not 10"),
        (("low = 1, high = 20", "low = 1.5, high = 20"), "low must be a whole number, not 1.5"),
        (("low = 1, high = 20", "low = 0, high = 20"), "space.epochs: epochs must be at least 1"),
        (('["clip", "focops"]', "{ low = 1, high = 2 }"), "space.improvement: this field is no"),
        (('["clip", "focops"]', '["clip", 3]'), "improvement must be one of .*, not 3"),
        (('["clip", "focops"]', '["clip"]'), "list two values or more"),
        (('["clip", "focops"]', '["clip", "clip"]'), "a choice is listed twice"),
        (('["clip", "focops"]', "[1979-05-27, 2]"), "choices are numbers, texts"),
        (("[[8, 8], [64, 64]]", '[["8"], [64]]'), "space.hidden: hidden must be whole numbers"),
        (("[space]", "[grid]\ngamma = [0.9]\n[space]"), "unknown key of a study 'grid'"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert change[0] in FILE
    file = tmp_path / "toy.toml"
    file.write_text(FILE.replace(*change, 1))
    with pytest.raises(CupolaError, match=rf"^{file}: .*{says}") as error:
        study.read(file)
    assert "\n" not in str(error.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=True)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(TEXTS, VALUES))
def test_settings_are_written_as_toml(record: dict[str, object]) -> None:
    text = "\n".join(assignments(record))
    assert repr(tomllib.loads(text)) == repr(record)


def test_a_sweep_and_a_study_do_not_take_each_others_files(tmp_path: Path) -> None:
    with pytest.raises(CupolaError, match="unknown key 'algorithm'"):
        grid.parse(tomllib.loads(FILE), "toy")
