"""`cupola train`: what it refuses, what it writes and what it prints."""

import errno
import json
import os
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import cupola
from cupola.errors import CupolaError
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder

# --- Refused: names and values ---

HOPPER = "train cup HopperSpeed"
REFUSED = [
    ("train", "say what to train: cupola train ALGO TASK"),
    ("train cup", "TASK"),
    ("train cpu HopperSpeed", "unknown algorithm 'cpu': did you mean 'cup'?"),
    ("train cup HoperSpeed", "unknown task 'HoperSpeed': did you mean 'HopperSpeed'?"),
    ("train cup hopperspeed", "did you mean 'HopperSpeed'?"),
    ("train cup SafetyHoperVelocity-v1", "did you mean 'SafetyHopperVelocity-v1'?"),
    (f"{HOPPER} --itertions 3", "unknown option '--itertions': did you mean '--iterations'?"),
    (f"{HOPPER} --batch_sze=3", "unknown option '--batch_sze': did you mean '--batch-size'?"),
    (f"{HOPPER} --preset papr", "unknown preset 'papr': did you mean 'paper'?"),
    (f"{HOPPER} --limit sped=3", "unknown cost of HopperSpeed 'sped': did you mean 'speed'?"),
    (f"{HOPPER} extra", "extra"),
    (f"{HOPPER} --limit -1", "the limit of speed must be"),
    (f"{HOPPER} --limit speed=-1", "the limit of speed must be"),
    (f"{HOPPER} --limit nan", "the limit of speed must be"),
    (f"{HOPPER} --limit inf", "HopperSpeed has no limit yet"),
    (f"{HOPPER} --limit sped=inf", "unknown cost of HopperSpeed"),
    (f"{HOPPER} --limit much", "--limit takes a number or NAME=number"),
    (f"{HOPPER} --limit speed=", "--limit takes a number or NAME=number"),
    (f"{HOPPER} --limit 3 --limit 4", "several limits need one name each"),
    (f"{HOPPER} --limit 3 --limit effort=4", "several limits need one name each"),
    (f"{HOPPER} --limit speed=3 --limit speed=4", "several limits need one name each"),
    (
        f"{HOPPER} --minibatch-size 10001",
        "minibatch_size must lie between 1 and batch_size (10000)",
    ),
    (f"{HOPPER} --minibatch-size 0", "minibatch_size must lie between 1 and batch_size"),
    (
        f"{HOPPER} --multiplier predicted --batch-size 1 --num-envs 1 --minibatch-size 1",
        "multiplier=predicted needs a batch_size of at least 2: it keeps a part",
    ),
    (
        f"{HOPPER} --gamma 0",
        "the limit of speed is on the discounted return, of which gamma=0 leaves the first step of"
        " an episode alone: write for example gamma=0.99.",
    ),
    (f"{HOPPER} --num-envs 7", "num_envs must divide batch_size"),
    (f"{HOPPER} --num-envs 0", "num_envs must be at least 1"),
    (f"{HOPPER} --iterations 0", "iterations must be at least 1, not 0"),
    (f"{HOPPER} --iterations -3", "iterations must be at least 1, not -3"),
    (f"{HOPPER} --iterations ten", "'ten'"),
    (f"{HOPPER} --iterations 1.5", "'1.5'"),
    (f"{HOPPER} --checkpoint-every 0", "checkpoint_every must be at least 1"),
    (f"{HOPPER} --keep-checkpoints 0", "keep_checkpoints must be at least 1"),
    (f"{HOPPER} --seed -1", "seed must lie in [0, 2^32), not -1"),
    (f"{HOPPER} --threads -1", "threads must not be negative"),
    (f"{HOPPER} --gamma 1", "gamma must lie in [0, 1), not 1"),
    (f"{HOPPER} --lam 1.1", "lam must lie in [0, 1], not 1.1"),
    (f"{HOPPER} --learning-rate nan", "learning_rate must be a number"),
    (f"{HOPPER} --learning-rate 0", "learning_rate must be positive"),
    (f"{HOPPER} --hidden 0", "hidden needs 1 to 100 layers of at least one unit"),
    (f"{HOPPER} --epochs 0", "epochs must be at least 1"),
    (f"{HOPPER} --nu-init 300", "nu_init must lie between 0 and nu_max"),
    (f"{HOPPER} --improvement clipp", "clip"),
    (f"{HOPPER} --cost-termination bootstrap", "time_limit"),
    (f"{HOPPER} --time-limit never", "bootstrap"),
    (f"{HOPPER} --seed", "--seed"),
    (f"{HOPPER} --evaluate-every -1", "evaluate_every must not be negative"),
    (f"{HOPPER} --patience -1", "patience must not be negative"),
    ("train ppo HopperSpeed --multiplier-lr 3", "ppo has no --multiplier-lr: it belongs to cup, f"),
    ("train cup HopperSpeed --cg-iterations=3", "cup has no --cg-iterations: it belongs to cpo, "),
    (f"{HOPPER} --preset", "--preset"),
    (f"{HOPPER} --zzzz 1", "unknown option '--zzzz': see 'cupola train cup --help'."),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"itertions": 3}, "unknown field 'itertions': did you mean 'iterations'"),
        ({"limits": {"sped": 3.0}}, "unknown cost of HopperSpeed 'sped': did you mean 'speed'"),
        ({"limits": -1}, "the limit of speed must be"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"iterations": 2.5}, "iterations must be a whole number, not 2.5"),
        ({"gamma": "0.9"}, "gamma must be a number, not '0.9'"),
        ({"improvement": "clp"}, "improvement must be one of clip, kl, focops, not 'clp'"),
        ({"normalise_obs": 1}, "normalise_obs must be true or false"),
    ],
)
def test_the_python_interface_refuses_the_same(tmp_path, fields, expected):
    with pytest.raises(CupolaError, match=re.escape(expected)):
        cupola.train("cup", "HopperSpeed", out=tmp_path / "run", **fields)
    assert list(tmp_path.iterdir()) == []


