"""The zoo: what is in it agrees with its cards, and a new entry is the policy of its run."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupola
from cupola import zoo
from cupola.cli import main
from cupola.errors import CupolaError
from cupola.evaluation import Evaluation
from cupola.reports.results import RunResult
from cupola.runs import checkpoints
from cupola.runs.files import Folder
from cupola.tasks import specs

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # what fills the zoo is no part of the package
filling = importlib.import_module("results.zoo")

SWEEP = """
name = "tiny"
iterations = 3
algorithms = ["cup"]
tasks = ["ProbeQuadratic"]
seeds = 2
evaluation_episodes = 2
[shared]
limit = 10
batch_size = 400
num_envs = 4
minibatch_size = 100
epochs = 1
critic_epochs = 1
hidden = [8, 8]
checkpoint_every = 1
sinks = []
"""
EPISODES = 20


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "tiny.toml").write_text(SWEEP)
    main(["sweep", str(folder / "tiny.toml"), "--out", str(folder / "tiny"), "--jobs", "1"])
    return folder / "tiny"


@pytest.fixture(scope="module")
def filled(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("zoo")
    (said,) = filling.fill([sweep], EPISODES, 7, home)
    assert said.startswith(f"{home / 'ProbeQuadratic'}: seed ")
    return home


@pytest.fixture
def home(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(zoo, "HOME", filled)
    return filled


def check_entry(name: str) -> None:
    """A card says what config, file and policy are."""
    card, folder = zoo.card(name), zoo.folder(name)
    policy = cupola.load(f"zoo:{name}")
    config = policy.config
    said = (card["task"], card["algorithm"], card["preset"], card["limits"], card["iteration"])
    assert said == (config.task, config.algo, config.preset, config.limits, policy.iteration)
    assert (card["seed"], card["seed"] in card["seeds"]) == (config.options.seed, True)
    assert card["steps"] == policy.iteration * config.algorithm.batch_size
    assert config.options.start_from == ""
    (file,) = (folder / "checkpoints").iterdir()
    assert card["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    kept = checkpoints.read(Folder(folder, "checkpoints"), file.name).arrays
    assert all(
        key.startswith(("learner.policy.", "moments.", "inputs", "obs_size")) for key in kept
    )
    spec = specs()[config.task]
    assert policy.predict(np.zeros((3, spec.obs_size))).shape == (3, spec.act_size)
    for found in (card["evaluation"]["sampled"], card["evaluation"]["deterministic"]):
        assert {k: cost["limit"] for k, cost in found["costs"].items()} == card["limits"]
    for cost, limit in card["limits"].items():
        assert card["training"]["costs"][cost] <= limit
        assert card["evaluation"]["sampled"]["costs"][cost]["mean"] <= limit


@pytest.mark.parametrize("name", zoo.names())
def test_every_entry_agrees_with_its_card(name: str) -> None:
    check_entry(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_every_entry_does_on_other_episodes_what_its_card_says(name: str) -> None:
    """The two intervals of each number overlap."""
    card = zoo.card(name)["evaluation"]
    found = cupola.evaluate(cupola.load(f"zoo:{name}"), episodes=100, seed=card["seed"] + 1)
    said = card["sampled"]
    pairs = [(found.returns, said["return"])]
    pairs += [(cost.value, said["costs"][k]) for k, cost in found.costs.items()]
    for now, then in pairs:
        assert now.low <= then["high"]
        assert then["low"] <= now.high


def test_a_new_entry_is_the_best_feasible_policy_of_the_sweep(home: Path, sweep: Path) -> None:
    assert zoo.names() == ["ProbeQuadratic"]
    check_entry("ProbeQuadratic")
    card = zoo.card("ProbeQuadratic")
    assert card["seeds"] == [0, 1]
    finals = {seed: final_return(sweep / f"cup-ProbeQuadratic-{seed}") for seed in (0, 1)}
    assert card["seed"] == max(finals, key=finals.__getitem__)
    assert card["training"]["return"] == finals[card["seed"]]
    ours = cupola.load("zoo:ProbeQuadratic", checkpoint="best")
    theirs = cupola.load(sweep / f"cup-ProbeQuadratic-{card['seed']}")
    obs = np.linspace(-1, 1, 7)[:, None]
    np.testing.assert_array_equal(ours.predict(obs), theirs.predict(obs))
    again = cupola.evaluate(ours, episodes=EPISODES, seed=7)
    assert again.summary() == card["evaluation"]["sampled"]
    assert sum(f.stat().st_size for f in home.rglob("*") if f.is_file()) < 10_000


def final_return(run: Path) -> float:
    """The last tenth of three iterations is the last one."""
    return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["return"]


def test_a_run_that_is_not_feasible_is_no_entry(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "evaluate", above_its_limits)
    first, second = filling.fill([sweep], 2, 7, tmp_path / "zoo")
    assert first.endswith("cost is above its limit on fresh episodes.")
    assert {first.partition(":")[0], second.partition(":")[0]} == {
        f"cup-ProbeQuadratic-{seed}" for seed in (0, 1)
    }
    monkeypatch.setattr(RunResult, "feasible", False)
    said = list(filling.fill([sweep], 2, 7, tmp_path / "zoo"))
    assert said == ["ProbeQuadratic: none of 2 finished runs is feasible."]
    assert not (tmp_path / "zoo").exists()


def test_a_better_entry_is_kept(home: Path, sweep: Path, tmp_path: Path) -> None:
    other = tmp_path / "zoo"
    shutil.copytree(home, other)
    card = other / "ProbeQuadratic" / "card.json"
    record = json.loads(card.read_text())
    record["evaluation"]["sampled"]["return"]["mean"] += 1
    card.write_text(json.dumps(record))
    before = card.read_bytes()
    (said,) = filling.fill([sweep], EPISODES, 7, other)
    assert "is kept: its return is higher" in said
    assert card.read_bytes() == before


def above_its_limits(policy: cupola.Policy, **options: Any) -> Evaluation:
    found = cupola.evaluate(policy, **options)
    costs = {name: cost._replace(limit=cost.value.mean - 1) for name, cost in found.costs.items()}
    return found._replace(costs=costs)


def test_commands_take_a_policy_of_the_zoo(home: Path, command, complaint, tmp_path: Path) -> None:
    status, out, err = command("eval", "zoo:ProbeQuadratic", "--episodes", "3")
    assert (status, err) == (0, "")
    assert "policy of iteration 3" in out
    status, out, err = command("export", "zoo:ProbeQuadratic", tmp_path / "policy.npz")
    assert (status, err) == (0, "")
    lines = command("list")[1].splitlines()
    card = zoo.card("ProbeQuadratic")["evaluation"]["sampled"]
    (line,) = (line for line in lines if line.startswith("  zoo:ProbeQuadratic"))
    cost = card["costs"]["cost"]["mean"]
    assert line.split() == [
        "zoo:ProbeQuadratic", f"{card['return']['mean']:.4g};", "cost", f"{cost:.4g}", "<=", "10"
    ]  # fmt: skip
    assert "needs a run with its critics" in complaint("diagnose", "zoo:ProbeQuadratic")
    assert "single policy" in complaint("eval", "zoo:ProbeQuadratic", "--checkpoint", "3")


@pytest.mark.parametrize(
    "name",
    ["ProbeQuadratik", "", "..", "../zoo", "ProbeQuadratic/../ProbeQuadratic", "/etc", "a\0b"],
)
def test_a_name_that_is_not_in_the_zoo_is_one_sentence(home: Path, name: str) -> None:
    with pytest.raises(CupolaError) as error:
        cupola.load(f"zoo:{name}")
    assert str(error.value).startswith("unknown policy of the zoo ")
    assert "ProbeQuadratic" in str(error.value)


def test_an_empty_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command) -> None:
    monkeypatch.setattr(zoo, "HOME", tmp_path)
    with pytest.raises(CupolaError, match="this version has none in its zoo"):
        cupola.load("zoo:HopperSpeed")
    assert "zoo:" not in command("list")[1]


def test_links_and_damage_are_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "zoo"
    shutil.copytree(home, other)
    (other / "Linked").symlink_to(other / "ProbeQuadratic")
    monkeypatch.setattr(zoo, "HOME", other)
    with pytest.raises(CupolaError, match="unknown policy"):
        cupola.load("zoo:Linked")
    (file,) = (other / "ProbeQuadratic" / "checkpoints").iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CupolaError, match="no readable checkpoint"):
        cupola.load("zoo:ProbeQuadratic")
    (other / "ProbeQuadratic" / "card.json").write_text("{}")
    with pytest.raises(CupolaError, match=r"card\.json is damaged \(it has no 'task'\)"):
        zoo.card("ProbeQuadratic")
