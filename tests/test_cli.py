"""The command line and the Python interface, as a user meets them."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cupola
from cupola.algos import names as algorithm_names
from cupola.cli import main
from cupola.errors import CupolaError
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.tasks import specs
from cupola.tasks.base import Clock, State, Task, TaskSpec
from cupola.types import Cost, Step

# The same shapes and numbers as in tests/runs/test_resume.py: they are compiled once.
TINY = {
    "batch_size": 200,
    "num_envs": 4,
    "minibatch_size": 50,
    "epochs": 2,
    "hidden": (8, 8),
    "dual_lr": 0.1,
    "iterations": 6,
    "checkpoint_every": 2,
    "threads": 1,
}
TINY_ARGS = [
    *("--batch-size", "200", "--num-envs", "4", "--minibatch-size", "50", "--epochs", "2"),
    *("--hidden", "8", "8", "--iterations", "6", "--checkpoint-every", "2", "--threads", "1"),
    *("--dual-lr", "0.1"),
]

Command = Callable[..., tuple[int, str, str]]
Complaint = Callable[..., str]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch) -> Command:
    """Run `cupola ...` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*args: str | Path) -> tuple[int, str, str]:
        status: Any = 0
        capsys.readouterr()
        try:
            main([str(arg) for arg in args])
        except SystemExit as stop:
            status = stop.code
        return (status or 0, *capsys.readouterr())

    return run


