"""Experiment files: the cells they mean, and one sentence for every mistake."""

import math
import os
import re
from pathlib import Path

import pytest

from cupola.errors import CupolaError
from cupola.sweeps.cells import Experiment
from cupola.sweeps.grid import parse, read

ROOT = Path(__file__).parents[2]
START = """
iterations = 3
algorithms = ["cup", "ppo_lag"]
tasks = ["SwimmerSpeed", "HopperSpeed"]
seeds = [0, 1]
"""


def experiment(tmp_path: Path, text: str) -> Experiment:
    file = tmp_path / "toy.toml"
    file.write_text(text)
    return read(file)


def test_cells_are_the_product_and_are_named_by_what_varies(tmp_path: Path) -> None:
    found = experiment(tmp_path, START + "[grid]\nclip = [0.1, 0.2]\nhidden = [[8, 8], [16]]\n")
    names = [cell.name for cell in found.cells]
    assert len(names) == len(set(names)) == 2 * 2 * 2 * 2 * 2
    assert names[0] == "cup-SwimmerSpeed-clip=0.1-hidden=8x8-0"
    config = found.cells[0].resolve()
    assert config is not None
    assert (config.algorithm.clip, config.algorithm.hidden) == (0.1, (8, 8))
    assert (config.options.iterations, config.options.threads) == (3, 1)


def test_more_values_leave_the_names_of_the_others_alone(tmp_path: Path) -> None:
    few = {cell.name for cell in experiment(tmp_path, START).cells}
    text = START.replace('"ppo_lag"]', '"ppo_lag", "cpo"]').replace("[0, 1]", "4")
    assert few < {cell.name for cell in experiment(tmp_path, text).cells}


def test_the_nearer_setting_wins(tmp_path: Path) -> None:
    text = START.replace(
        '"cup",', '{ name = "integral", algorithm = "CUP", multiplier = "integral", lam = 0.3 },'
    )
    text += """
    [shared]
    lam = 0.1
    gamma = 0.9
    limit = 7
    [grid]
    delta = [0.5, inf]
    [[override]]
    where = { algorithm = "integral", task = "HopperSpeed", seed = [1, 2], delta = 0.5 }
    set = { lam = 0.5, limit = { speed = 9, effort = 2 }, preset = "release" }
    """
    configs = {cell.name: cell.resolve() for cell in experiment(tmp_path, text).cells}
    special = configs.pop("integral-HopperSpeed-delta=0.5-1")
    assert special is not None
    assert special.limits == {"speed": 9.0, "effort": 2.0}
    assert (special.preset, special.algorithm.batch_size) == ("release", 2048)
    assert (special.algorithm.lam, special.algorithm.gamma) == (0.5, 0.9)
    for name, config in configs.items():
        assert config is not None
        assert config.limits == {"speed": 7.0}
        assert config.algorithm.lam == (0.3 if name.startswith("integral") else 0.1)
        assert config.algorithm.delta == (float("inf") if "inf" in name else 0.5)


def test_a_missing_task_is_left_to_its_cell(tmp_path: Path) -> None:
    found = experiment(tmp_path, START.replace('"HopperSpeed"', '"PointGoal9"'))
    assert [cell.resolve() is None for cell in found.cells[:4]] == [False, False, True, True]


