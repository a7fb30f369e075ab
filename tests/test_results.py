"""results/: what is committed is what the committed curves give; adding cells to them."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.reports import curves
from cupola.reports.results import Results, RunResult
from cupola.sweeps.directory import SweepDirectory
from cupola.tasks import specs

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # the results are no part of the package
adding = importlib.import_module("results.adding")
claims = importlib.import_module("results.claims")
figures = importlib.import_module("results.figures")
sources = importlib.import_module("results.sources")
tables = importlib.import_module("results.tables")
writing = importlib.import_module("results.writing")


def test_the_committed_page_is_that_of_the_committed_curves() -> None:
    for path, text in writing.texts_of_page(sources.load()).items():
        assert path.read_text() == text, f"{path} is not up to date: make results"


def test_the_committed_figures_are_those_of_the_committed_curves() -> None:
    """By the digests of their data; nothing is drawn."""
    found = writing.all_figures(sources.load())
    assert len(found) >= 15
    for figure in found:
        assert figure.is_current(), f"{figure.path} is not up to date: make results"
    known = {figure.path for figure in found}
    assert set((ROOT / "results" / "figures").glob("*.png")) <= known


def test_numbers_of_others() -> None:
    """Each on a task of cupola, and the paper's as the text quotes them."""
    published = sources.read_published()
    assert {task for _, task, _ in published} <= set(specs())
    assert len([key for key in published if key[0] == "paper"]) == 5 * 6 + 4 * 5
    assert len([key for key in published if key[0] == "omnisafe"]) == 10 * 6
    assert published["paper", "HopperSpeed", "cup"] == (2025.56, 122.35, 79.98, 2.306)
    assert published["paper", "SwimmerSpeed", "ppo_lag"][::2] == (35.58, 54.91)
    assert published["omnisafe", "SafetyHopperVelocity-v1", "cup"][::2] == (1716.08, 7.48)


# --- With all cells there, made up ---


