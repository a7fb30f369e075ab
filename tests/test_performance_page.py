"""The page on performance says what the committed measurements say."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "performance_page.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("performance_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_its_script_writes(script):
    page = script.PAGE.read_text()
    assert script.filled(page, script.HERE / "results") == page, f"run python {SCRIPT}"
    assert {match[1] for match in script.BLOCK.finditer(page)} == set(script.BLOCKS)


def test_a_block_shows_its_file_and_without_it_says_so(script, tmp_path):
    figures = {"steps_per_second": 9000.0, "physics_steps_per_second": 12000.0, "ratio": 0.75}
    figures |= {"standing_ratio": 0.8, "rollout_seconds": 1.0, "update_seconds": 0.25}
    found = {"command": "cupola bench --all", "cores": 2, "platform": "Linux", "repeat": 3}
    (tmp_path / "bench-all.json").write_text(json.dumps(found | {"tasks": {"A": figures}}))
    page = "before\n<!-- results/bench-all.json -->\nold\n<!-- end -->\nafter\n"
    shown = script.filled(page, tmp_path)
    assert "| A | 9,000 | 12,000 | 75 % | 80 % | 1.00 | 0.25 |" in shown
    assert "Medians of 3 benches in a row." in shown
    assert "`cupola bench --all`" in shown
    assert "old" not in shown
    assert shown.startswith("before\n")
    assert shown.endswith("after\n")
    assert script.filled(shown, tmp_path) == shown
    (tmp_path / "bench-all.json").unlink()
    assert "Not measured yet." in script.filled(shown, tmp_path)
