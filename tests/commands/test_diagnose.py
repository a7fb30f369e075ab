"""`cupola diagnose`."""

import json
import re

import pytest

REFUSED = [
    ("diagnose", "RUN"),
    ("diagnose nowhere", "there is no directory nowhere"),
    ("diagnose nowhere --batch 3", "unknown option '--batch': did you mean '--batches'?"),
    ("diagnose nowhere --out no/such/file.json", "there is no directory no/such: make"),
    ("diagnose nowhere --figure no/such/file.png", "there is no directory no/such: make"),
    ("diagnose nowhere --figure chart.pdf", "--figure is a name like diagnosis.png, not chart.pdf"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()


IMPOSSIBLE = [
    ("--batches 1", "batches must be at least 2, not 1"),
    ("--episodes 1", "episodes must be at least 2, not 1"),
    ("--change lam", "--change takes FIELD=value, for example lam=0.8, not 'lam'"),
    ("--change lamb=1", "unknown field 'lamb': did you mean 'lam'?"),
    ("--change lr-decay=never", "lr_decay must be one of all, policy, none, not 'never'"),
    ("--change minibatch_size=0.5", "minibatch_size must be a whole number"),
    ("--seed -1", "seed must not be negative"),
    ("--batches many", "batches"),
]


@pytest.mark.parametrize(("options", "expected"), IMPOSSIBLE, ids=[line for line, _ in IMPOSSIBLE])
def test_impossible_numbers_are_refused_before_anything_is_done(
    complaint, trained, options, expected
):
    assert expected in complaint("diagnose", trained.path, *options.split())


def test_a_run_without_a_checkpoint(complaint, copy):
    for file in (copy / "checkpoints").iterdir():
        file.unlink()
    assert f"continue it with 'cupola resume {copy}'" in complaint("diagnose", copy)


def rows(out: str) -> dict[str, list[str]]:
    """Cells of the printed tables by the first one."""
    found = [line.strip().strip("│┃") for line in out.splitlines() if line.strip()[:1] in "│┃"]
    cells = [[cell.strip() for cell in re.split("[│┃]", line)] for line in found]
    return {first: rest for first, *rest in cells}


def test_diagnose_prints_writes_and_draws_the_same(command, trained, tmp_path):
    line = ("diagnose", trained.path, "--batches", "2", "--episodes", "4", "--change", "lam=0.9")
    files = ("--out", tmp_path / "found.json", "--figure", tmp_path / "found.png")
    status, out, err = command(*line, *files)
    assert (status, err) == (0, "")
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["settings"] == {"lam": 0.9}
    assert "cup on HopperSpeed, iteration 6, lam=0.9" in out
    table = rows(out)
    assert table[""] == ["return", "cost speed"]
    assert table["limit"] == ["", "5"]
    explains = [f"{100 * critic['held_out']:,.0f} %" for critic in found["critics"]]
    assert table["after it, on a fresh batch"] == explains
    truths = [f"{gradient['natural']['truth']:.2f}" for gradient in found["gradients"]]
    assert table["one batch and the truth"] == truths  # the last row of that name
    for cell, change in zip(table["measured"], found["changes"], strict=True):
        mean = float(cell.partition("±")[0])
        assert mean == pytest.approx(change["measured"]["mean"], rel=0.1, abs=6e-4)
    assert table["multiplier nu"] == ["", f"{found['multipliers'][0]['nu']:.3g}"]
    last = table["improvement"][0].split()[-1]
    assert last == f"{found['kl'][0]['kl'][-1]:.2g}"
    assert table["improvement"][1] == "0.02"
    said = " ".join(out.split())
    for finding in found["findings"]:
        assert f"{finding['status']} {finding['text']}" in said