# --- Refused: directories ---


def test_a_directory_that_holds_a_run_is_not_touched(complaint, copy):
    line = complaint(*HOPPER.split(), "--out", copy)
    assert line.startswith(f"{copy} already holds a run: continue it with 'cupola resume {copy}'")


def test_a_file_or_a_directory_in_use_is_not_touched(complaint, tmp_path, tiny_args):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    assert "is a file" in complaint(*HOPPER.split(), "--out", tmp_path / "file")
    assert "is not empty" in complaint(*HOPPER.split(), "--out", tmp_path / "folder")
    below = complaint(*HOPPER.split(), *tiny_args, "--out", tmp_path / "file" / "run")
    assert below.startswith("cannot write to")


def test_a_place_that_cannot_be_written(complaint, tiny_args):
    line = complaint(*HOPPER.split(), *tiny_args, "--out", "/proc/cupola/run")
    assert line.startswith("cannot write to /proc/cupola/run (")


def test_a_path_that_the_system_refuses(complaint):
    """Too long here; for others it is a folder that they may not enter."""
    complaint(*HOPPER.split(), "--out", "x" * 300)


def test_checkpoints_without_a_config_are_not_overwritten(complaint, copy, tiny_args):
    (copy / "config.json").unlink()
    for file in ("metrics.jsonl", "timings.jsonl"):
        (copy / file).unlink()
    shutil.rmtree(copy / "tensorboard")
    assert "is not empty" in complaint(*HOPPER.split(), *tiny_args, "--out", copy)
    assert checkpoints.iterations(Folder(copy, "checkpoints")) == [2, 4, 6]


# --- A full disk ---


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_at_the_start(complaint, tmp_path, monkeypatch, tiny_args):
    monkeypatch.setattr(os, "fsync", full_disk)
    line = complaint(*HOPPER.split(), *tiny_args, "--out", tmp_path / "run")
    assert line.startswith(f"cannot write to {tmp_path / 'run'} (No space left on device); nothing")


def test_a_disk_that_fills_up_in_the_middle(command, trained, tmp_path, monkeypatch, tiny_args):
    run, fsync = tmp_path / "run", os.fsync

    def fills_up(descriptor: int) -> None:
        if run.exists() and sum(1 for _ in Folder(run).lines("metrics.jsonl")) >= 5:
            full_disk()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fills_up)
    status, _, err = command(*HOPPER.split(), "--limit", "5", *tiny_args, "--out", run)
    assert status == 1
    assert err == (
        f"cupola: cannot write to {run} (No space left on device); the run is safe up to"
        f" iteration 4: make room or give access, then 'cupola resume {run}'.\n"
    )
    assert checkpoints.iterations(Folder(run, "checkpoints")) == [2, 4]
    assert cupola.load(run).iteration == 4
    assert not list(run.rglob("*.tmp"))
    monkeypatch.setattr(os, "fsync", fsync)
    assert command("resume", run)[::2] == (0, "")
    whole = (trained.path / "metrics.jsonl").read_bytes()
    assert (run / "metrics.jsonl").read_bytes() == whole


# --- What a user sees when all is well ---


def test_two_questions_have_two_directories(command, complaint, tiny_args):
    """Those of README, one after the other; the same one again is refused before anything else."""
    lines = ([], ["--limit", "speed=82.7", "--limit", "effort=40"])
    for more in lines:
        assert command("train", "cup", "HopperSpeed", *more, *tiny_args)[::2] == (0, "")
    found = [path.name for path in Path("runs").iterdir()]
    assert len(found) == 2
    [second] = [name for name in found if "effort=40" in name]
    again = complaint("train", "cup", "HopperSpeed", *lines[1], *tiny_args)
    assert again.startswith(f"runs/{second} already holds a run")


