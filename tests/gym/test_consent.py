"""Nothing that a run or an experiment file names is imported before the user agrees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import cupola
from cupola.errors import CupolaError
from cupola.gym.consent import effects_of_task
from cupola.gym.options import GymOptions
from cupola.gym.task import factory
from cupola.sweeps import worker

MARKER = "imported"
EVIL = f"""
from pathlib import Path
Path(__file__).with_name({MARKER!r}).touch()
def make(): raise SystemExit("called")
cost = make
"""
ACTIONS = ("resume", "eval", "diagnose")
PLAIN = "gym:CartPole-v1"


def named(run: Path, task: str, cost: str = "", **options) -> Path:
    """The run as a stranger might have written it."""
    config = json.loads((run / "config.json").read_text())
    config |= {"task": task, "gym": vars(GymOptions(cost=cost)), **options}
    (run / "config.json").write_text(json.dumps(config))
    return run


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """evil.py in the working directory, and the file that it writes when it is imported."""
    (tmp_path / "evil.py").write_text(EVIL)
    yield tmp_path / MARKER
    sys.modules.pop("evil", None)
    sys.path[:] = [folder for folder in sys.path if folder != str(tmp_path)]


FOREIGN = {
    ("env:evil:make", ""): "import 'evil' and call 'make'",
    ("gym:evil:X-v0", ""): "import 'evil'",
    (PLAIN, "evil:cost"): "import 'evil' and call 'cost'",
    ("env:http.server:test", ""): "import 'http.server' and call 'test'",
    ("env:cupola.cores:os.abort", ""): "import 'cupola.cores' and call 'os.abort'",
    ("env:cupola.cli:main", ""): "import 'cupola.cli' and call 'main'",
    ("gym:cupola.x:evil:X-v0", ""): "import 'cupola.x:evil'",
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("names", FOREIGN, ids=" ".join)
def test_foreign_code_needs_a_word(complaint, copy, evil, action, names):
    named(copy, *names)
    assert complaint(action, copy) == (
        f"this run would {FOREIGN[names]}: add --trust (in Python trust=True) if you trust where it"
        " comes from."
    )
    assert not evil.exists()
    assert str(evil.parent) not in sys.path


@pytest.mark.parametrize("action", ACTIONS)
def test_with_the_word_it_is_imported(command, copy, evil, action):
    named(copy, "env:evil:make")
    status, _, err = command(action, copy, "--trust")
    assert status in (1, "called"), err
    assert evil.exists()


def test_in_python_too(copy, evil, monkeypatch):
    monkeypatch.chdir(evil.parent)
    named(copy, "env:evil:make", "evil:cost")
    policy = cupola.load(copy)
    for use in (cupola.resume, cupola.diagnose, lambda path: cupola.evaluate(policy)):
        with pytest.raises(CupolaError, match="'make' and import 'evil' and call 'cost': add --tr"):
            use(copy)
    # What is given in the call is not imported, what is not given still needs consent.
    with pytest.raises(CupolaError, match=r"would import 'evil' and call 'cost': add"):
        cupola.evaluate(policy, env=lambda: gymnasium.make("CartPole-v1"))
    assert not evil.exists()
    with pytest.raises(SystemExit, match="called"):
        cupola.evaluate(policy, trust=True, cost=lambda obs: 0.0)
    assert evil.exists()


def test_reading_a_run_never_imports(command, copy, evil):
    named(copy, "env:evil:make", "evil:cost")
    cupola.load(copy)
    assert command("compare", copy)[0] == 0
    assert command("report", copy)[0] == 0
    child = [sys.executable, "-c", "import cupola; cupola.load('copy')"]
    subprocess.run(child, cwd=copy.parent, check=True)
    assert not evil.exists()


def test_a_policy_to_begin_with_is_not_asked_for_its_task(copy, evil, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named(copy, "env:evil:make", "evil:cost")
    fields = tiny | {"iterations": 1, "start_from": str(copy)}
    assert cupola.train("cup", "HopperSpeed", limits=5.0, out=tmp_path / "new", **fields).finished
    assert not evil.exists()


@pytest.mark.parametrize(
    "task",
    [
        "HopperSpeed",
        PLAIN,
        "gym:CartPole",
        "gym:cupola:cupola/HopperSpeed-v0",
        "gym:gymnasium:CartPole-v1",
        "gym:Nothing-v0",
        "env:gymnasium.envs.classic_control:CartPoleEnv",
        "env:a_lambda",
    ],
)
def test_what_is_gymnasiums_or_cupolas_needs_none(task):
    assert effects_of_task(task) == []


def test_an_id_of_an_installed_package_that_was_not_imported(monkeypatch):
    """Registered by name alone, as a plug-in may do; `json` is imported already."""
    registry = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium, "registry", registry)
    for name, module in (("Far-v0", "far_away.arm"), ("Near-v0", "json.decoder")):
        spec = gymnasium.envs.registration.EnvSpec(name, entry_point=f"{module}:Env")
        registry[name] = spec
    assert effects_of_task("gym:Far-v0") == ["import 'far_away.arm'"]
    assert effects_of_task("gym:Far") == ["import 'far_away.arm'"]
    assert effects_of_task("gym:Near-v0") == []


def test_a_run_that_would_report_elsewhere_needs_a_word(complaint, copy):
    named(copy, "HopperSpeed", sinks=["tensorboard", "wandb"])
    assert complaint("resume", copy).startswith("this run would send its metrics to wandb: add")


EXPERIMENT = """
algorithms = ["ppo_lag"]
tasks = ["ProbeRegulator", "env:evil:make"]
seeds = 1
iterations = 1
[shared]
sinks = ["mlflow"]
"""


def test_an_experiment_file_needs_a_word_and_passes_it_on(command, complaint, evil, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT)
    assert complaint("sweep", file) == (
        f"{file} would import 'evil' and call 'make' and send its metrics to mlflow: add --trust"
        " (in Python trust=True) if you trust where it comes from."
    )
    file.write_text(EXPERIMENT.replace('"mlflow"', "").replace('"ProbeRegulator", ', ""))
    assert "would import 'evil'" in complaint("sweep", file)
    status, _, _ = command("sweep", file, "--trust", "--jobs", "1")
    assert status == 1
    assert evil.exists()


PLANTED = f"from pathlib import Path\nPath(__file__).with_name({MARKER!r}).touch()\n"


def test_worker_processes_do_not_import_from_the_working_directory(tmp_path, monkeypatch):
    """`python -c` and `python -m` would."""
    monkeypatch.chdir(tmp_path)
    for name in ("cupola", "numpy", "random"):
        (tmp_path / f"{name}.py").write_text(PLANTED)
    made = factory(PLAIN, GymOptions(workers=2), cost=lambda obs: 0.0)
    task = made.make(1, ("cost",))
    task.reset(0)
    task.close()
    logs = tmp_path / "no-sweep" / "logs"
    logs.mkdir(parents=True)
    with worker.start(logs.parent, "cell") as process:
        process.wait(60)
    assert "does not hold a sweep" in (logs / "cell.log").read_text()
    assert not (tmp_path / MARKER).exists()
