"""`cupola eval`."""

import re

import pytest


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
    assert table["cost speed"][2] == "5.0"
    assert int(table["cost speed"][3].removesuffix(" %")) in (0, 20, 40, 60, 80, 100)
    again = command("eval", trained.path, "--episodes", "5", "--deterministic")
    assert again == (status, out, err)
    newest = trained.path / "checkpoints" / "00000006.safetensors"
    other = command("eval", newest, "--episodes", "5", "--deterministic")[1]
    assert rows(other) == rows(out)
    sampled = command("eval", trained.path, "--episodes", "5")[1]
    assert "5 episodes, sampled actions" in sampled
    assert rows(sampled) != rows(out)
    assert "one episode" in command("eval", trained.path, "--episodes", "1")[1]
