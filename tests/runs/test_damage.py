"""Damaged and hostile run directories: every reader succeeds or says one sentence, never hangs."""

from __future__ import annotations

import os
import random
import shutil
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cupola
from cupola.cli import main
from cupola.errors import CupolaError
from cupola.runs.directory import RunDirectory

SEEDS = int(os.environ.get("CUPOLA_MUTATIONS", "60"))


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    def end(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sentence_or_success(args: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code; standard error holds warnings and at most one sentence."""
    capsys.readouterr()
    code = 0
    with patience(60), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            main(args)
        except SystemExit as end:
            code = end.code or 0
    lines = [
        line for line in capsys.readouterr().err.splitlines() if "cupola: warning: " not in line
    ]
    assert code in (0, 1)
    assert len(lines) == code, lines
    assert all(line.startswith("cupola: ") for line in lines), lines
    return code


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_reader_survives(probe_run, mutations, tmp_path, monkeypatch, capsys, seed):
    monkeypatch.setattr("cupola.reports.page.write_figures", lambda *_: [])
    whole = RunDirectory.open(probe_run).metrics()
    run = Path(shutil.copytree(probe_run, tmp_path / "runs" / "run"))
    shutil.copytree(probe_run, tmp_path / "runs" / "other")
    what = mutations.mutate(run, random.Random(seed))
    print(what)
    for read in (
        RunDirectory.open_to_load,
        cupola.load,
        lambda path: RunDirectory.open(path).metrics(),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = read(run)
            except CupolaError:
                continue
        if isinstance(found, list) and not what.startswith("config"):
            assert found == whole, "a result has changed in silence"
    sentence_or_success(["compare", str(run)], capsys)
    assert sentence_or_success(["report", str(tmp_path / "runs")], capsys) == 0
    sentence_or_success(["eval", str(run), "--episodes", "1"], capsys)
    if sentence_or_success(["resume", str(run)], capsys) == 0 and not what.startswith("config"):
        assert RunDirectory.open(run).metrics() == whole
