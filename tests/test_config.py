"""Settings, limits and configs: what a user writes, and what config.json keeps of it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from cupola import algos
from cupola.commands.train import parse_limits, parse_train
from cupola.config import (
    RunConfig,
    RunOptions,
    Settings,
    problem_of,
    require_limits,
    resolve,
    resolve_limits,
    run_config,
    settings_from,
)
from cupola.cores import available_cores
from cupola.errors import CupolaError
from cupola.gym.options import GymOptions
from cupola.tasks import spec_of
from cupola.tasks.base import TaskSpec
from cupola.types import Cost

PRESETS = [
    (name, preset) for name in algos.names() for preset in algos.load_algorithm(name).PRESETS
]
TWO = TaskSpec("Two", 3, 2, (Cost("speed", 5.0, True), Cost("effort", None, False)), 10)
NONE = TaskSpec("None", 3, 2, (), 10)
GYM = TaskSpec("gym:CartPole-v1", 4, 2, (Cost("cost", None, False),), 500)


# --- Back and forth ---


@pytest.mark.parametrize(("algo", "preset"), PRESETS)
def test_a_config_comes_back_from_its_file(algo, preset):
    """Infinity and tuples too, which JSON does not have."""
    fields = {"hidden": (3, 5), "seed": 7, "sinks": ("wandb", "tensorboard")}
    config = resolve(algo, TWO, preset, {"effort": 2.5}, fields)
    text = json.dumps(config.to_json(), allow_nan=False)
    assert RunConfig.from_json(json.loads(text)) == config
    assert config.algorithm.hidden == (3, 5)
    assert config.options.sinks == ("wandb", "tensorboard")
    assert (config.preset, config.limits) == (preset, {"speed": 5.0, "effort": 2.5})


def test_the_options_of_a_gymnasium_environment_come_back_too():
    given = {"workers": 3, "discounted": True, "cost": "package.module:function"}
    config = resolve("ppo", GYM, "paper", 3.0, given)
    assert config.gym == GymOptions(**given)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_without_fields_the_algorithm_is_the_preset():
    for algo, preset in PRESETS:
        settings = settings_from(algo, preset, {})
        assert settings.algorithm == algos.load_algorithm(algo).PRESETS[preset]
        assert (settings.options, settings.gym) == (RunOptions(), GymOptions())


@pytest.mark.parametrize("name", ["ppo-lag", "PPO_LAG", "Ppo-Lag"])
def test_the_algorithm_is_recorded_under_one_name(name):
    assert resolve(name, TWO, "paper", None, {}).algo == "ppo_lag"


LINES = [
    ("cup HopperSpeed", {}),
    ("cup HopperSpeed --preset release --seed 3 --hidden 8 8", {"seed": 3, "hidden": (8, 8)}),
    ("cup HopperSpeed --delta inf --no-normalise-obs", {"delta": math.inf, "normalise_obs": False}),
    ("cup HopperSpeed --sinks tensorboard wandb", {"sinks": ("tensorboard", "wandb")}),
    ("cup HopperSpeed --seed 1 --sinks", {"seed": 1, "sinks": ()}),
    ("ppo gym:CartPole-v1 --workers 2 --discounted", {"workers": 2, "discounted": True}),
]


@pytest.mark.parametrize(("line", "fields"), LINES)
def test_the_command_line_parses_the_settings_that_python_builds(line, fields):
    asked = parse_train(line.split())
    parsed = Settings(asked.preset, asked.options, asked.algorithm, asked.gym)
    assert parsed == settings_from(asked.algo, asked.preset, fields)


def test_a_list_of_a_toml_file_is_as_good_as_a_tuple():
    fields = {"hidden": [4, 4], "sinks": ["mlflow"]}
    settings = settings_from("cup", "paper", fields)
    assert (settings.algorithm.hidden, settings.options.sinks) == ((4, 4), ("mlflow",))


# --- Refused ---


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"itertions": 3}, "unknown field 'itertions': did you mean 'iterations'?"),
        ({"worker": 3}, "unknown field 'worker': did you mean 'workers'?"),
        ({"iterations": 0}, "iterations must be at least 1, not 0."),
        ({"seed": 2**32}, f"seed must lie in [0, 2^32), not {2**32}."),
        ({"threads": True}, "threads must be a whole number, not True."),
        ({"workers": -1}, "workers must not be negative, not -1."),
        ({"sinks": ["wndb"]}, "unknown sink 'wndb': did you mean 'wandb'?"),
    ],
)
def test_impossible_fields_are_one_sentence(fields, expected):
    with pytest.raises(CupolaError, match=f"^{re.escape(expected)}$"):
        settings_from("cup", "paper", fields)


@pytest.mark.parametrize("field", [{"workers": 2}, {"cost": "a:b"}, {"max_episode_steps": 9}])
def test_options_of_gymnasium_are_refused_for_a_task_of_cupola(field):
    settings = settings_from("cup", "paper", field)
    [name] = field
    with pytest.raises(CupolaError, match=f"^{name} is for Gymnasium environments"):
        run_config("cup", TWO, None, settings)


@pytest.mark.parametrize("key", ["algo", "task", "preset", "limits", "seed", "sinks", "algorithm"])
def test_a_record_without_a_part_is_damaged(key):
    record = resolve("cup", TWO, "paper", None, {}).to_json()
    del record[key]
    with pytest.raises(CupolaError, match="the config is incomplete or damaged"):
        RunConfig.from_json(record)


# --- Limits ---


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        (TWO, None, {"speed": 5.0}),
        (TWO, 3, {"speed": 3.0}),
        (TWO, {"effort": 1}, {"speed": 5.0, "effort": 1.0}),
        (TWO, {"effort": 1, "speed": math.inf}, {"effort": 1.0}),
        (TWO, math.inf, {}),
        (GYM, 2, {"cost": 2.0}),
        (NONE, None, {}),
    ],
)
def test_limits_are_the_defaults_with_the_given_ones_put_in(spec, given, expected):
    found = resolve_limits(spec, given)
    assert found == expected
    assert list(found) == [cost.name for cost in spec.costs if cost.name in expected]


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        (TWO, {"sped": 1}, "unknown cost of Two 'sped': did you mean 'speed'?"),
        (TWO, -1, "the limit of speed must be a number of at least 0"),
        (TWO, math.nan, "the limit of speed must be a number of at least 0"),
        (NONE, 1, "None measures no cost"),
        (GYM._replace(costs=(*TWO.costs[1:], Cost("a", None, False))), 1, "has several costs"),
    ],
)
def test_impossible_limits_are_refused(spec, given, expected):
    with pytest.raises(CupolaError, match=re.escape(expected)):
        resolve_limits(spec, given)


def test_only_algorithms_that_ignore_costs_train_without_a_limit():
    for spec, complaint in ((NONE, "measures no cost"), (GYM, "has no limit yet")):
        with pytest.raises(CupolaError, match=complaint):
            require_limits(resolve("cup", spec, "paper", None, {}), spec)
        require_limits(resolve("ppo", spec, "paper", None, {}), spec)


def test_the_problem_has_the_limits_in_the_order_of_the_task():
    problem = problem_of(TWO._replace(constant=(1,)), {"effort": 1.0, "speed": 2.0})
    assert (problem.costs, problem.limits) == (("speed", "effort"), (2.0, 1.0))
    assert problem.discounted == (True, False)
    assert (problem.obs_size, problem.act_size, problem.discrete) == (2, 2, False)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], None),
        (["82.7"], 82.7),
        (["speed=80"], {"speed": 80.0}),
        (["speed=80", "effort=inf"], {"speed": 80.0, "effort": math.inf}),
    ],
)
def test_limits_of_the_command_line(texts, expected):
    assert parse_limits(texts) == expected


# --- Small things ---


def test_cores_are_shared_by_two_collectors():
    assert RunOptions().cores == available_cores()
    cores = (1, 2, 3, 8)
    assert [RunOptions(threads=n).engine_threads for n in cores] == [1, 1, 1, 4]


def test_the_default_directory_is_a_name_that_any_system_takes():
    spec = spec_of("HopperSpeed")
    hopper = resolve("cup", spec, None, None, {"seed": 3, "threads": 1, "sinks": ()})
    assert hopper.default_path(spec) == Path("runs/cup-HopperSpeed-3")
    pong = GYM._replace(name="gym:ALE/Pong-v5")
    config = resolve("ppo", pong, None, None, {"cost": "a.b:c"})
    assert config.default_path(pong) == Path("runs/ppo-gym-ALE-Pong-v5-cost=a.b_c-0")


def test_default_directories_tell_apart_what_was_asked():
    spec = spec_of("HopperSpeed")
    asked = [
        (None, None, {}),
        (None, {"effort": 40}, {}),
        (None, {"effort": 40, "speed": math.inf}, {}),
        ("paper", None, {}),
        (None, None, {"lam": 0.9, "hidden": (8, 8)}),
        (None, None, {"iterations": 20}),
        (None, None, {"start_from": "runs/other"}),
    ]
    paths = [resolve("cup", spec, *parts).default_path(spec) for parts in asked]
    assert [path.name for path in paths] == [
        "cup-HopperSpeed-0",
        "cup-HopperSpeed-effort=40-0",
        "cup-HopperSpeed-speed=inf-effort=40-0",
        "cup-HopperSpeed-preset=paper-0",
        "cup-HopperSpeed-lam=0.9-hidden=8x8-0",
        "cup-HopperSpeed-iterations=20-0",
        "cup-HopperSpeed-start_from=other-0",
    ]


def test_a_default_directory_is_never_longer_than_a_system_takes():
    spec = spec_of("HopperSpeed")
    fields = [{"hidden": (64,) * 100}, {"hidden": (64,) * 99 + (63,)}]
    names = [resolve("cup", spec, None, None, one).default_path(spec).name for one in fields]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 130
