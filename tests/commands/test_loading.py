"""`cupola resume`, `eval` and `diagnose` of a directory that is not a whole run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REFUSED = [
    ("resume", "RUN"),
    ("resume nowhere", "there is no directory nowhere"),
    ("eval nowhere", "there is no directory nowhere"),
    ("eval nowhere --episode 3", "unknown option '--episode': did you mean '--episodes'?"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()


@pytest.mark.parametrize("action", ["resume", "eval", "diagnose"])
def test_a_path_that_the_system_refuses(complaint, action):
    """Too long here; for others it is a folder that they may not enter."""
    complaint(action, "x" * 300)


@pytest.mark.parametrize("action", ["resume", "eval", "diagnose"])
def test_directories_of_something_else(complaint, tmp_path, action):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("hello")
    (tmp_path / "file.txt").write_text("hello")
    for name in ("empty", "other", "file.txt"):
        assert "does not hold a run" in complaint(action, tmp_path / name)


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda config: {k: v for k, v in config.items() if k != key}


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda config: config | {key: value}


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "cut short": lambda config: json.dumps(config)[:100],
    "empty": lambda config: "",
    "binary": lambda config: b"\x93\x00\xff",
    "a list": lambda config: [config],
    "no task": without("task"),
    "no algorithm": without("algorithm"),
    "no iterations": without("iterations"),
    "no limits": without("limits"),
    "wrong type": changed("iterations", "many"),
    "impossible": changed("iterations", 0),
    "unknown algo": changed("algo", "cupp"),
    "unknown task": changed("task", "HoperSpeed"),
    "unknown field": changed("algorithm", {"gama": 0.9}),
    "limit text": changed("limits", {"speed": "low"}),
    "limits a list": changed("limits", [5]),
}


def rewrite_config(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = change(json.loads((run / "config.json").read_text()))
    if isinstance(content, dict | list):
        content = json.dumps(content)
    (run / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("action", ["resume", "eval", "diagnose"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_config_is_one_sentence(complaint, copy, action, damage):
    rewrite_config(copy, DAMAGE[damage])
    complaint(action, copy)


@pytest.mark.parametrize("action", ["resume", "eval", "diagnose"])
@pytest.mark.parametrize("limits", [{"velocity": 25}, {"speed": -1}])
def test_a_config_with_impossible_limits_is_one_sentence(complaint, copy, action, limits):
    rewrite_config(copy, changed("limits", limits))
    complaint(action, copy)


def test_eval_of_a_run_without_a_readable_checkpoint(complaint, copy):
    for file in (copy / "checkpoints").iterdir():
        file.write_bytes(b"")
    assert f"continue it with 'cupola resume {copy}'" in complaint("eval", copy)
    file = copy / "checkpoints" / "00000006.safetensors"
    assert f"{file} is not a readable checkpoint" in complaint("eval", file)
