"""`cupola.train` in Python: what it shows, how it is interrupted, what a notebook sees."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import cupola
from cupola.errors import CupolaError
from cupola.runs.directory import RunDirectory

PROBE = {
    **{"iterations": 6, "checkpoint_every": 100, "batch_size": 40, "num_envs": 4},
    **{"minibatch_size": 20, "epochs": 1, "hidden": (4,), "threads": 1},
}


def train(path: Path, **fields) -> cupola.Run:
    return cupola.train("ppo_lag", "ProbeQuadratic", out=path, **PROBE | fields)


def interrupt_at(moment: int, number: int):
    return lambda metrics, _: (
        signal.raise_signal(number) if metrics["iteration"] == moment else None
    )


# --- Progress ---


def test_a_training_shows_its_progress_its_end_and_its_place(tmp_path, capsys):
    run = train(tmp_path / "run")
    out, err = capsys.readouterr()
    assert err == ""
    shown = out.splitlines()
    assert shown[0] == "0/6  compiling ..."
    assert any(line.startswith("6/6  0:00:00 left  return") for line in shown)
    assert "6 iterations, 240 steps" in out
    assert shown[-1] == f"{run.path}: finished"
    cupola.resume(run.path)
    assert capsys.readouterr().out.splitlines()[-1] == f"{run.path}: already finished"


def test_the_closing_table_says_how_the_best_and_the_last_policy_did(tmp_path, capsys):
    run = train(tmp_path / "run")
    table = {}
    for line in capsys.readouterr().out.splitlines():
        if line[:1] in "│┃":
            first, *rest = (cell.strip() for cell in re.split("[│┃]", line)[1:-1])
            table[first] = rest
    [cost] = run.config.limits
    means = [np.mean([m[key] for m in run.metrics]) for key in ("return", f"cost/{cost}")]
    assert table["last"][:2] == ["6", f"{means[0]:.1f}"]
    limit = run.config.limits[cost]
    sign = "<=" if means[1] <= limit else ">"
    assert table["last"][2] == f"{means[1]:.3f} {sign} {limit:.3f}"  # a limit of 0.5
    # Six iterations: the best is judged by all of them too, and is the policy before the last.
    assert table["best"] == ["5", *table["last"][1:]]


def test_it_can_be_silent(tmp_path, capsys):
    run = train(tmp_path / "run", progress=False)
    cupola.resume(run.path, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_refusal_comes_before_anything_is_shown(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("mine")
    with pytest.raises(CupolaError, match="is not empty"):
        train(tmp_path / "run")
    assert capsys.readouterr() == ("", "")


# --- Signals ---


def test_ctrl_c_saves_and_then_interrupts_the_script(tmp_path, capsys):
    """A loop over seeds does not go on with the next one."""
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(path, listener=interrupt_at(3, signal.SIGINT))
    assert RunDirectory(path).newest_checkpoint("none").iteration == 3
    out = capsys.readouterr().out
    assert "stopping after this iteration" in out
    assert out.splitlines()[-1] == f"{path}: stopped; continue with cupola.resume({str(path)!r})"
    whole = train(tmp_path / "whole", progress=False)
    assert cupola.resume(path, progress=False).metrics == whole.metrics


def test_other_signals_reach_the_scripts_own_handlers(tmp_path):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        run = train(tmp_path / "run", listener=interrupt_at(2, signal.SIGTERM), progress=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
    assert (run.finished, len(run.metrics)) == (False, 2)
    assert run.stopped_by == signal.SIGTERM
    assert repr(run) == (
        "<cupola.Run ppo_lag on ProbeQuadratic, 2 iterations (stopped before 6):"
        f" {str(run.path)!r}>"
    )


BUSY = """
import hashlib, sys
from cupola.signals import stop_requests

def heard():
    print("heard", flush=True)

with stop_requests(heard) as stopping:
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # one line of Python, without the lock
    print("done", stopping.is_set(), flush=True)
"""


def test_ctrl_c_is_acknowledged_in_the_middle_of_a_compilation():
    """Python's own handlers wait for the end of a line, which may take a minute."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "busy\n"
        time.sleep(0.2)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "heard\n"
        heard = time.monotonic() - began
        assert "done True\n" in child.stdout.readlines()
        assert heard < (time.monotonic() - began) / 2


# --- Small things ---


def test_limit_means_limits(tmp_path):
    run = train(tmp_path / "run", limit=0.25, progress=False)
    assert list(run.config.limits.values()) == [0.25]
    with pytest.raises(CupolaError, match="limit and limits are the same"):
        train(tmp_path / "other", limit=1, limits=2)


def test_a_field_of_another_algorithm_says_whose_it_is(tmp_path):
    fields = {"out": tmp_path / "run", "progress": False}
    with pytest.raises(CupolaError, match=r"^ppo has no multiplier_lr: it belongs to cup, focops,"):
        cupola.train("ppo", "ProbeQuadratic", multiplier_lr=1.0, **fields)
    with pytest.raises(CupolaError, match="unknown field 'multiplier_rl'"):
        cupola.train("ppo", "ProbeQuadratic", multiplier_rl=1.0, **fields)


def test_an_algorithm_that_ignores_limits_says_so(tmp_path):
    fields = PROBE | {"iterations": 1, "progress": False}
    with pytest.warns(cupola.errors.CupolaWarning, match="^ppo ignores limits: costs are measured"):
        cupola.train("ppo", "ProbeQuadratic", limit=0.5, out=tmp_path / "run", **fields)
    cupola.train("ppo", "ProbeQuadratic", out=tmp_path / "plain", **fields)


def test_names_and_representations_are_short(trained):
    public = {name for name in dir(cupola) if not name.startswith("_")}
    assert public == set(cupola.__all__) - {"__version__"}
    assert repr(trained) == (
        f"<cupola.Run cup on HopperSpeed, 6 iterations (finished): {str(trained.path)!r}>"
    )
    assert repr(cupola.load(trained.path)) == (
        "<cupola.Policy cup on HopperSpeed, iteration 6: observations (11,) to actions (3,)>"
    )
    assert repr(cupola.STOP) == "cupola.STOP"


WARNING = """
import warnings, cupola
from cupola.errors import CupolaWarning
warnings.warn("a sentence", CupolaWarning)
warnings.warn("of somebody else")
"""


def test_warnings_of_cupola_have_no_line_of_source(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WARNING)
    child = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, env=os.environ
    )
    ours, *rest = child.stderr.splitlines()
    assert ours == "cupola: warning: a sentence"
    assert rest[0].endswith("script.py:5: UserWarning: of somebody else")