MISTAKES = {
    "deep": ("x = " + "[" * 2000 + "]" * 2000, "is not valid TOML"),
    "digits": ("seeds = " + "9" * 5000, "is not valid TOML"),
    "many": (
        'algorithms = ["cup"]\ntasks = ["HopperSpeed"]\nseeds = 1000000000000',
        "more than 100000 cells",
    ),
    "misspelt key": (
        START.replace("algorithms", "algoritms"),
        "unknown key 'algoritms': did you mean 'algorithms'?",
    ),
    "misspelt field": (START + "[shared]\nlearning_rat = 1\n", "did you mean 'learning_rate'?"),
    "misspelt grid": (START + "[grid]\nclipp = [1]\n", "did you mean 'clip'?"),
    "misspelt algorithm": (START.replace('"cup"', '"cupp"'), "did you mean 'cup'?"),
    "misspelt condition": (
        START + "[[override]]\nwhere = { tsk = 'a' }\nset = { lam = 0.5 }\n",
        "did you mean 'task'?",
    ),
    "misspelt part": (START + "[[override]]\nwere = { seed = 1 }\n", "did you mean 'where'?"),
    "misspelt preset": (START + "[shared]\npreset = 'papr'\n", "did you mean 'paper'?"),
    "misspelt cost": (
        START + "[shared]\nlimit = { sped = 1 }\n",
        "unknown cost of SwimmerSpeed 'sped': did you mean 'speed'?",
    ),
    "field of another": (
        START + "[shared]\nclip = 0.1\nalpha = 0.3\n",
        "ppo_lag has no field",
    ),
    "no key": (START.replace("seeds = [0, 1]", ""), "the key 'seeds' is missing"),
    "no tasks": (
        START.replace('["SwimmerSpeed", "HopperSpeed"]', "[]"),
        "the grid is empty: tasks",
    ),
    "no seeds": (START.replace("[0, 1]", "0"), "the grid is empty: seeds"),
    "no values": (START + "[grid]\nclip = []\n", "the grid is empty: grid.clip"),
    "one value": (START + "[grid]\nclip = 0.1\n", "grid.clip must be a list"),
    "duplicates": (START.replace('"ppo_lag"', '"CUP"'), "two cells are called cup-SwimmerSpeed-0"),
    "duplicate seeds": (START.replace("[0, 1]", "[0, 0]"), "two cells are called"),
    "duplicate values": (START + "[grid]\nclip = [1, 1.0]\n", "two cells are called"),
    "no match": (
        START + "[[override]]\nwhere = { seed = 7 }\nset = { lam = 0.5 }\n",
        "matches no cell",
    ),
    "impossible value": (START + "[shared]\ngamma = 1.5\n", "gamma must lie in [0, 1)"),
    "wrong kind": (START + "[shared]\nhidden = 'wide'\n", "hidden must be whole numbers"),
    "wrong limit": (START + "[shared]\nlimit = 'low'\n", "limit must be a number"),
    "seed as field": (START + "[shared]\nseed = 1\n", "write seeds = [0, 1]"),
    "wrong seeds": (START.replace("[0, 1]", "['a']"), "seeds must be whole numbers"),
    "wrong iterations": (START.replace("= 3", "= 0"), "iterations must be at least 1"),
    "wrong episodes": (START + "evaluation_episodes = 0\n", "evaluation_episodes must be"),
    "wrong name": (START + "name = 'a b'\n", "name must be a word"),
    "not a table": (START + "shared = 3\n", "'shared' must be a table"),
    "not TOML": (START + "x = \n", "is not valid TOML"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_file(tmp_path: Path, mistake: str) -> None:
    text, expected = MISTAKES[mistake]
    with pytest.raises(CupolaError, match=re.escape(expected)) as caught:
        experiment(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'toy.toml'}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CupolaError, match=r"there is no file .*nothing\.toml"):
        read(tmp_path / "nothing.toml")


@pytest.mark.parametrize("key", ["a" + ".a" * 50_000, "a" + " . a" * 50_000])
def test_a_key_without_an_end_is_refused_at_once(tmp_path: Path, key: str) -> None:
    """100 kB of it took tomllib more than a minute."""
    for text in (f"{key} = 1\n", f"[{key}]\n", f"x = {{ {key} = 1 }}\n"):
        (tmp_path / "file.toml").write_text(text)
        with pytest.raises(CupolaError, match="not valid TOML: a key has too many dots"):
            read(tmp_path / "file.toml")


def test_a_file_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(CupolaError, match="not a regular file"):
        read(tmp_path / "pipe.toml")


def test_the_committed_experiments() -> None:
    """All can be read; those of the paper mean what the paper did, and all that are compared train
    for as many steps."""
    files = (ROOT / "experiments").glob("*.toml")
    found = {file.stem: read(file) for file in files if not file.name.startswith("tune-")}
    sizes = {name: len(experiment.cells) for name, experiment in found.items()}
    assert sizes["toy"] == 8
    assert sizes["default-robots"] == 5 * 5
    assert sizes["paper-robots"] == 7 * 3 * 3
    assert sizes["paper-humanoids"] == 7 * 2 * 3
    assert sizes["paper-safety-gym"] == 5 * 2 * 2
    assert sizes["velocity"] == 6 * 2
    limits = [cell.resolve() for cell in found["sensitivity-limit"].cells]
    assert sorted({config.limits["speed"] for config in limits if config}) == [10, 15, 20, 25, 30]
    assert sizes["hopper-trap"] == 4 * 5
    assert sizes["recovery"] == 6
    for name in sizes:
        for cell in found[name].cells:
            config = cell.resolve()
            assert config is not None
            size = (config.options.iterations, config.algorithm.batch_size)
            if name.startswith("paper-") and config.preset == "paper":
                assert size == (500, 5000)
            if name.startswith(("paper-", "default-robots", "sensitivity-", "velocity")):
                assert 2_500_000 <= math.prod(size) < 2_501_000


GYM = {
    "algorithms": ["cup"],
    "tasks": ["gym:Pendulum-v1"],
    "seeds": 1,
    "shared": {"cost": "my_costs:fast", "workers": 2, "limit": 5},
}


def test_environments_of_ones_own_take_their_options_and_ask_for_consent():
    experiment = parse(GYM, "mine")
    (cell,) = experiment.cells
    assert cell.arguments()["cost"] == "my_costs:fast"
    assert cell.arguments()["workers"] == 2
    assert cell.arguments()["limits"] == 5
    assert experiment.effects() == ["import 'my_costs' and call 'fast'"]
    assert parse(GYM | {"shared": {"workers": 2, "limit": 5}}, "mine").effects() == []


def test_tasks_of_cupola_have_costs_of_their_own():
    with pytest.raises(CupolaError, match="cost is for Gymnasium environments"):
        parse(GYM | {"tasks": ["HopperSpeed"]}, "mine")