def test_an_algorithm_that_ignores_limits_says_so(command, tmp_path):
    small = ("--batch-size", "40", "--num-envs", "4", "--minibatch-size", "20", "--hidden", "4")
    line = ("train", "ppo", "ProbeQuadratic", *small, "--iterations", "1", "--threads", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, err = command(*line, "--limit", "3", "--out", tmp_path / "run")
    assert status == 0
    assert err.startswith("cupola: warning: ppo ignores limits: costs are measured and shown")
    assert err.count("\n") == 1


def test_train_without_a_terminal_prints_plain_lines_and_a_table(
    command, trained, tmp_path, tiny_args
):
    run = tmp_path / "run"
    status, out, err = command(*HOPPER.split(), "--limit", "5", *tiny_args, "--out", run)
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    progress = re.compile(
        r"\d/6(  \d+:\d\d:\d\d left)?  return -?[\d,.]+  speed [\d,.]+ (<=|>) 5\.00"
        r" \(nu \d\.\d{3}\)(  [\d,]+ steps/s)?"
    )
    lines = [line for line in out.splitlines() if "/6 " in line]
    assert lines[0] == "0/6  compiling ..."
    assert all(progress.fullmatch(line) for line in lines[1:]), lines
    # The first iteration compiles: it says nothing of the time that is left.
    assert re.match("1/6  return", lines[1])
    assert lines[-1].startswith("6/6  0:00:00 left  return")
    assert lines[-1].endswith("steps/s")
    last = trained.metrics[-1]
    assert f"return {last['return']:.1f}  speed {last['cost/speed']:.2f} " in lines[-1]
    table = {cells[0]: cells[1:] for cells in rows(out)}
    first = trained.metrics[0]
    assert table["return"][:2] == [f"{r['return']:.1f}" for r in (first, last)]
    # Six iterations: the last tenth is one of them, which has no deviation.
    assert table["cost speed"] == [
        *(f"{r['cost/speed']:.2f}" for r in (first, last)),
        "5.00",
        "held on average" if last["cost/speed"] <= 5.1 else "exceeded",
    ]
    assert table["speed"] == [
        "-",
        f"{last['cost_error/speed']:.3g}",
        "100 %" if last["cost/speed"] > 5.5 else "0 %",
        f"{sum(max(0, r['cost/speed'] - 5) for r in trained.metrics):.3g}",
    ]
    assert table["nu speed"][:2] == [f"{r['nu/speed']:.3f}" for r in (first, last)]
    assert f"cupola eval {run}" in out
    # The command and the Python interface do the same.
    assert RunDirectory.open(run).metrics() == trained.metrics


def rows(out: str) -> list[list[str]]:
    """Cells of a printed table."""
    found = [line.strip().strip("│┃") for line in out.splitlines() if line.strip()[:1] in "│┃"]
    return [[cell.strip() for cell in re.split("[│┃]", line)] for line in found]


def test_two_named_costs_have_their_own_limits_and_multipliers(command, tmp_path, tiny_args):
    run = tmp_path / "run"
    limits = ("--limit", "effort=0", "--limit", "speed=1e6")
    status, out, err = command(
        *HOPPER.split(), *limits, *tiny_args, "--preset", "paper", "--out", run
    )
    assert (status, err) == (0, "")
    records = RunDirectory.open(run).metrics()
    assert json.loads((run / "config.json").read_text())["limits"] == {"speed": 1e6, "effort": 0}
    for record in records:
        assert (record["limit/speed"], record["limit/effort"]) == (1e6, 0)
        assert record["nu/speed"] == 0
        assert record["cost_value_loss/effort"] != record["cost_value_loss/speed"]
    # eta (J - b), step by step: the multiplier of effort is the sum of its costs.
    spent = [record["cost/effort"] for record in records]
    multipliers = [record["nu/effort"] for record in records]
    np.testing.assert_allclose(multipliers, np.minimum(0.1 * np.cumsum(spent), 2), rtol=1e-5)
    table = {cells[0]: cells[1:] for cells in rows(out)}
    assert table["cost speed"][3] == "held on average"
    assert table["cost effort"][3] == "exceeded"
    assert "effort" in command("eval", run, "--episodes", "2")[1]


def test_a_limit_of_inf_takes_the_default_away(command, tmp_path, tiny_args):
    run = tmp_path / "run"
    limits = ("--limit", "speed=inf", "--limit", "effort=40")
    assert command(*HOPPER.split(), *limits, *tiny_args, "--out", run)[0] == 0
    assert json.loads((run / "config.json").read_text())["limits"] == {"effort": 40}
    assert "limit/speed" not in RunDirectory.open(run).metrics()[-1]
    assert "speed" not in command("eval", run, "--episodes", "2")[1]
    assert command("resume", run)[0] == 0
