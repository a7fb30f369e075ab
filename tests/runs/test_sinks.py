"""Sinks get every line that metrics.jsonl gets, and a service that fails costs nothing else.

Weights & Biases and MLflow run offline here, each where its package is installed.
"""

from __future__ import annotations

import json
import math
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

import cupola
from cupola.errors import CupolaError
from cupola.runs import sinks
from cupola.runs.sinks import Service, make_sinks
from cupola.runs.sinks.mlflow import flat

CONFIG = {"algo": "ppo", "limits": {"speed": 5.0}, "algorithm": {"hidden": [8, 8]}}
LINES = [
    ({"iteration": i, "steps": 10 * i, "return": i / 4, "cost/speed": None}, {"iteration": i})
    for i in range(1, 6)
]


def log(sink: Any, path: Path, first: int, last: int, finished: bool) -> None:
    """One start of a training that logs the iterations from ``first`` to ``last``."""
    sink.start(path, CONFIG, first)
    for metrics, timings in LINES[first - 1 : last]:
        sink.log(metrics, timings | {"steps_per_second": 100.0})
    sink.close(finished)


# --- TensorBoard ---


def events(file: Path) -> list[Event]:
    """The events of a TFRecord file, with their checksums verified."""
    data, found = file.read_bytes(), []
    while data:
        [size] = struct.unpack("<Q", data[:8])
        body = data[12 : 12 + size]
        assert struct.unpack("<I", data[8:12]) == (masked_crc32c(data[:8]),)
        assert struct.unpack("<I", data[12 + size : 16 + size]) == (masked_crc32c(body),)
        found.append(Event.FromString(body))
        data = data[16 + size :]
    return found


def test_tensorboard_has_one_event_per_iteration(tmp_path):
    [sink] = make_sinks(["tensorboard"])
    log(sink, tmp_path, 1, 3, finished=False)
    [file] = (tmp_path / "tensorboard").iterdir()
    version, start, *steps = events(file)
    assert version.file_version == "brain.Event:2"
    assert start.step == 10
    assert [event.step for event in steps] == [10, 20, 30]  # environment steps
    for iteration, event in enumerate(steps, 1):
        scalars = {value.tag: value.simple_value for value in event.summary.value}
        assert scalars == {
            "iteration": iteration,
            "return": iteration / 4,
            "steps_per_second": 100.0,
        }


@pytest.mark.parametrize("plant", ["symlink_to", "hardlink_to"])
def test_events_go_to_a_new_file(tmp_path, monkeypatch, plant):
    """Whoever knows the time knows its name."""
    victim, folder = tmp_path / "victim", tmp_path / "tensorboard"
    victim.write_text("precious")
    folder.mkdir()
    monkeypatch.setattr("time.time_ns", lambda: 10**18)
    getattr(folder / f"events.out.tfevents.{10**12}", plant)(victim)
    [sink] = make_sinks(["tensorboard"])
    log(sink, tmp_path, 1, 3, True)
    assert victim.read_text() == "precious"
    assert len(events(folder / f"events.out.tfevents.{10**12 + 1}")) == 5


def test_tensorboard_forgets_what_a_resumed_run_says_again(tmp_path):
    """Its own rule: events from the step of a start on, in earlier files, are left out."""
    for first, last in ((1, 4), (3, 5)):
        [sink] = make_sinks(["tensorboard"])
        log(sink, tmp_path, first, last, finished=False)
        time.sleep(0.01)  # files are named by the time
    [sink] = make_sinks(["tensorboard"])  # stopped before its first iteration: nothing is forgotten
    log(sink, tmp_path, 5, 4, finished=False)
    kept: list[int] = []
    for file in sorted((tmp_path / "tensorboard").iterdir()):
        for event in events(file):
            if event.HasField("session_log"):
                kept = [step for step in kept if step < event.step]
            elif event.HasField("summary"):
                kept.append(event.step)
    assert kept == [10, 20, 30, 40, 50]


def test_tensorboard_has_one_group_for_each_cost(tmp_path):
    line = {"iteration": 1, "steps": 40, "cost/speed": 1.0, "limit/speed": 2.0, "nu/speed": 3.0}
    line |= {"cost_change_measured/speed": None, "eval/return": 4.0, "kl": 5.0}
    [sink] = make_sinks(["tensorboard"])
    sink.start(tmp_path, CONFIG, 1)
    sink.log(line, {"iteration": 1, "rollout_seconds": 6.0})
    sink.close(finished=True)
    [file] = (tmp_path / "tensorboard").iterdir()
    scalars = {value.tag: value.simple_value for value in events(file)[-1].summary.value}
    assert scalars == {
        **{"iteration": 1, "speed/cost": 1, "speed/limit": 2, "speed/nu": 3},
        **{"eval/return": 4, "kl": 5, "rollout_seconds": 6},
    }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_tensorboard_on_a_full_disk_ends_the_training(tmp_path, tiny, monkeypatch):
    """It shares the disk with the checkpoints: going on would lose more."""
    monkeypatch.setattr("cupola.runs.sinks.tensorboard.append", full)
    with pytest.raises(CupolaError, match=r"cannot write to .* \(No space left on device\)"):
        cupola.train("cup", "HopperSpeed", limits=5.0, out=tmp_path / "run", **tiny)


