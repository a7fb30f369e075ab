"""Runs that another version wrote: refused in one sentence where their checkpoints are needed.

tests/golden/old_run was written by cupola 0.1.0 before run directories had a format; its
checkpoint is left out, because nothing reads it.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import cupola
from cupola.cli import main
from cupola.config import resolve
from cupola.errors import CupolaError
from cupola.reports.results import load as load_results
from cupola.runs.directory import FORMAT, RunDirectory
from cupola.tasks import spec_of

OLD = Path(__file__).parents[1] / "golden" / "old_run"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def sentence(path: Path) -> str:
    return re.escape(
        f"{path} was written by cupola 0.1.0 in an older format (1; this version reads {FORMAT}):"
        " use it with the version that wrote it, or train again."
    )


def test_an_old_run_is_neither_resumed_nor_loaded_nor_started_from(old, tmp_path):
    before = sorted(old.rglob("*"))
    with pytest.raises(CupolaError, match=sentence(old)):
        cupola.resume(old)
    with pytest.raises(CupolaError, match=sentence(old)):
        cupola.load(old)
    with pytest.raises(CupolaError, match=sentence(old)):
        cupola.load(old / "checkpoints" / "00000006.safetensors")
    with pytest.raises(CupolaError, match=sentence(old)):
        cupola.train("ppo", "TabularGrid", out=tmp_path / "new", start_from=str(old))
    assert not (tmp_path / "new").exists()
    assert sorted(old.rglob("*")) == before


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_the_commands_say_the_same(old, capsys, command):
    with pytest.raises(SystemExit) as end:
        main([command, str(old)])
    assert end.value.code == 1
    assert re.fullmatch(f"cupola: {sentence(old)}\n", capsys.readouterr().err)


def test_a_newer_run_says_so(old):
    config = json.loads((old / "config.json").read_text())
    newer = config | {"cupola": "3.0", "format": FORMAT + 1}
    (old / "config.json").write_text(json.dumps(newer))
    with pytest.raises(CupolaError, match=r"written by cupola 3\.0 in a newer format"):
        RunDirectory.open_to_load(old)
    (old / "config.json").write_text(json.dumps(config | {"format": "two"}))
    with pytest.raises(
        CupolaError, match=r"is damaged \('format' must be a whole number, not 'two'\)"
    ):
        RunDirectory.open_to_load(old)


def test_a_report_still_reads_an_old_run(old):
    """It needs the config and the metrics only."""
    [run] = load_results(old.parent).runs
    recorded = [json.loads(line) for line in (OLD / "metrics.jsonl").read_text().splitlines()]
    assert (run.label, run.task, run.seed, run.state) == ("ppo", "TabularGrid", 3, "finished")
    assert run.curves["return"].tolist() == [record["return"] for record in recorded]


def test_compare_still_reads_an_old_run(old, capsys):
    main(["compare", str(old)])
    out, err = capsys.readouterr()
    assert "TabularGrid" in out
    assert err == ""


def test_a_new_run_carries_the_format():
    config = resolve("ppo", spec_of("TabularGrid"), "paper", None, {})
    record = config.to_json()
    assert (record["format"], record["cupola"]) == (FORMAT, cupola.__version__)
