"""What a person sees of a sweep."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cupola.runs.files import Folder
from cupola.runs.journal import Journal
from cupola.runs.schema import Table, Whole
from cupola.sweeps.directory import CellStatus, State, SweepDirectory
from cupola.sweeps.watch import ORDER, SweepDisplay, chosen, read_progress

FILE = """
iterations = 20
algorithms = ["cup"]
tasks = ["HopperSpeed"]
seeds = 5
"""


def shown(console: Console, content: object) -> str:
    with console.capture() as captured:
        console.print(content)
    return captured.get()


def test_the_table_of_cells(tmp_path: Path, synthetic_sweep: Callable[..., None]) -> None:
    """Iterations of 0.5 s: 15 are left in one cell, 20 in another, on two jobs."""
    path = tmp_path / "sweep"
    synthetic_sweep(path, FILE)
    for file in ("metrics.jsonl", "timings.jsonl"):
        lines = (path / "cup-HopperSpeed-1" / file).read_text().splitlines(keepends=True)
        (path / "cup-HopperSpeed-1" / file).write_text("".join(lines[:5]) + lines[5][:9])
        (path / "cup-HopperSpeed-2" / file).unlink()
    statuses = {
        "cup-HopperSpeed-0": CellStatus("finished"),
        "cup-HopperSpeed-1": CellStatus("running"),
        "cup-HopperSpeed-2": CellStatus("running"),
        "cup-HopperSpeed-3": CellStatus("failed", "no [memory] left"),
        "cup-HopperSpeed-4": CellStatus("finished"),
    }
    console = Console(width=120, force_terminal=False)
    display = SweepDisplay(console, SweepDirectory.open(path), jobs=2)
    progress = read_progress(SweepDirectory.open(path), "cup-HopperSpeed-1")
    assert (progress.done, progress.iterations) == (5, 20)
    assert progress.left == 15 * 0.5
    assert display.left(statuses) == max((15 * 0.5 + 20 * 0.5) / 2, 20 * 0.5)
    text = shown(console, display.table(statuses))
    assert "2 of 5 cells finished, 2 running, 1 failed, about 0:00:10 left" in text
    row = next(line for line in text.splitlines() if "cup-HopperSpeed-1" in line)
    assert "5/20" in row
    assert "82.7" in row
    assert "0:00:07" in row
    assert "failed: no [memory] left" in text
    first = [line.split()[1] for line in text.splitlines() if "cup-" in line]
    assert [int(name[-1]) for name in first] == [1, 2, 3, 0, 4]  # running, failed, finished
    few = shown(console, display.table(statuses, rows=4))
    assert "cup-HopperSpeed-0" not in few  # the finished ones give way
    [line] = [line for line in few.splitlines() if "2 cells" in line]
    assert "finished" in line
    assert display.has_results(statuses)
    new = {"cup-HopperSpeed-2": CellStatus("failed", "no memory")}
    assert not display.has_results(new)


@given(st.lists(st.sampled_from(ORDER), min_size=1, max_size=60), st.integers(3, 30))
def test_what_runs_is_never_hidden_by_what_does_not(states: list[State], rows: int) -> None:
    statuses = {f"cell-{i}": CellStatus(state) for i, state in enumerate(states)}
    names, folded = chosen(statuses, rows)
    counts = Counter(statuses[name].state for name in names) + folded
    assert counts == Counter(states)  # each cell once
    assert names or folded  # and in order
    assert [ORDER.index(statuses[n].state) for n in names] == sorted(
        ORDER.index(statuses[n].state) for n in names
    )
    if len(states) <= rows:
        assert not folded
    if folded["running"]:
        assert {statuses[name].state for name in names} == {"running"}
    if folded["failed"]:
        assert {statuses[name].state for name in names} <= {"running", "failed"}
    # A line for each state at least; one more for a state that has rows and shares one.
    assert len(names) + len(folded) <= max(rows, len(set(states))) + 2


def test_plain_lines_where_there_is_no_terminal(
    tmp_path: Path, synthetic_sweep: Callable[..., None], capsys
) -> None:
    synthetic_sweep(tmp_path / "sweep", FILE)
    sweep = SweepDirectory.open(tmp_path / "sweep")
    display = SweepDisplay(Console(force_terminal=False), sweep, jobs=1)
    with display:
        for state in ("running", "running", "failed"):
            reason = "no task" if state == "failed" else ""
            display({name: CellStatus(state, reason) for name in list(sweep.cells)[:1]})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cup-HopperSpeed-0  running"
    assert lines[1].startswith("0 of 1 cells finished, 1 running")
    assert lines[2:] == ["cup-HopperSpeed-0  failed: no task"]


def test_the_tail_of_a_long_file(tmp_path: Path) -> None:
    journal = Journal(Folder(tmp_path), "long.jsonl", Table({"iteration": Whole(1)}))
    journal.rewind(0)
    for i in range(1, 5001):
        journal.append({"iteration": i})
    journal.close()
    with journal.path.open("a") as file:
        file.write('{"iter')
    found = journal.tail()
    assert found[-1] == {"iteration": 5000}
    first = found[0]["iteration"]
    assert 1 < first < 5000
    assert [record["iteration"] for record in found] == list(range(first, 5001))
    assert Journal(Folder(tmp_path), "none", Table({})).tail() == []