@pytest.fixture
def complaint(command: Command, tmp_path: Path) -> Complaint:
    """The one line that a command which is refused prints; it leaves nothing behind."""

    def run(*args: str | Path) -> str:
        before = sorted(tmp_path.rglob("*"))
        status, out, err = command(*args)
        assert status not in (0, None)
        assert out == ""
        assert re.fullmatch(r"cupola: .*\n", err), err
        assert sorted(tmp_path.rglob("*")) == before, "something was left behind"
        return err.removeprefix("cupola: ").strip()

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> cupola.Run:
    """A small finished run."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return cupola.train("cup", "HopperSpeed", limits=5.0, out=out, **TINY)


@pytest.fixture
def copy(trained: cupola.Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained.path, tmp_path / "copy"))


# --- Refused: names and values ---

HOPPER = "train cup HopperSpeed"
REFUSED = [
    ("trian cup HopperSpeed", "unknown command 'trian': did you mean 'train'?"),
    ("train", "say what to train: cupola train ALGO TASK"),
    ("train cup", "TASK"),
    ("train cpu HopperSpeed", "unknown algorithm 'cpu': did you mean 'cup'?"),
    ("train cup HoperSpeed", "unknown task 'HoperSpeed': did you mean 'HopperSpeed'?"),
    ("train cup hopperspeed", "did you mean 'HopperSpeed'?"),
    ("train cup SafetyHoperVelocity-v1", "did you mean 'SafetyHopperVelocity-v1'?"),
    (f"{HOPPER} --itertions 3", "unknown option '--itertions': did you mean '--iterations'?"),
    (f"{HOPPER} --batch_sze=3", "unknown option '--batch_sze': did you mean '--batch-size'?"),
    (f"{HOPPER} --preset papr", "unknown preset 'papr': did you mean 'paper'?"),
    (f"{HOPPER} --limit sped=3", "unknown cost of HopperSpeed 'sped': did you mean 'speed'?"),
    (f"{HOPPER} extra", "extra"),
    (f"{HOPPER} --limit -1", "the limit of speed must be"),
    (f"{HOPPER} --limit speed=-1", "the limit of speed must be"),
    (f"{HOPPER} --limit nan", "the limit of speed must be"),
    (f"{HOPPER} --limit inf", "HopperSpeed has no limit yet"),
    (f"{HOPPER} --limit sped=inf", "unknown cost of HopperSpeed"),
    (f"{HOPPER} --limit much", "--limit takes a number or NAME=number"),
    (f"{HOPPER} --limit speed=", "--limit takes a number or NAME=number"),
    (f"{HOPPER} --limit 3 --limit 4", "several limits need one name each"),
    (f"{HOPPER} --limit 3 --limit effort=4", "several limits need one name each"),
    (f"{HOPPER} --limit speed=3 --limit speed=4", "several limits need one name each"),
    (f"{HOPPER} --minibatch-size 5001", "minibatch_size must lie between 1 and batch_size (5000)"),
    (f"{HOPPER} --minibatch-size 0", "minibatch_size must lie between 1 and batch_size"),
    (f"{HOPPER} --num-envs 7", "num_envs must divide batch_size"),
    (f"{HOPPER} --num-envs 0", "num_envs must be at least 1"),
    (f"{HOPPER} --iterations 0", "iterations must be at least 1, not 0"),
    (f"{HOPPER} --iterations -3", "iterations must be at least 1, not -3"),
    (f"{HOPPER} --iterations ten", "'ten'"),
    (f"{HOPPER} --iterations 1.5", "'1.5'"),
    (f"{HOPPER} --checkpoint-every 0", "checkpoint_every must be at least 1"),
    (f"{HOPPER} --keep-checkpoints 0", "keep_checkpoints must be at least 1"),
    (f"{HOPPER} --seed -1", "seed must lie in [0, 2^32), not -1"),
    (f"{HOPPER} --threads -1", "threads must not be negative"),
    (f"{HOPPER} --gamma 1", "gamma must lie in [0, 1), not 1"),
    (f"{HOPPER} --lam 1.1", "lam must lie in [0, 1], not 1.1"),
    (f"{HOPPER} --learning-rate nan", "learning_rate must be a number"),
    (f"{HOPPER} --learning-rate 0", "learning_rate must be positive"),
    (f"{HOPPER} --hidden 0", "hidden needs at least one layer of at least one unit"),
    (f"{HOPPER} --epochs 0", "epochs must be at least 1"),
    (f"{HOPPER} --nu-init 3", "nu_init must lie between 0 and nu_max"),
    (f"{HOPPER} --improvement clipp", "clip"),
    (f"{HOPPER} --cost-termination bootstrap", "time_limit"),
    (f"{HOPPER} --time-limit never", "bootstrap"),
    (f"{HOPPER} --seed", "--seed"),
    (f"{HOPPER} --preset", "--preset"),
    ("resume", "RUN"),
    ("resume nowhere", "there is no directory nowhere"),
    ("eval nowhere", "there is no directory nowhere"),
    ("eval nowhere --episode 3", "unknown option '--episode': did you mean '--episodes'?"),
    ("bench HoperSpeed", "unknown task 'HoperSpeed': did you mean 'HopperSpeed'?"),
    ("bench HopperSpeed --iterations 0", "iterations must be at least 1, not 0"),
    ("list everything", "everything"),
]


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_a_bad_command_is_one_sentence(complaint, line, expected):
    assert expected.lower() in complaint(*line.split()).lower()


def test_no_command_shows_the_usage_and_help_is_not_an_error(command):
    status, out, _ = command()
    assert status == 2
    assert "cupola train ALGO TASK" in out
    for args in (("--help",), ("train", "cup", "--help"), ("eval", "--help")):
        status, out, err = command(*args)
        assert (status, err) == (0, "")
        assert "usage" in out.lower()
    assert "--minibatch-size" in command("train", "cup", "--help")[1]
    assert command("--version") == (0, f"cupola {cupola.__version__}\n", "")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"itertions": 3}, "unknown field 'itertions': did you mean 'iterations'"),
        ({"limits": {"sped": 3.0}}, "unknown cost of HopperSpeed 'sped': did you mean 'speed'"),
        ({"limits": -1}, "the limit of speed must be"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"iterations": 2.5}, "iterations must be a whole number, not 2.5"),
        ({"gamma": "0.9"}, "gamma must be a number, not '0.9'"),
        ({"improvement": "clp"}, "improvement must be one of clip, kl, focops, not 'clp'"),
        ({"normalise_obs": 1}, "normalise_obs must be true or false"),
    ],
)
def test_the_python_interface_refuses_the_same(tmp_path, fields, expected):
    with pytest.raises(CupolaError, match=re.escape(expected)):
        cupola.train("cup", "HopperSpeed", out=tmp_path / "run", **fields)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_fails_in_a_real_process(tmp_path):
    args = [sys.executable, "-m", "cupola", "train", "cup", "HoperSpeed"]
    child = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (child.returncode, child.stdout) == (1, "")
    assert child.stderr == "cupola: unknown task 'HoperSpeed': did you mean 'HopperSpeed'?\n"
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_away_is_no_traceback(tmp_path):
    read, write = os.pipe()
    os.close(read)
    child = subprocess.run(
        [sys.executable, "-m", "cupola", "list"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert child.stderr == b""
    assert child.returncode == 1


# --- Refused: directories ---


def test_a_directory_that_holds_a_run_is_not_touched(complaint, copy):
    line = complaint(*HOPPER.split(), "--out", copy)
    assert line.startswith(f"{copy} already holds a run: continue it with 'cupola resume {copy}'")


def test_a_file_or_a_directory_in_use_is_not_touched(complaint, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    assert "is a file" in complaint(*HOPPER.split(), "--out", tmp_path / "file")
    assert "is not empty" in complaint(*HOPPER.split(), "--out", tmp_path / "folder")
    below = complaint(*HOPPER.split(), *TINY_ARGS, "--out", tmp_path / "file" / "run")
    assert below.startswith("cannot write to")


def test_a_place_that_cannot_be_written(complaint):
    line = complaint(*HOPPER.split(), *TINY_ARGS, "--out", "/proc/cupola/run")
    assert line.startswith("cannot write to /proc/cupola/run (")


@pytest.mark.parametrize("line", [f"{HOPPER} --out", "resume", "eval"])
def test_a_path_that_the_system_refuses(complaint, line):
    """Too long here; for others it is a folder that they may not enter."""
    complaint(*line.split(), "x" * 300)


@pytest.mark.parametrize("action", ["resume", "eval"])
def test_directories_of_something_else(complaint, tmp_path, action):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("hello")
    (tmp_path / "file.txt").write_text("hello")
    for name in ("empty", "other", "file.txt"):
        assert "does not hold a run" in complaint(action, tmp_path / name)


def without(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda config: {k: v for k, v in config.items() if k != key}


def changed(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda config: config | {key: value}


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "cut short": lambda config: json.dumps(config)[:100],
    "empty": lambda config: "",
    "binary": lambda config: b"\x93\x00\xff",
    "a list": lambda config: [config],
    "no task": without("task"),
    "no algorithm": without("algorithm"),
    "no iterations": without("iterations"),
    "no limits": without("limits"),
    "wrong type": changed("iterations", "many"),
    "impossible": changed("iterations", 0),
    "unknown algo": changed("algo", "cupp"),
    "unknown task": changed("task", "HoperSpeed"),
    "unknown field": changed("algorithm", {"gama": 0.9}),
    "limit text": changed("limits", {"speed": "low"}),
    "limits a list": changed("limits", [5]),
}


def rewrite_config(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = change(json.loads((run / "config.json").read_text()))
    if isinstance(content, dict | list):
        content = json.dumps(content)
    (run / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("action", ["resume", "eval"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_config_is_one_sentence(complaint, copy, action, damage):
    rewrite_config(copy, DAMAGE[damage])
    complaint(action, copy)


@pytest.mark.parametrize("action", ["resume", "eval"])
@pytest.mark.parametrize("limits", [{"velocity": 25}, {"speed": -1}])
def test_a_config_with_impossible_limits_is_one_sentence(complaint, copy, action, limits):
    rewrite_config(copy, changed("limits", limits))
    complaint(action, copy)


def test_eval_of_a_run_without_a_readable_checkpoint(complaint, copy):
    for file in (copy / "checkpoints").iterdir():
        file.write_bytes(b"")
    assert f"continue it with 'cupola resume {copy}'" in complaint("eval", copy)
    file = copy / "checkpoints" / "00000006.safetensors"
    assert f"{file} is not a readable checkpoint" in complaint("eval", file)


@pytest.mark.parametrize("episodes", ["0", "-2", "many"])
def test_eval_of_no_episodes(complaint, trained, episodes):
    assert "episodes" in complaint("eval", trained.path, "--episodes", episodes)


# --- A full disk ---


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_at_the_start(complaint, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full_disk)
    line = complaint(*HOPPER.split(), *TINY_ARGS, "--out", tmp_path / "run")
    assert line.startswith(f"cannot write to {tmp_path / 'run'} (No space left on device); nothing")


def test_a_disk_that_fills_up_in_the_middle(command, trained, tmp_path, monkeypatch):
    run, fsync = tmp_path / "run", os.fsync

    def fills_up(descriptor: int) -> None:
        if len(RunDirectory(run).metrics()) >= 5:
            full_disk()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fills_up)
    status, _, err = command(*HOPPER.split(), "--limit", "5", *TINY_ARGS, "--out", run)
    assert status == 1
    assert err == (
        f"cupola: cannot write to {run} (No space left on device); the run is safe up to"
        f" iteration 4: make room or give access, then 'cupola resume {run}'.\n"
    )
    assert checkpoints.iterations(run / "checkpoints") == [2, 4]
    assert cupola.load(run).iteration == 4
    assert not list(run.rglob("*.tmp"))
    monkeypatch.setattr(os, "fsync", fsync)
    assert command("resume", run)[::2] == (0, "")
    whole = (trained.path / "metrics.jsonl").read_bytes()
    assert (run / "metrics.jsonl").read_bytes() == whole


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl"])
def test_a_line_that_does_not_fit_any_more(tmp_path, name):
    run = RunDirectory.create(tmp_path / "run", {})
    run.rewind(0)
    (run.path / name).symlink_to("/dev/full")
    with pytest.raises(CupolaError, match=r"cannot write to .* \(No space left on device\)"):
        run.log({"iteration": 1, "return": 0.5}, {"iteration": 1})
    run.close()


def test_half_a_line_is_a_failed_write(tmp_path):
    """A write that fills the disk may take a part and report no error: the next one would."""
    resource = pytest.importorskip("resource")
    run = RunDirectory.create(tmp_path / "run", {})
    run.rewind(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    taken = 0
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
        for i in range(1, 100):
            run.log({"iteration": i, "note": "x" * 100}, {"iteration": i})
            taken = i
    except CupolaError as error:
        assert str(error).startswith("cannot write to")  # noqa: PT017
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        run.close()
    assert len(run.metrics()) == taken
    assert 20 < taken < 99


def test_checkpoints_without_a_config_are_not_overwritten(complaint, copy):
    (copy / "config.json").unlink()
    for file in ("metrics.jsonl", "timings.jsonl"):
        (copy / file).unlink()
    shutil.rmtree(copy / "tensorboard")
    assert "is not empty" in complaint(*HOPPER.split(), *TINY_ARGS, "--out", copy)
    assert checkpoints.iterations(copy / "checkpoints") == [2, 4, 6]


# --- An environment that returns nonsense ---


class Counter(Task):
    """Counts to ten; sizes and limit are Hopper's, so that nothing new is compiled.

    ``bad`` names arrays of `Step` and the step at which, and the value with which, they go bad.
    """

    spec = TaskSpec("Counter", 11, 3, (Cost("use", 5.0, discounted=True),), 10)

    def __init__(self, num_envs: int, costs: tuple[str, ...], bad: dict[str, tuple[int, float]]):
        self.num_envs, self.costs, self._bad = num_envs, costs, bad
        self._clock, self._count = Clock(num_envs, 10), 0

    def _observe(self) -> np.ndarray:
        return np.tile(self._clock.elapsed[:, None] / 10, 11)

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        return self._observe()

    def step(self, actions: np.ndarray) -> Step:
        self._count += 1
        truncated = self._clock.tick(np.zeros(self.num_envs, bool))
        final_obs = self._observe()
        self._clock.begin(np.flatnonzero(truncated))
        step = Step(
            obs=self._observe(),
            final_obs=final_obs,
            reward=1 - np.square(actions - 1).sum(axis=1),
            costs=np.abs(actions[:, :1]),
            terminated=np.zeros(self.num_envs, bool),
            truncated=truncated,
        )
        for name, (when, value) in self._bad.items():
            if self._count == when:
                getattr(step, name)[0] = value
        return step

    def save(self) -> State:
        return {"count": np.array(self._count), **self._clock.save()}

    def restore(self, state: State) -> np.ndarray:
        self._count = int(state["count"])
        self._clock.restore(state)
        return self._observe()


def counter(**bad: tuple[int, float]) -> cupola.TaskFactory:
    return cupola.TaskFactory(Counter.spec, lambda envs, costs: Counter(envs, costs, bad))


@pytest.mark.parametrize(
    ("given", "value", "named"),
    [
        ("reward", np.nan, "rewards"),
        ("reward", np.inf, "rewards"),
        ("costs", -np.inf, "costs"),
        ("final_obs", np.nan, "next_obs"),
        ("obs", np.nan, "obs"),
    ],
)
def test_nonsense_from_an_environment_names_the_culprit(tmp_path, given, value, named):
    """Step 265 belongs to iteration 6 of 50 steps each; iteration 4 was saved."""
    run = tmp_path / "run"
    good = run / "checkpoints" / "00000004.safetensors"
    with pytest.raises(CupolaError) as caught:
        cupola.train("cup", counter(**{given: (265, value)}), out=run, **TINY)
    assert str(caught.value) == (
        f"iteration 6: '{named}' of the rollout is not finite (task Counter);"
        f" the last good checkpoint is {good}."
    )
    assert len(RunDirectory.open(run).metrics()) == 5
    assert np.isfinite(cupola.load(good).predict(np.ones((3, 11)))).all()


def test_a_run_goes_on_when_its_environment_is_mended(tmp_path):
    with pytest.raises(CupolaError, match=r"^iteration 2: 'rewards'.*no checkpoint had been wri"):
        cupola.train("cup", counter(reward=(80, np.nan)), out=tmp_path / "run", **TINY)
    with pytest.raises(CupolaError, match=r"^iteration 4: 'costs'.*00000002\.safetensors\.$"):
        cupola.resume(tmp_path / "run", task=counter(costs=(180, np.nan)))
    run = cupola.resume(tmp_path / "run", task=counter())
    whole = cupola.train("cup", counter(), out=tmp_path / "whole", **TINY)
    assert run.metrics == whole.metrics
    assert len(run.metrics) == 6


def test_nonsense_in_the_last_observation_is_not_saved(tmp_path):
    """The observation after iteration 4 is used in iteration 5 and saved in between."""
    with pytest.raises(CupolaError, match=r"last good checkpoint is .*00000002"):
        cupola.train("cup", counter(obs=(200, np.nan)), out=tmp_path / "run", **TINY)


# --- What a user sees when all is well ---


def test_list_names_everything(command):
    status, out, err = command("list")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    for name in algorithm_names():
        assert any(re.match(rf"\s*{name}\s.*paper", line) for line in lines), name
    for name, spec in specs().items():
        row = next(line for line in lines if re.search(rf"[│ ]{re.escape(name)} ", line))
        cells = [cell.strip() for cell in row.split("│")]
        assert [str(spec.obs_size), str(spec.act_size)] == cells[2:4]
        for cost in spec.costs:
            assert cost.name in row
            if cost.limit is not None:
                assert f"{cost.name} <= {cost.limit:g}" in row
                assert ("discounted" in row) == cost.discounted


def test_train_without_a_terminal_prints_plain_lines_and_a_table(command, trained, tmp_path):
    run = tmp_path / "run"
    status, out, err = command(*HOPPER.split(), "--limit", "5", *TINY_ARGS, "--out", run)
    assert (status, err) == (0, "")
    assert "\x1b" not in out
    progress = re.compile(
        r"\d/6  return -?[\d,.]+  speed [\d,.]+ (<=|>) 5\.0 \(nu \d\.\d{3}\)"
        r"  [\d,]+ steps/s  \d+:\d\d:\d\d left"
    )
    lines = [line for line in out.splitlines() if "/6 " in line]
    assert all(progress.fullmatch(line) for line in lines), lines
    assert lines[0].startswith("1/6")
    assert lines[-1].startswith("6/6")
    assert lines[-1].endswith("0:00:00 left")
    last = trained.metrics[-1]
    assert f"return {last['return']:.1f}  speed {last['cost/speed']:.1f} " in lines[-1]
    table = {cells[0]: cells[1:] for cells in rows(out)}
    first = trained.metrics[0]
    assert table["return"][:2] == [f"{r['return']:.1f}" for r in (first, last)]
    assert table["cost speed"] == [
        *(f"{r['cost/speed']:.1f}" for r in (first, last)),
        "5.0",
        "held" if last["cost/speed"] <= 5 else "exceeded",
    ]
    assert table["nu speed"][:2] == [f"{r['nu/speed']:.3f}" for r in (first, last)]
    assert f"cupola eval {run}" in out
    # The command and the Python interface do the same.
    assert RunDirectory.open(run).metrics() == trained.metrics


def rows(out: str) -> list[list[str]]:
    """Cells of a printed table."""
    found = [line.strip().strip("│┃") for line in out.splitlines() if line.strip()[:1] in "│┃"]
    return [[cell.strip() for cell in re.split("[│┃]", line)] for line in found]


def test_eval_prints_means_intervals_and_the_share_of_safe_episodes(command, trained):
    status, out, err = command("eval", trained.path, "--episodes", "5", "--deterministic")
    assert (status, err) == (0, "")
    assert "5 episodes, deterministic actions" in out
    table = {cells[0]: cells[1:] for cells in rows(out)}
    assert table[""] == ["mean", "95 % interval", "limit", "safe episodes"]
    for name in ("return", "episode length", "cost speed", "cost speed, undiscounted"):
        mean, interval = table[name][:2]
        low, high = map(float, interval.strip("[]").split(", "))
        assert low <= float(mean) <= high
    assert table["cost speed"][2] == "5.0"
    assert int(table["cost speed"][3].removesuffix(" %")) in (0, 20, 40, 60, 80, 100)
    again = command("eval", trained.path, "--episodes", "5", "--deterministic")
    assert again == (status, out, err)
    newest = trained.path / "checkpoints" / "00000006.safetensors"
    other = command("eval", newest, "--episodes", "5", "--deterministic")[1]
    assert rows(other) == rows(out)
    sampled = command("eval", trained.path, "--episodes", "5")[1]
    assert "5 episodes, sampled actions" in sampled
    assert rows(sampled) != rows(out)
    assert "one episode" in command("eval", trained.path, "--episodes", "1")[1]


def test_two_named_costs_have_their_own_limits_and_prices(command, tmp_path):
    run = tmp_path / "run"
    limits = ("--limit", "effort=0", "--limit", "speed=1e6")
    status, out, err = command(*HOPPER.split(), *limits, *TINY_ARGS, "--dual", "slow", "--out", run)
    assert (status, err) == (0, "")
    records = RunDirectory.open(run).metrics()
    assert json.loads((run / "config.json").read_text())["limits"] == {"speed": 1e6, "effort": 0}
    for record in records:
        assert (record["limit/speed"], record["limit/effort"]) == (1e6, 0)
        assert record["nu/speed"] == 0
        assert record["cost_value_loss/effort"] != record["cost_value_loss/speed"]
    # eta (J - b), step by step: the price of effort is the sum of what was spent.
    spent = [record["cost/effort"] for record in records]
    prices = [record["nu/effort"] for record in records]
    np.testing.assert_allclose(prices, np.minimum(0.1 * np.cumsum(spent), 2), rtol=1e-5)
    table = {cells[0]: cells[1:] for cells in rows(out)}
    assert table["cost speed"][3] == "held"
    assert table["cost effort"][3] == "exceeded"
    assert "effort" in command("eval", run, "--episodes", "2")[1]


def test_a_limit_of_inf_takes_the_default_away(command, tmp_path):
    run = tmp_path / "run"
    limits = ("--limit", "speed=inf", "--limit", "effort=40")
    assert command(*HOPPER.split(), *limits, *TINY_ARGS, "--out", run)[0] == 0
    assert json.loads((run / "config.json").read_text())["limits"] == {"effort": 40}
    assert "limit/speed" not in RunDirectory.open(run).metrics()[-1]
    assert "speed" not in command("eval", run, "--episodes", "2")[1]
    assert command("resume", run)[0] == 0


# --- The policy ---


def test_predict_is_the_mean_of_the_network_on_normalised_observations(trained):
    policy = cupola.load(trained.path)
    arrays = checkpoints.read(trained.path / "checkpoints" / "00000006.safetensors")[1]
    assert (policy.iteration, policy.obs_size, policy.act_size) == (6, 11, 3)
    obs = np.random.default_rng(0).normal(0, 2, (50, 11))
    variance = arrays["moments.squares"] / arrays["moments.total"]
    hidden = np.clip((obs - arrays["moments.mean"]) / np.sqrt(variance + 1e-8), -5, 5)
    for layer in range(3):
        weight, bias = (arrays[f"learner.policy.mean[{layer}][{i}]"] for i in (0, 1))
        hidden = hidden @ weight + bias
        hidden = np.tanh(hidden) if layer < 2 else hidden
    actions = policy.predict(obs)
    assert actions.shape == (50, 3)
    np.testing.assert_allclose(actions, hidden, atol=1e-5)
    np.testing.assert_array_equal(actions, policy.predict(obs, deterministic=True))
    single = policy.predict(obs[0])
    assert single.shape == (3,)
    np.testing.assert_allclose(single, actions[0], atol=1e-6)
    np.testing.assert_array_equal(cupola.load(str(trained.path)).predict(obs), actions)


def test_sampled_actions_are_the_gaussian(trained):
    policy = cupola.load(trained.path)
    obs, count = np.random.default_rng(1).normal(size=11), 20_000
    repeated = np.tile(obs, (count, 1))
    actions = policy.predict(repeated, deterministic=False, rng=np.random.default_rng(2))
    std = np.exp(np.asarray(policy.network.log_std))
    standard = (actions - policy.predict(obs)) / std
    assert np.abs(standard.mean(axis=0)).max() < 4 / count**0.5
    np.testing.assert_allclose(standard.std(axis=0), 1, atol=4 / (2 * count) ** 0.5)
    assert np.abs(np.corrcoef(standard, rowvar=False) - np.eye(3)).max() < 4 / count**0.5
    again = policy.predict(repeated, deterministic=False, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(actions, again)
    assert not np.array_equal(
        policy.predict(obs, deterministic=False), policy.predict(obs, deterministic=False)
    )


@pytest.mark.parametrize("shape", [(10,), (12,), (3, 10), (11, 3), (2, 3, 11), ()])
def test_observations_of_another_size_are_refused(trained, shape):
    with pytest.raises(CupolaError, match=r"takes observations of shape \(11,\) or \(N, 11\), not"):
        cupola.load(trained.path).predict(np.zeros(shape))


def test_load_of_one_checkpoint_is_that_policy(trained):
    policies = [
        cupola.load(trained.path / "checkpoints" / f"{i:08d}.safetensors") for i in (2, 4, 6)
    ]
    assert [policy.iteration for policy in policies] == [2, 4, 6]
    actions = [policy.predict(np.ones(11)) for policy in policies]
    assert not np.array_equal(actions[0], actions[1])
    np.testing.assert_array_equal(actions[2], cupola.load(trained.path).predict(np.ones(11)))
