"""`cupola bench`."""

import itertools
import json
from functools import partial

import pytest

from cupola import bench

REFUSED = [
    ("bench HoperSpeed", "unknown task 'HoperSpeed': did you mean 'HopperSpeed'?"),
    ("bench HopperSpeed --preset omnisave", "did you mean 'omnisafe'?"),
    ("bench HopperSpeed --iterations 0", "iterations must be at least 1, not 0"),
    ("bench --all --repeat 0", "repeat must be at least 1, not 0"),
    ("bench", "name a task, for example 'cupola bench HopperSpeed', or write --all."),
    ("bench HopperSpeed --all", "or write --all, not both."),
    ("bench --all --out missing/bench.json", "there is no directory missing"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()


@pytest.fixture
def small(monkeypatch, tiny):
    """Benches that take a moment."""
    fields = {name: tiny[name] for name in ("batch_size", "num_envs", "minibatch_size", "hidden")}
    fields |= {"epochs": 1, "critic_epochs": 1, "critic_memory": 1}
    monkeypatch.setattr(bench, "bench", partial(bench.bench, **fields))


def test_all_tasks_are_one_table_and_one_file(command, tmp_path, monkeypatch):
    """Of benches that are not run: every one is slower than the one before."""
    passes = itertools.count(1)

    def made_up(task, *, algo, preset, iterations, threads):
        n = next(passes)
        numbers = {"physics_steps_per_second": 1000.0, "standing_ratio": 0.5}
        numbers |= {"steps_per_second": 900.0 / n, "ratio": 0.9 / n}
        numbers |= {"rollout_seconds": 0.1 * n, "update_seconds": 0.2 * n}
        return {"task": task, "algorithm": algo, "threads": threads} | numbers

    tasks = ("HopperSpeed", "PointGoal1")
    monkeypatch.setattr(bench, "FAMILIES", tasks)
    monkeypatch.setattr(bench, "bench", made_up)
    line = "bench --all --repeat 3 --iterations 1 --threads 1 --out all.json"
    status, out, err = command(*line.split())
    assert status == 0, err
    written = json.loads((tmp_path / "all.json").read_text())
    assert written["command"] == f"cupola {line}"
    assert tuple(written["tasks"]) == tasks
    for name, result in written["tasks"].items():
        assert len(result["repeats"]) == 3
        ratios = [each["ratio"] for each in result["repeats"]]
        assert ratios == sorted(ratios, reverse=True)
        assert result["ratio"] == ratios[1]
        (row,) = [row for row in out.splitlines() if name in row and "│" in row]
        assert f"{100 * result['ratio']:.0f} %" in row


def test_one_task_writes_its_figures_alone(command, tmp_path, small):
    line = "bench HopperSpeed --iterations 1 --threads 1 --out one.json"
    status, out, err = command(*line.split())
    assert status == 0, err
    written = json.loads((tmp_path / "one.json").read_text())
    assert written["task"] == "HopperSpeed"
    whole = written["rollout_seconds"] + written["update_seconds"]
    assert written["steps_per_second"] == pytest.approx(200 / whole)
    assert "physics ceiling" in out


def test_the_table_names_every_family_that_has_an_engine():
    from cupola.tasks import families, specs

    known = {spec.name: title for title, titled in families().items() for spec in titled}
    assert set(bench.FAMILIES) <= set(specs())
    without = {title for title in families() if title not in {known[t] for t in bench.FAMILIES}}
    assert all(title.startswith(("Probes", "Finite")) for title in without), without
