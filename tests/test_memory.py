"""What cannot fit is refused in one sentence before it is tried, and nothing else is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import pytest

import cupola
from cupola.config import RunConfig, problem_of, resolve
from cupola.memory import machine_memory, needs, refuse_too_large
from cupola.runs.files import MAX_CHECKPOINT
from cupola.task_source import find_task
from cupola.tasks import spec_of
from cupola.training import Trainer

SIZES = {"batch_size": 60, "num_envs": 6, "hidden": (5, 3), "threads": 1, "minibatch_size": 30}


def parts_of(algo: str, task: str, **fields) -> tuple[RunConfig, dict[str, int]]:
    config = resolve(algo, spec_of(task), None, None, SIZES | fields)
    spec = spec_of(task)
    return config, needs(config, problem_of(spec, config.limits), spec.obs_size, 1)


@pytest.mark.parametrize(
    ("algo", "fields"),
    [
        ("cup", {}),
        ("ppo_pid", {"pid_delay": 7}),
        ("ppo_lag", {"critic_epochs": 1, "critic_memory": 3}),
        ("trpo_lag", {}),
    ],
)
def test_the_bound_is_below_what_is_taken_and_not_far_below(algo, fields):
    if algo == "trpo_lag":
        fields = fields | {"minibatch_size": None}
    chosen = {name: value for name, value in (SIZES | fields).items() if value is not None}
    spec = spec_of("ProbeRegulator")
    config = resolve(algo, spec, None, None, chosen)
    parts = needs(config, problem_of(spec, config.limits), spec.obs_size, 1)
    trainer = Trainer(config, find_task("ProbeRegulator"))
    try:
        learner = sum(leaf.nbytes for leaf in jax.tree.leaves(trainer.learner))
        saved = sum(parts[name] for name in ("hidden", "critic_memory", "pid_delay"))
        assert 0.7 * learner < saved <= learner
    finally:
        trainer.close()


def test_the_largest_things_are_counted():
    """Bytes by hand: ProbeRegulator has 2 inputs, 2 actions and 1 cost."""
    _, parts = parts_of("ppo_lag", "ProbeRegulator")
    step = 4 * (2 * 2 + 2 + 1 + 1) + 2 + 4
    assert parts["batch_size"] == 60 * (2 * step + 4 * 2)
    policy, critic = 3 * 5 + 6 * 3 + 4 * 2, 3 * 5 + 6 * 3 + 4 * 1
    assert parts["hidden"] == 4 * (policy + 3 * 2 * critic)
    assert parts["workers"] == parts["pid_delay"] == 0


HUGE = {
    "batch_size": {"batch_size": 10**12, "num_envs": 1},
    "num_envs": {"batch_size": 10**9, "num_envs": 10**9},
    "hidden": {"hidden": [10**6, 10**6]},
    "pid_delay": {"pid_delay": 10**12},
}


@pytest.mark.parametrize("field", HUGE)
def test_train_says_what_is_too_much(complaint, field):
    line = ["train", "ppo_pid", "ProbeQuadratic"]
    for name, value in ({"minibatch_size": 10} | HUGE[field]).items():
        values = value if isinstance(value, list) else [value]
        line += [f"--{name.replace('_', '-')}", *map(str, values)]
    said = complaint(*line)
    assert said.startswith("this needs at least ")
    assert "TB of memory" in said or "GB of memory" in said
    if field != "num_envs":  # which are never more than there are steps in a batch
        assert f"choose a smaller {field}" in said


@pytest.fixture
def run(probe_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(probe_run, tmp_path / "run"))


@pytest.mark.parametrize("action", ["resume", "diagnose"])
@pytest.mark.parametrize("field", ["batch_size", "num_envs", "hidden"])
def test_a_run_of_a_stranger_is_refused_as_well(command, run, action, field):
    config = json.loads((run / "config.json").read_text())
    config["algorithm"] |= HUGE[field]
    config["iterations"] = 8
    (run / "config.json").write_text(json.dumps(config))
    status, _, err = command(action, run)
    assert (status, err.count("\n")) == (1, 1)
    assert "this needs at least" in err


def test_eval_takes_what_the_checkpoint_has(command, run):
    """The batch is not made, and networks that the file does not hold are not either."""
    config = json.loads((run / "config.json").read_text())
    config["algorithm"] |= HUGE["batch_size"]
    (run / "config.json").write_text(json.dumps(config))
    assert command("eval", run, "--episodes", "2")[0] == 0
    config["algorithm"] |= HUGE["hidden"]
    (run / "config.json").write_text(json.dumps(config))
    status, _, err = command("eval", run, "--episodes", "2")
    assert (status, err.count("\n")) == (1, 1)
    assert "the checkpoint has no array" in err


def test_a_cell_of_a_sweep_fails_with_the_sentence(command, tmp_path):
    text = 'algorithms = ["ppo"]\ntasks = ["ProbeQuadratic"]\nseeds = 1\niterations = 1\n'
    text += "[shared]\nbatch_size = 1_000_000_000_000\nnum_envs = 1\n"
    (tmp_path / "huge.toml").write_text(text)
    status, _, err = command("sweep", tmp_path / "huge.toml", "--out", tmp_path / "sweep")
    assert status == 1
    assert "1 of 1 cells failed" in err
    assert "this needs at least" in err


def test_a_checkpoint_that_could_not_be_read_again_is_not_begun(monkeypatch):
    monkeypatch.setattr("cupola.memory.machine_memory", lambda: 2**60)
    spec = spec_of("ProbeQuadratic")
    config, parts = parts_of("ppo", "ProbeQuadratic", hidden=(20000, 20000))
    assert sum(parts.values()) > MAX_CHECKPOINT
    with pytest.raises(cupola.CupolaError, match=r"a checkpoint would take .*smaller hidden"):
        refuse_too_large(config, problem_of(spec, config.limits), spec.obs_size)


def test_the_machine_has_memory_and_a_container_may_have_less(tmp_path, monkeypatch):
    whole = machine_memory()
    assert whole > 2**28
    (tmp_path / "memory.max").write_text("1000\n")
    monkeypatch.setattr("cupola.memory.CONTAINER", tmp_path / "memory.max")
    assert machine_memory() == 1000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_memory() >= whole


@pytest.mark.parametrize(
    ("algo", "name", "bound"),
    [
        ("ppo", "iterations", 63),
        ("ppo", "batch_size", 63),
        ("ppo", "epochs", 31),
        ("trpo", "cg_iterations", 31),
        ("trpo", "value_iterations", 31),
    ],
)
def test_whole_numbers_have_a_bound(complaint, algo, name, bound):
    """Compiled loops count with 31 bits, files with 63."""
    line = ("train", algo, "ProbeQuadratic", f"--{name.replace('_', '-')}", str(2**bound))
    assert complaint(*line).startswith(f"{name} must be smaller than 2^{bound}")