def full(file: Any, data: bytes) -> None:
    with Path("/dev/full").open("wb", buffering=0) as disk:
        disk.write(data)


# --- Which sinks ---


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("tensorbord",), "unknown sink 'tensorbord': did you mean 'tensorboard'"),
        ("wandb", "sinks must be a list of names"),
        (("tensorboard", "tensorboard"), "every sink can be named only once"),
    ],
)
def test_what_is_no_sink_is_refused(tmp_path, names, expected):
    with pytest.raises(CupolaError, match=expected):
        cupola.train("ppo", "TabularGrid", out=tmp_path / "run", sinks=names)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_one_sentence_before_anything_is_written(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CupolaError, match=rf"pip install 'cupola\[{name}\]', or leave {name} out"):
        cupola.train("ppo", "TabularGrid", out=tmp_path / "run", sinks=[name])
    assert list(tmp_path.iterdir()) == []


# --- Services that fail ---


class Failing:
    """Notes its calls; fails where it is told to."""

    def __init__(self, **failures: int) -> None:
        self.calls: list[str] = []
        self._failures = failures

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.calls.count(name) == self._failures.get(name):
            raise ConnectionError("the server\nis away.")

    def start(self, path: Path, config: dict[str, Any], first_iteration: int) -> None:
        self._call("start")

    def log(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None:
        self._call("log")

    def close(self, finished: bool) -> None:
        self._call("close")


def test_a_service_that_does_not_start_is_an_error(tmp_path):
    service = Service("wandb", Failing(start=1))
    expected = (
        rf"^the sink wandb cannot start \(ConnectionError: the server is away\):"
        rf" put that right and write 'cupola resume {tmp_path} --trust', or first take 'wandb' out"
        rf" of the sinks in {tmp_path / 'config.json'}\.$"
    )
    with pytest.raises(CupolaError, match=expected):
        service.start(tmp_path, CONFIG, 1)
    service.close(finished=False)


def test_a_service_that_fails_later_is_left_out_with_one_warning(tmp_path, tiny, monkeypatch):
    """The training is the one without it."""
    failing = Failing(log=3)
    fake = SimpleNamespace(make=lambda: failing)
    monkeypatch.setitem(sys.modules, "cupola.runs.sinks.wandb", fake)
    quick = {"out": tmp_path / "run", "limits": 5.0, **tiny}
    with pytest.warns(UserWarning, match="failed in iteration 3") as warned:
        run = cupola.train("cup", "HopperSpeed", sinks=("tensorboard", "wandb"), **quick)
    assert [str(one.message) for one in warned] == [
        "the sink wandb failed in iteration 3 (ConnectionError: the server is away) and is left out"
        f" from now on; {run.path / 'metrics.jsonl'} has all metrics."
    ]
    assert failing.calls == ["start", "log", "log", "log"]
    assert len(run.metrics) == tiny["iterations"]
    without = cupola.train("cup", "HopperSpeed", sinks=(), **quick | {"out": tmp_path / "without"})
    assert run.metrics == without.metrics
    assert not (without.path / "tensorboard").exists()


def test_a_service_that_fails_to_close_is_a_warning(tmp_path):
    service = Service("mlflow", Failing(close=1))
    service.start(tmp_path, CONFIG, 1)
    with pytest.warns(UserWarning, match=r"the sink mlflow failed at the end \(ConnectionError"):
        service.close(finished=True)


# --- Weights & Biases, offline ---


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The package without a network, an account or settings of the user's."""
    package = pytest.importorskip("wandb")
    for name in ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))
    return package


BLOCK = 2**15


