"""What the board tells of runs and sweeps: the numbers of the report, and only what is new."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cupola.board import watched
from cupola.board.library import Library
from cupola.board.watched import identify
from cupola.reports import panels
from cupola.reports.results import load
from cupola.runs.directory import RunDirectory
from cupola.steadiness import verdict
from cupola.sweeps.directory import SweepDirectory

WriteSweep = Callable[..., None]

SWEEP = """
iterations = 45
algorithms = ["cup", "ppo_lag"]
tasks = ["HopperSpeed"]
seeds = 2
[grid]
limit = [20, 30]
"""


@pytest.fixture
def top(tmp_path: Path, synthetic_sweep: WriteSweep) -> Path:
    (tmp_path / "top").mkdir()
    synthetic_sweep(tmp_path / "top" / "sweep", SWEEP)
    return tmp_path / "top"


def read(library: Library) -> None:
    """Until nothing is left to read."""
    library._next_search = 0.0
    for run in library._runs.values():
        run.due = 0.0
    while library.refresh():
        pass


def rows(library: Library) -> dict[str, dict]:
    return {row["name"]: row for row in library.state(0)["rows"]}


def test_a_run_that_ended_early_is_finished(top: Path) -> None:
    config = top / "sweep" / "cup-HopperSpeed-limit=20-0" / "config.json"
    known = json.loads(config.read_text()) | {"iterations": 100}
    library, name = Library(top), "sweep/cup-HopperSpeed-limit=20-0"
    config.write_text(json.dumps(known))
    read(library)
    row = rows(library)[name]
    assert (row["state"], row["asked"], row["reason"]) == ("interrupted", 100, "")
    ended = {"iteration": 45, "reason": "a listener returned STOP"}
    config.write_text(json.dumps(known | {"ended": ended}))
    read(library)
    row = rows(library)[name]
    said = "ended early: a listener returned STOP"
    assert (row["state"], row["asked"], row["reason"]) == ("finished", 45, said)


def test_a_last_cost_within_a_limit_that_is_exceeded_does_not_contradict_itself(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched.steadiness, "verdict", lambda found: "exceeded")
    library = Library(top)
    read(library)
    costs = [row["costs"][0] for row in rows(library).values()]
    words = {cost["verdict"]: cost["cost"] <= cost["limit"] for cost in costs}
    assert words == {"exceeded": False, "exceeded on average": True}


def test_rows_and_curves_are_those_of_the_report(top: Path) -> None:
    library = Library(top)
    read(library)
    results = load(top / "sweep")
    found = rows(library)
    assert list(found) == sorted(f"sweep/{run.name}" for run in results.runs)
    for run in results.runs:
        row = found[f"sweep/{run.name}"]
        assert row["series"] == run.series
        assert (row["state"], row["done"], row["asked"], row["seed"]) == (
            "finished",
            45,
            45,
            run.seed,
        )
        assert row["return"] == pytest.approx(run.curves["return"][-1], rel=1e-5)
        [cost] = row["costs"]
        assert cost["limit"] == run.limits["speed"]
        assert cost["cost"] == pytest.approx(run.curves["cost/speed"][-1], rel=1e-5)
        judged = verdict(run.steadiness("speed"))
        within = judged == "exceeded" and cost["cost"] <= cost["limit"]
        assert cost["verdict"] == ("exceeded on average" if within else judged)
        [curves] = library.curves([row["id"]])
        assert [(one["label"], one["limit"]) for one in curves["panels"]] == [
            ("return", None),
            ("discounted cost of speed", run.limits["speed"]),
            ("Lagrange multiplier of speed", None),
        ]
        for panel, key in zip(curves["panels"], ("return", "cost/speed", "nu/speed"), strict=True):
            shown = np.array(panel["y"], dtype=float)  # null becomes NaN
            np.testing.assert_allclose(shown, run.curves[key], rtol=1e-4)
        assert curves["x"] == run.curves["steps"].tolist()
        held = curves["held"]["speed"]
        assert held["deviation"] == pytest.approx(run.steadiness("speed").deviation, rel=1e-5)
        assert held["violation"] == pytest.approx(run.steadiness("speed").violation, rel=1e-5)
        assert curves["timings"]["speed"] == pytest.approx(run.steps_per_second, rel=1e-5)
        assert curves["timings"]["rollout"] == pytest.approx(0.8)
    [group] = library.state(0)["groups"]
    assert (group["title"], group["counts"]) == ("sweep sweep", {"finished": 8})


def test_long_curves_are_thinned_as_in_the_report(top: Path, monkeypatch) -> None:
    monkeypatch.setattr("cupola.board.library.MOST_POINTS", 10)
    monkeypatch.setattr("cupola.board.library.FEWEST_POINTS", 10)
    library = Library(top)
    read(library)
    [run, *_] = load(top / "sweep").runs
    [found] = library.curves([identify(f"sweep/{run.name}")])
    assert found["bucket"] == 5
    shown = np.array(found["panels"][0]["y"], dtype=float)
    np.testing.assert_allclose(shown, panels.thin(run.curves["return"], 5), rtol=1e-4)
    assert len(found["x"]) == len(shown) == 9


def test_single_runs_are_told_apart_as_in_the_report(top: Path) -> None:
    (top / "sweep" / "sweep.json").unlink()
    library = Library(top)
    read(library)
    expected = {run.name: run.series for run in load(top).runs}
    assert {str(top / name): row["series"] for name, row in rows(library).items()} == expected


def test_only_news_is_told(top: Path) -> None:
    library = Library(top)
    read(library)
    version = library.state(0)["version"]
    read(library)
    state = library.state(version)
    assert (state["version"], state["rows"], len(state["order"])) == (version, [], 8)
    first = sorted((top / "sweep").glob("cup-*"))[0]
    with RunDirectory.open(first) as run:
        run.lock()
        run.rewind(40, keep=3)
        read(library)
        state = library.state(version)
        [row] = state["rows"]
        assert (row["name"], row["state"], row["done"]) == (f"sweep/{first.name}", "running", 40)
        assert row["left"] == pytest.approx(5 * 0.5)
        assert state["groups"][0]["counts"] == {"running": 1, "finished": 7}
    read(library)
    [row] = library.state(state["version"])["rows"]
    assert (row["state"], row["left"]) == ("interrupted", None)
    shutil.rmtree(first)
    read(library)
    assert row["id"] not in library.state(0)["order"]
    assert library.curves([row["id"]]) == []


def test_cells_that_failed_or_wait_are_told(top: Path) -> None:
    sweep = SweepDirectory.open(top / "sweep")
    failed, never, waiting, *_ = sweep.cells
    sweep.record_failure(failed, "iteration 7: kl is not finite")
    for name in (never, waiting):
        shutil.rmtree(top / "sweep" / name)
    sweep.record_failure(never, "no task of this name")
    library = Library(top)
    read(library)
    found = rows(library)
    assert found[f"sweep/{failed}"]["reason"] == "iteration 7: kl is not finite"
    assert found[f"sweep/{never}"]["reason"] == "no task of this name"
    assert found[f"sweep/{never}"]["done"] == 0
    [group] = library.state(0)["groups"]
    assert group["counts"] == {"failed": 2, "finished": 5, "waiting": 1}


def test_the_time_left_does_not_count_compilation(top: Path) -> None:
    folder = top / "sweep" / "cup-HopperSpeed-limit=20-0"
    for done, left in ((2, pytest.approx(43 * 0.5)), (1, None)):
        with RunDirectory.open(folder) as run:
            run.lock()
            run.rewind(done, keep=3)
            library = Library(top)
            read(library)
            assert rows(library)[f"sweep/{folder.name}"]["left"] == left


def test_what_is_damaged_is_named_and_left_out(top: Path) -> None:
    first, second, third, *_ = sorted((top / "sweep").glob("c*-*"))
    lines = (first / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (first / "metrics.jsonl").write_bytes(b"".join(lines[:9] + lines[10:]))
    (second / "config.json").write_text("{}")
    (third / "timings.jsonl").unlink()
    os.mkfifo(third / "timings.jsonl")
    (top / "other").mkdir()
    (top / "other" / "sweep.json").write_text('{"name": 5}')
    library = Library(top)
    read(library)
    left_out = dict(library.state(0)["left_out"])
    assert set(left_out) == {f"sweep/{path.name}" for path in (first, second, third)}
    assert "line 10 of" in left_out[f"sweep/{first.name}"]
    assert "has no 'algo'" in left_out[f"sweep/{second.name}"]
    assert "is not a regular file" in left_out[f"sweep/{third.name}"]
    assert len(library.state(0)["order"]) == 5
    [note] = library.state(0)["notes"]
    assert note.startswith("the sweep other is left out: ")
    assert library.curves([identify(f"sweep/{first.name}")]) == []
    (first / "metrics.jsonl").write_bytes(b"".join(lines))
    read(library)
    assert f"sweep/{first.name}" in rows(library)


def test_the_newest_video_that_is_not_too_large(top: Path, tmp_path: Path, monkeypatch) -> None:
    run, *_ = sorted((top / "sweep").glob("cup-*"))
    key = identify(f"sweep/{run.name}")
    library = Library(top)
    read(library)
    assert rows(library)[f"sweep/{run.name}"]["video"] is None
    assert library.video(key) is None
    for age, (name, data) in enumerate(
        {"last.GIF": b"GIF89a", "old.mp4": b"film", "older.gif": b"x"}.items()
    ):
        (run / name).write_bytes(data)
        os.utime(run / name, (1e9 - age, 1e9 - age))
    (tmp_path / "secret.gif").write_bytes(b"secret")
    (run / "new.gif").symlink_to(tmp_path / "secret.gif")  # not followed
    (run / "notes.txt").write_bytes(b"no video")
    read(library)
    assert rows(library)[f"sweep/{run.name}"]["video"]["name"] == "last.GIF"
    assert library.video(key) == (b"GIF89a", "image/gif")
    monkeypatch.setattr(watched, "MOST_VIDEO", 5)
    read(library)
    assert library.video(key) == (b"film", "video/mp4")
    assert library.video("0" * 12) is None


def test_a_name_is_told_as_it_is(top: Path) -> None:
    """Whatever a file system allows: the page gets JSON, never markup."""
    name = os.fsdecode(b"</script><img src=x>\xff\x1b")[:40].replace("/", "\u2215")
    (top / "sweep").rename(top / name)
    library = Library(top)
    read(library)
    state = library.state(0)
    text = json.dumps(state)
    assert json.loads(text) == state
    assert state["rows"][0]["name"].startswith(name)
    assert library.curves([state["rows"][0]["id"]])[0]["done"] == 45
