"""`cupola eval`."""

import json
import re

import pytest

import cupola


@pytest.mark.parametrize("episodes", ["0", "-2", "many"])
def test_eval_of_no_episodes(complaint, trained, episodes):
    assert "episodes" in complaint("eval", trained.path, "--episodes", episodes)


def rows(out: str) -> list[list[str]]:
    """Cells of a printed table."""
    found = [line.strip().strip("│┃") for line in out.splitlines() if line.strip()[:1] in "│┃"]
    return [[cell.strip() for cell in re.split("[│┃]", line)] for line in found]


def test_eval_prints_means_intervals_and_the_share_of_safe_episodes(command, trained):
    status, out, err = command("eval", trained.path, "--episodes", "5", "--deterministic")
    assert (status, err) == (0, "")
    assert "5 episodes, deterministic actions" in out
    table = {cells[0]: cells[1:] for cells in rows(out)}
    assert table[""] == ["mean", "95 % interval", "limit", "safe episodes"]
    for name in ("return", "episode length", "cost speed", "cost speed, undiscounted"):
        mean, interval = table[name][:2]
        low, high = map(float, interval.strip("[]").split(", "))
        assert low <= float(mean) <= high
    assert table["cost speed"][2] == "5.00"
    assert int(table["cost speed"][3].removesuffix(" %")) in (0, 20, 40, 60, 80, 100)
    again = command("eval", trained.path, "--episodes", "5", "--deterministic")
    assert (again[0], rows(again[1]), again[2]) == (status, rows(out), err)
    newest = trained.path / "checkpoints" / "00000006.safetensors"
    other = command("eval", newest, "--episodes", "5", "--deterministic")[1]
    assert rows(other) == rows(out)
    sampled = command("eval", trained.path, "--episodes", "5")[1]
    assert "5 episodes, sampled actions" in sampled
    assert rows(sampled) != rows(out)
    assert "one episode" in command("eval", trained.path, "--episodes", "1")[1]


def test_eval_takes_the_best_the_last_or_one_of_the_policies(command, complaint, probe_run):
    def iteration(*args: str) -> str:
        status, out, err = command("eval", probe_run, "--episodes", "2", *args)
        assert (status, err) == (0, "")
        return re.search(r"policy of iteration (\d+)", out)[1]

    best = cupola.load(probe_run, checkpoint="best").iteration
    assert best < 6
    assert iteration() == iteration("--checkpoint", "last") == "6"
    assert iteration("--checkpoint", "best") == str(best)
    assert iteration("--checkpoint", "4") == "4"
    line = complaint("eval", probe_run, "--checkpoint", "5")
    assert (
        line == f"{probe_run} keeps no checkpoint of iteration 5: choose from best, last, 2, 4, 6."
    )
    assert "best, last or the number" in complaint("eval", probe_run, "--checkpoint", "first")


def test_eval_writes_its_figures(command, complaint, probe_run, tmp_path):
    file = tmp_path / "figures.json"
    assert command("eval", probe_run, "--episodes", "3", "--seed", "5", "--out", file)[0] == 0
    found = json.loads(file.read_text())
    result = cupola.evaluate(cupola.load(probe_run), episodes=3, seed=5)
    assert found["return"] == result.returns._asdict()
    [(name, cost)] = result.costs.items()
    assert found["costs"][name]["mean"] == cost.value.mean
    assert found["costs"][name]["safe_share"] == cost.safe_share
    about = {"run": str(probe_run), "iteration": 6, "seed": 5, "episodes": 3, "actions": "sampled"}
    assert about.items() <= found.items()
    one = tmp_path / "one.json"
    command("eval", probe_run, "--episodes", "1", "--deterministic", "--out", one)
    found = json.loads(one.read_text())
    assert found["actions"] == "deterministic"
    assert found["return"]["low"] is None  # one episode has no interval
    line = complaint("eval", probe_run, "--out", tmp_path / "nowhere" / "x.json")
    assert line == f"there is no directory {tmp_path / 'nowhere'}: make it first."