def wandb_records(folder: Path) -> list[Any]:
    """What an offline run wrote, as Weights & Biases will send it.

    The file is a LevelDB log behind 7 bytes: parts with a checksum, a size and a type (1 is whole,
    2 to 4 are begin, middle and end), none of which crosses the bound of a block.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    [file] = folder.glob("run-*.wandb")
    data, at, found, body = file.read_bytes(), 7, [], b""
    while at < len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        body += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            found.append(Record.FromString(body))
            body = b""
    return found


def wandb_history(records: list[Any]) -> list[dict[str, Any]]:
    """The logged lines, without the fields that Weights & Biases adds."""
    rows = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            rows.append({k: v for k, v in items.items() if not k.startswith("_")})
    return rows


@pytest.mark.filterwarnings("ignore")
def test_wandb_gets_every_line_and_a_resumed_run_is_the_same_run(wandb, tmp_path):
    path = tmp_path / "some-run"
    path.mkdir()
    for first, last, finished in ((1, 3, False), (3, 5, True)):
        [sink] = make_sinks(["wandb"])
        log(sink, path, first, last, finished)
    name = json.loads((path / "wandb.json").read_text())
    assert name["project"] == "cupola"
    folders = sorted(folder for folder in (path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    exits = []
    for folder, (first, last) in zip(folders, ((1, 3), (3, 5)), strict=True):
        records = wandb_records(folder)
        [run] = [r.run for r in records if r.WhichOneof("record_type") == "run"][:1]
        assert (run.run_id, run.project, run.display_name) == (name["id"], "cupola", "some-run")
        config = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert {key: config[key] for key in CONFIG} == CONFIG
        assert wandb_history(records) == [
            {"iteration": i, "steps": 10 * i, "return": i / 4, "steps_per_second": 100.0}
            for i in range(first, last + 1)
        ]
        axes = [r.metric for r in records if r.WhichOneof("record_type") == "metric"]
        assert any(axis.glob_name == "*" and axis.step_metric == "iteration" for axis in axes)
        exits += [r.exit.exit_code for r in records if r.WhichOneof("record_type") == "exit"]
    assert exits == [1, 0]
    assert wandb.run is None  # the user's own is left alone


FORGED = {
    "wandb.json": json.dumps({"id": "../../elsewhere", "project": "cupola"}),
    "wandb/settings": "[default]\nbase_url = http://192.0.2.1\n",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_run_of_wandb_does_not_start(tmp_path, monkeypatch, name):
    """The first would lead out of the directory, the second send the user's key elsewhere."""
    begun = []
    fake = SimpleNamespace(init=lambda **given: begun.append(given))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    (tmp_path / "wandb").mkdir()
    (tmp_path / name).write_text(FORGED[name])
    [sink] = make_sinks(["wandb"])
    with pytest.raises(CupolaError, match="the sink wandb cannot start"):
        sink.start(tmp_path, {}, 1)
    assert begun == []


def test_wandb_gets_what_is_declared_and_nothing_else(tmp_path, monkeypatch):
    begun = []
    axes = SimpleNamespace(define_metric=lambda *_, **__: None)
    fake = SimpleNamespace(init=lambda **given: begun.append(given) or axes, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    known = {"id": "ab12", "project": "mine", "mode": "online", "entity": "evil", "dir": "/"}
    (tmp_path / "wandb.json").write_text(json.dumps(known))
    [sink] = make_sinks(["wandb"])
    sink.start(tmp_path, {"a": 1}, 1)
    [given] = begun
    expected = {"id": "ab12", "project": "mine", "name": tmp_path.name, "dir": str(tmp_path)}
    expected |= {"config": {"a": 1}, "resume": "allow", "reinit": "create_new"}
    assert given == expected | {"settings": {"console": "off"}}


# --- MLflow, with a database in a file ---


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_line_and_a_resumed_run_is_the_same_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    path = tmp_path / "some-run"
    path.mkdir()
    client, status = mlflow.MlflowClient(), []
    for first, last, finished in ((1, 3, False), (3, 5, True)):
        [sink] = make_sinks(["mlflow"])
        log(sink, path, first, last, finished)
        run = client.get_run(json.loads((path / "mlflow.json").read_text())["run_id"])
        status.append(run.info.status)
    assert status == ["KILLED", "FINISHED"]
    assert run.info.run_name == "some-run"
    assert client.get_experiment(run.info.experiment_id).name == "cupola"
    assert len(client.search_runs([run.info.experiment_id])) == 1
    assert run.data.params == {
        "algo": "ppo",
        "limits.speed": "5.0",
        "algorithm.hidden": "[8, 8]",
    }
    assert set(run.data.metrics) == {"steps", "return", "steps_per_second"}
    history = client.get_metric_history(run.info.run_id, "return")
    # Iteration 3 was logged twice: it comes again, the same.
    assert {(one.step, one.value) for one in history} == {(i, i / 4) for i in range(1, 6)}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    [elsewhere] = make_sinks(["mlflow"])
    with pytest.raises(CupolaError, match=r"the sink mlflow cannot start \(.*not found"):
        elsewhere.start(path, CONFIG, 6)


def test_nested_fields_have_dots():
    nested = {"a": 1, "b": {"c": [2], "d": {"e": math.inf}}}
    assert flat(nested) == {"a": 1, "b.c": [2], "b.d.e": math.inf}


def test_the_option_lists_all_sinks():
    folder = Path(sinks.__file__).parent
    assert {file.stem for file in folder.glob("*.py")} - {"__init__"} == set(sinks.NAMES)