def made_up(cell: object, level: float, share: float) -> RunResult:
    """A run whose final return is ``level`` and whose final cost is that share of its limit."""
    config = cell.resolve()
    count = config.options.iterations
    ((cost, limit),) = config.limits.items()
    rising = np.minimum(1.0, np.arange(1, count + 1) / (count // 2))
    found = {
        "iteration": np.arange(1.0, count + 1),
        "steps": np.arange(1.0, count + 1) * config.algorithm.batch_size,
        "episodes": np.full(count, 10.0),
        "length": np.full(count, 1000.0),
        "return": level * rising,
        f"cost/{cost}": share * limit * (3 - 2 * rising),
        f"cost_error/{cost}": np.full(count, 0.01 * limit),
        f"nu/{cost}": 1 - rising,
    }
    return RunResult(
        cell.name, cell.label, cell.task, cell.seed, cell.point, "finished", "",
        limits=config.limits, curves=found,
    )  # fmt: skip


def data_of(level: Callable[[str], float], share: Callable[[str], float], leave_out: str = ""):
    """Every cell of every experiment but those on one task, by what its algorithm does."""
    before = sources.load()
    results = {
        name: Results(
            name,
            [
                made_up(cell, level(cell.label) + cell.seed % 10, share(cell.label))
                for cell in experiment.cells
                if cell.task != leave_out
            ],
        )
        for name, experiment in before.experiments.items()
    }
    hopper = [c for c in before.experiments["default-robots"].cells if c.task == "HopperSpeed"]
    cells = {
        cell.name: {
            "cell": cell.name,
            "minutes": str(minutes),
            "deterministic/return": "3100",
            "deterministic/cost/speed": "90",
        }
        for cell, minutes in zip(hopper, (3.0, 5.0), strict=False)
    }
    return sources.Data(before.experiments, results, {"default-robots": cells}, before.published)


def verdicts(data: object) -> dict[str, str]:
    return {claim.text: claim.answer(data).word for claim in claims.CLAIMS}


def test_a_table_has_the_numbers_of_the_runs() -> None:
    data = data_of(lambda label: 3000.0, lambda label: 0.9 if label == "cup" else 1.2)
    (row,) = (
        [str(entry.value) for entry in row]
        for row in tables.cells(data, ("HopperSpeed",)).rows
        if row[1].value == "CUP (default)"
    )
    assert row[0] == "HopperSpeed (82.7)"
    assert row[2] == "5 of 5"
    # Costs fall from 2.7 to 0.9 limits over the first 125 iterations: below 1 from the 119th on.
    assert row[5] == f"{(250 - 118) / 250:.0%}"
    assert row[6] == "5 of 5"
    seed = data.experiments["default-robots"].cells[0].seed
    assert row[7] == f"3,000 (seed {seed})"
    assert row[8] == f"74.5 (seed {seed})"
    assert row[9:11] == ["4", "3,100 / 90†"]
    returns = tables.cells(data, ("HopperSpeed",)).rows[0][3]
    assert returns.bold
    assert returns.value.value == pytest.approx(3002)
    assert 3000 <= returns.value.low < 3002 < returns.value.high <= 3004
    (summary,) = (row for row in tables.summary(data).rows if row[0].value == "HopperSpeed")
    assert [entry.value for entry in summary[3:]] == ["5 of 5", returns.value, *summary_end(data)]
    assert tables.training_hours(data) == pytest.approx(8 / 60)


def summary_end(data: object) -> list[object]:
    cost = tables.measured(data.runs("HopperSpeed", "cup"), False)[1].value
    return [cost, "5 of 5", "none"]


def test_verdicts_follow_from_the_runs() -> None:
    """The paper's CUP above the limit, the default within it and best."""
    found = verdicts(
        data_of(
            lambda label: 9000.0 if label == "cup" else 8000.0,
            lambda label: {"cup": 0.98, "cup-paper": 1.1}.get(label, 0.9),
        )
    )
    changed = [text for text, word in found.items() if word == "only with our changes"]
    assert [re.split(r" on |[.(]", text)[0] for text in changed] == [
        "CUP holds the limit",
        "Its cost coincides with the limit, quickly and steadily ",
        "It has the returns of Table 1 within the limit",
        "It has higher returns than the baselines that hold the limit",
        "CUP holds the limit",
        "It has the returns of the Safety Gym table within the limit",
        "It has higher returns than the baselines that hold the limit, but",
        "Return and cost are stable for different alpha",
        "CUP is safe at each of five cost limits",
        "Return and cost are stable for different epsilon",
    ]
    assert found["On the Swimmer all five baselines violate the limit."] == "does not hold"


def test_verdicts_of_the_papers_own_settings() -> None:
    paper = {"cup-paper": 0.97, "cup": 0.97, "focops": 0.99}
    found = verdicts(data_of(lambda label: 9000.0, lambda label: paper.get(label, 1.3)))
    for text, word in found.items():
        theorem = re.match("The (identity|lemma)|Theorem|Propositions", text)
        rests = text.startswith("The multiplier rests")
        ours = not theorem and not rests and "paper's own" not in text and "all five" not in text
        ours = ours and "feasible earlier" not in text and "higher returns" not in text
        if ours:
            assert word == "holds", text
    assert found["Theorem 1, the bounds with GAE."] == "does not hold"
    assert found["The identity of lambda-returns."] == "holds"


def test_a_claim_is_open_while_seeds_are_missing() -> None:
    data = data_of(lambda label: 9000.0, lambda label: 0.98, leave_out="AntSpeed")
    assert verdicts(data)["CUP holds the limit on the five robots."] == "not yet known"
    assert tables.missing(data, "default-robots") == 5
    assert "20 of 25 cells are there" in writing.state(data)
    assert "`experiments/velocity.toml`: complete." in writing.state(data)
    worse = data_of(lambda label: 9000.0, lambda label: 1.5, leave_out="AntSpeed")
    assert verdicts(worse)["CUP holds the limit on the five robots."] == "does not hold"


def test_the_block_of_the_readme() -> None:
    text = f"before\n{writing.BEGIN}\nold\n{writing.END}\nafter\n"
    once = writing.with_block(text, "new")
    assert once == f"before\n{writing.BEGIN}\n\nnew\n\n{writing.END}\nafter\n"
    assert writing.with_block(once, "new") == once
    with pytest.raises(CupolaError, match="no block"):
        writing.with_block("nothing", "new")


def test_a_figure_knows_whether_its_data_have_changed(tmp_path: Path) -> None:
    data = data_of(lambda label: 3000.0, lambda label: 0.9)
    compared = data.compared()
    figure = figures.of_curves(compared, "PointButton1", tmp_path)
    assert not figure.is_current()
    assert figures.write([figure]) == [figure.path]
    assert figure.is_current()
    assert figures.write([figure]) == []
    other = data_of(lambda label: 3000.5, lambda label: 0.9).compared()
    assert not figures.of_curves(other, "PointButton1", tmp_path).is_current()


# --- Adding cells ---

SWEEP = """
iterations = 12
algorithms = ["cup", "ppo_lag"]
tasks = ["HopperSpeed"]
seeds = 2
"""


@pytest.fixture
def swept(
    tmp_path: Path, synthetic_sweep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A sweep of an experiment of this test alone, with one cell that is not finished."""
    monkeypatch.setattr(sources, "EXPERIMENTS", tmp_path)
    sources.experiment.cache_clear()
    (tmp_path / "mine.toml").write_text(SWEEP)
    path = tmp_path / "runs"
    synthetic_sweep(path, SWEEP)
    (path / "ppo_lag-HopperSpeed-1" / "result.json").unlink()
    yield path
    sources.experiment.cache_clear()


def test_finished_cells_are_added_a_few_at_a_time(swept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "committed"
    said = list(adding.add("mine", [swept], folder))
    assert said[-2:] == [
        f"{folder / 'mine' / 'curves.csv.gz'}: 3 of 4 cells, 1 missing.",
        "next: make results",
    ]
    first = curves.read(folder / "mine" / "curves.csv.gz")
    names = ["cup-HopperSpeed-0", "cup-HopperSpeed-1", "ppo_lag-HopperSpeed-0"]
    assert [run.name for run in first.runs] == names
    with (folder / "mine" / "cells.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["cell"] for row in rows] == names
    assert all(float(row["minutes"]) >= 0 for row in rows)
    before = (folder / "mine" / "curves.csv.gz").read_bytes()
    list(adding.add("mine", [folder / "mine" / "curves.csv.gz"], folder))
    assert (folder / "mine" / "curves.csv.gz").read_bytes() == before
    assert sources.read_cells("mine", folder).keys() == set(names)


def test_runs_that_are_not_what_the_experiment_asks_for_are_refused(
    swept: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "committed"
    file = tmp_path / "mine.toml"
    file.write_text(SWEEP + "[shared]\nlam_c = 0.7\n")
    sources.experiment.cache_clear()
    with pytest.raises(CupolaError, match=r"trained with lam_c = 0\.5, .* asks for 0\.7"):
        list(adding.add("mine", [swept], folder))
    file.write_text(SWEEP.replace("seeds = 2", "seeds = [1]"))
    sources.experiment.cache_clear()
    with pytest.raises(
        CupolaError, match=r"cup-HopperSpeed-0 is no cell of experiments/mine\.toml"
    ):
        list(adding.add("mine", [swept], folder))
    for name in SweepDirectory.open(swept).cells:
        (swept / name / "result.json").unlink(missing_ok=True)
    with pytest.raises(CupolaError, match="no finished cell"):
        list(adding.add("mine", [swept], folder))
    assert not folder.exists()
