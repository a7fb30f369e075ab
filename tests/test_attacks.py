"""The attack suite: a few tries with fixed seeds, and that it notices what it is there for."""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.runs import checkpoints
from cupola.runs.files import Folder

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # the attacks are no part of the package

campaign = importlib.import_module("attacks.campaign")
kinds = importlib.import_module("attacks.kinds")
mutants = importlib.import_module("attacks.kinds.mutants")
lanes = importlib.import_module("attacks.lanes")
mutate = importlib.import_module("attacks.mutate")
places = importlib.import_module("attacks.places")
verdicts = importlib.import_module("attacks.verdicts")

TRIES = {
    **{"mutants": 150, "plants": 40, "commands": 150, "experiments": 150, "consent": 15},
    "studies": 40,
    **{"kills": 8, "calls": 8, "signals": 6, "disk": 6, "together": 5, "numbers": 10},
    **{"sweep_kills": 2, "ray_kills": 1, "worker_kills": 3},
}
"""About five minutes on two cores."""


def run_attacks(kind: str, tries: int) -> tuple[int, str]:
    """A process of its own: its children are forked before JAX has computed anything."""
    command = [sys.executable, "-m", "attacks", "--only", kind, "--jobs", "1"]
    paths = (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [*command, "--tries", str(tries), "--seed", "1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds.load())
def test_cupola_survives(kind: str) -> None:
    code, printed = run_attacks(kind, TRIES[kind])
    assert code == 0, printed


def test_smoke() -> None:
    """The quickest kind, through the whole machinery."""
    code, printed = run_attacks("experiments", 3)
    assert code == 0, printed
    assert "experiments" in printed


def test_every_kind_says_what_the_runner_needs() -> None:
    found = kinds.load()
    assert set(found) == set(TRIES)
    for kind in found.values():
        assert kind.__doc__
        assert kind.COUNTS in ("kill", "mutant", "command", "attack")
        assert kind.SECONDS > 0
        assert kind.SHARE > 0


# --- The suite notices what it is there for ---


@pytest.mark.parametrize(
    ("code", "err", "complaint"),
    [
        (1, "Traceback (most recent call last)\nKeyError: 'x'", "traceback, KeyError: 'x'"),
        (1, "", "without a word"),
        (1, "cupola: one.\ncupola: two.", "not one sentence"),
        (1, "\x1b[31mcupola: red", "not one sentence"),
        (-11, "", "exit code -11"),
        (0, "some noise", "exit code 0, but"),
    ],
)
def test_bad_manners(code: int, err: str, complaint: str) -> None:
    with pytest.raises(verdicts.Failed, match=complaint):
        verdicts.check_manners(verdicts.Outcome(code, "", err))


@pytest.mark.parametrize(
    ("code", "err"), [(0, ""), (1, "cupola: no such run."), (0, "cupola: warning: x"), (130, "")]
)
def test_good_manners(code: int, err: str) -> None:
    outcome = verdicts.Outcome(code, "", err)
    assert verdicts.check_manners(outcome) is outcome


def test_a_touched_outside_is_noticed(tmp_path: Path) -> None:
    place = places.Place(tmp_path / "place", tmp_path)
    place.make()
    place.check()
    (place.outside / "victim.txt").write_text("touched\n")
    with pytest.raises(verdicts.Failed, match=r"touched: victim\.txt"):
        place.check()


def stand_in(name: str, attack) -> ModuleType:
    module = ModuleType(name)
    module.attack = attack
    module.SHARE, module.SECONDS, module.WARM, module.COUNTS = 50.0, 2.0, False, "attack"
    return module


@pytest.mark.filterwarnings("ignore:os.fork")  # what it forks here computes nothing
def test_a_campaign_counts_survivals_failures_hangs_and_deaths(tmp_path, monkeypatch) -> None:
    def attack(random: Random, place) -> None:
        seed = int(place.root.name.split("-")[-1])
        if seed == 1:
            raise verdicts.Failed("it broke")
        if seed == 2:
            os._exit(3)
        while seed == 3:
            pass

    found = {"stand_in": stand_in("stand_in", attack)}
    monkeypatch.setattr(kinds, "load", lambda: found)
    tallies = campaign.Tallies(campaign.Tally)
    plan = campaign.for_tries(found, 5, 0)
    campaign.run(found, plan, 2, tmp_path, tallies, lambda *_: None)
    tally = tallies["stand_in"]
    assert (tally.tries, tally.survived) == (5, 2)
    failures = {result.seed: result.failure for result in tally.failures}
    assert failures[1] == "it broke"
    assert "died (exit code 3)" in failures[2]
    assert "it hangs" in failures[3]
    assert not list((tmp_path / "tries").iterdir())


def test_time_is_shared_out_and_seeds_are_apart() -> None:
    light, heavy = stand_in("light", None), stand_in("heavy", None)
    light.SHARE, heavy.SHARE = 20.0, 80.0
    found = {"light": light, "heavy": heavy}
    tallies = campaign.Tallies(campaign.Tally)
    plan, seeds = campaign.for_minutes(found, 1.0, 7, tallies), []
    for _ in range(100):
        kind, seed = next(plan)
        seeds.append(seed)
        tallies[kind].add(lanes.Result(kind, seed, "", 0.5))
    assert tallies["light"].tries == pytest.approx(20, abs=2)
    assert min(seeds) == 7 * campaign.SEEDS_APART


@pytest.mark.parametrize("change", mutate.BYTES)
def test_damage_is_the_same_for_the_same_seed(change) -> None:
    data = b"".join(b'{"iteration": %d, "return": 2.5}\n' % i for i in range(5))
    assert change(Random(3), data) == change(Random(3), data)
    assert any(change(Random(seed), data) != data for seed in range(5))


def test_json_is_damaged_in_many_ways() -> None:
    tree = {"a": [1, 2.5, "x"], "b": {"c": None, "d": True}}
    texts = {mutate.to_text(mutate.change_json(Random(seed), tree)) for seed in range(300)}
    assert len(texts) > 150
    assert any(b"1e400" in text for text in texts)
    assert any(b"\\ud800" in text for text in texts)
    assert any(text.count(b"[" * 1000) for text in texts)


def test_the_suite_reads_no_file_that_it_enlarged(tmp_path: Path, monkeypatch) -> None:
    """It ran out of memory itself."""
    for name in ("config.json", "metrics.jsonl", "notes.txt"):
        (tmp_path / name).write_text('{"iterations": 3}\n')
    whole = Path(shutil.copytree(tmp_path, tmp_path.with_name("whole")))
    mutate.enlarge(Random(0), tmp_path / "config.json")

    def refuse(self: Path, *_: object) -> bytes:
        assert self.stat().st_size < mutate.HUGE_FILE, f"{self} was read"
        with self.open("rb") as file:
            return file.read()

    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(Path, "read_text", lambda self: refuse(self).decode())
    assert not mutants.grown(tmp_path, whole)
    for seed in range(30):
        mutate.other_file(Random(seed), tmp_path / "notes.txt")
        assert (tmp_path / "notes.txt").read_text() == '{"iterations": 3}\n'


def test_lines_after_the_newest_checkpoint_may_be_gone(tmp_path: Path) -> None:
    """A power cut takes them too, and nobody can tell; those before it must be there."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "00000003.safetensors").write_text("")
    for lines, shown in ((7, 7), (5, 5), (3, 3), (2, 3), (0, 3), (9, 7)):
        (tmp_path / "metrics.jsonl").write_bytes(b"{}\n" * lines + b'{"half')
        assert mutants.remaining(tmp_path, 7) == shown


def test_a_forged_checkpoint_has_the_right_check_values(tmp_path: Path) -> None:
    """Else the attack would only try the checksum, again and again."""
    folder, seen = Folder(tmp_path), set()
    for seed in range(40):
        arrays = {"a": np.arange(4.0), "b": np.ones((2, 2), np.float32)}
        checkpoints.write(folder, checkpoints.Checkpoint(3, arrays), keep=1)
        mutate.forge(Random(seed), tmp_path / "00000003.safetensors")
        with contextlib.suppress(CupolaError):  # of another iteration than its name
            found = checkpoints.read(folder, "00000003.safetensors")
            seen.add(tuple((k, v.dtype.str, v.shape) for k, v in sorted(found.arrays.items())))
    assert len(seen) > 8
