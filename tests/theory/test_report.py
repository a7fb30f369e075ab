"""The command: files, numbers, and what it refuses."""

import json

import pytest

from cupola import cli
from cupola.errors import CupolaError
from cupola.theory import report, study


@pytest.fixture(name="small")
def small_fixture(monkeypatch):
    monkeypatch.setattr(report, "RACES", ((3, 2, 1), (3, 2, 1), (3, 2, 2)))
    monkeypatch.setattr(report, "RACE_SIZE", 2)
    monkeypatch.setattr(study, "SIZES", ((2, 2),))
    monkeypatch.setattr(study.run, "__defaults__", (study.run.__defaults__[0], ((2, 2), (3, 2))))


@pytest.mark.slow
def test_the_command_writes_everything(small, tmp_path, capsys):
    out = tmp_path / "deep" / "results"
    cli.main(["theory", "--cases", "24", "--seed", "3", "--out", str(out)])
    names = {file.name for file in out.iterdir()}
    pictures = {"tightness-lambda.png", "tightness-distance.png", "exact-cup.png"}
    assert names == {"theory.json", "table.txt", "counterexamples.json", *pictures}
    record = json.loads((out / "theory.json").read_text())
    assert (record["cases"], record["seed"]) == (24, 3)
    assert record["identity_worst_relative_error"] < 1e-9
    assert {row["cases"] for row in record["dense"]} == {24}
    assert {row["cases"] for row in record["sparse"]} == {6}
    corrected = [row for row in record["dense"] if row["version"] != "printed"]
    assert sum(row["violations"] for row in corrected) == 0
    assert all(row["worst_slackness"] < 1e-7 for row in record["exact_cup"])
    claims = {row["claim"] for row in json.loads((out / "counterexamples.json").read_text())}
    assert claims == {"lemma", "theorem_1", "proposition_1"}
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    printed = capsys.readouterr().out
    assert "24/24  dense cases" in printed
    assert "fails by 1/60 in exact arithmetic" in printed
    table = (out / "table.txt").read_text()
    assert "Proposition 1" in table
    assert max(map(len, table.splitlines())) <= 100


def test_nonsense_is_refused():
    for cases, seed in ((0, 0), (10, -1)):
        with pytest.raises(CupolaError, match="must"):
            report.make(cases, seed, lambda *_: None)


def test_an_unwritable_directory_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as stop:
        cli.main(["theory", "--cases", "5", "--out", str(tmp_path / "file")])
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith("cupola: cannot write to")
