"""The Ray engine, also on a real cluster of two nodes, one of which dies."""

import importlib.util
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import cupola
from cupola.cli import main
from cupola.sweeps import grid
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.loop import STOPPED
from cupola.sweeps.ray_engine import (
    ON_THE_NETWORK,
    STOP,
    RayPool,
    refuse_open,
    refuse_unreachable,
    run_cell,
)

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed"
)

# In a process of its own: Ray starts threads and changes signal handlers.
CLUSTER = """
from ray.cluster_utils import Cluster

small = {"object_store_memory": 80_000_000, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **small})
other = cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
cluster.wait_for_nodes()
print("cluster at", cluster.address, flush=True)
input()
cluster.remove_node(other, allow_graceful=False)
print("killed", flush=True)
input()
cluster.shutdown()
"""

# The shapes of tests/conftest.py: they are compiled once.
FILE = """
iterations = 60
algorithms = ["cup"]
tasks = ["ProbeRegulator"]
seeds = 2
evaluation_episodes = 2
[shared]
batch_size = 200
num_envs = 4
minibatch_size = 50
epochs = 2
hidden = [8, 8]
multiplier_lr = 0.1
checkpoint_every = 2
"""


class Nodes:
    """Two nodes of one core each."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._wait_for("cluster at").split()[-1]

    def kill_one(self) -> None:
        self._say()
        self._wait_for("killed")

    def close(self) -> None:
        self._say()
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _say(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _wait_for(self, words: str) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(words):
                return line
        raise AssertionError(f"the cluster ended before it said {words!r}")


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    found = Nodes()
    yield found
    found.close()


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 240
    while not happened():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


@needs_ray
@pytest.mark.slow
def test_a_node_dies_and_the_results_are_those_of_this_machine(
    nodes: Nodes, tmp_path: Path
) -> None:
    file, out = tmp_path / "toy.toml", tmp_path / "sweep"
    file.write_text(FILE)
    command = [sys.executable, "-m", "cupola", "sweep", str(file), "--out", str(out)]
    command += ["--engine", "ray", "--address", nodes.address]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(sweep.communicate()))
    reader.start()
    cells = grid.read(file).cells
    runs = [out / cell.name for cell in cells]

    def iterations(run: Path) -> int:
        metrics = run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    until(lambda: sweep.poll() is not None or min(map(iterations, runs)) >= 3)
    assert sweep.poll() is None, said
    nodes.kill_one()
    assert min(map(iterations, runs)) < 60, "the node died too late"
    reader.join()
    assert sweep.returncode == 0, said
    assert "2 of 2 cells finished" in said[0]
    for cell in cells:
        alone = cupola.train(cell.algo, cell.task, out=tmp_path / cell.name, **cell.arguments())
        for name in ("config.json", "metrics.jsonl", "checkpoints/00000060.safetensors"):
            assert (out / cell.name / name).read_bytes() == (alone.path / name).read_bytes()


def test_without_ray_or_without_a_cluster(tmp_path: Path, monkeypatch, capsys) -> None:
    file = tmp_path / "toy.toml"
    file.write_text(FILE)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv(ON_THE_NETWORK, "0")
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(file), "--out", str(tmp_path / "sweep"), "--engine", "ray"])
    assert stop.value.code == 1
    assert "pip install 'cupola[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_a_cluster_of_our_own_that_does_not_start_is_one_sentence(tmp_path, monkeypatch) -> None:
    """Ray raises a plain Exception where a node takes too long."""

    def init(**options: object) -> None:
        assert options["address"] == "local"
        assert options["include_dashboard"] is False
        raise Exception("The current node timed out\nduring startup.")

    fake = SimpleNamespace(init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv(ON_THE_NETWORK, "0")
    (tmp_path / "toy.toml").write_text(FILE)
    sweep = SweepDirectory(tmp_path, grid.read(tmp_path / "toy.toml"))
    expected = (
        r"^Ray does not start on this machine \(The current node timed out during startup\): try"
        r" again, or use --engine local\.$"
    )
    with pytest.raises(cupola.CupolaError, match=expected):
        RayPool(sweep)


# In a process of its own: Ray starts threads and changes signal handlers.
LISTENING = """
import sys
from pathlib import Path
from cupola.sweeps import grid
from cupola.sweeps.directory import SweepDirectory
from cupola.sweeps.ray_engine import RayPool

file = Path(sys.argv[1])
pool = RayPool(SweepDirectory(file.parent, grid.read(file)), jobs=1)
import ray, psutil  # which comes with Ray
assert ray.get(ray.remote(lambda: 3).remote()) == 3
me = psutil.Process()
for process in (me, *me.children(recursive=True)):
    for connection in process.net_connections():
        if connection.status == psutil.CONN_LISTEN:
            print(connection.laddr.ip)
pool.close()
"""


@needs_ray
def test_a_cluster_of_our_own_listens_on_the_loopback_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(ON_THE_NETWORK, raising=False)
    (tmp_path / "toy.toml").write_text(FILE)
    child = subprocess.run(
        [sys.executable, "-c", LISTENING, str(tmp_path / "toy.toml")],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {ip.removeprefix("::ffff:") for ip in child.stdout.split()}
    assert found == {"127.0.0.1"}


def test_a_cluster_on_the_network_is_refused(monkeypatch) -> None:
    ray = SimpleNamespace(nodes=lambda: [{"NodeManagerAddress": "192.0.2.7"}], shutdown=list)
    monkeypatch.setenv(ON_THE_NETWORK, "0")
    with pytest.raises(cupola.CupolaError, match=r"would listen on the network \(192.0.2.7\)"):
        refuse_open(ray, None)
    refuse_open(ray, "192.0.2.7:6379")
    monkeypatch.setenv(ON_THE_NETWORK, "1")
    refuse_open(ray, None)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "127.0.0.1:99999"])
def test_a_cluster_that_does_not_answer(address: str) -> None:
    with pytest.raises(cupola.CupolaError, match=f"no Ray cluster answers at '{address}'"):
        refuse_unreachable(address)
    refuse_unreachable(None)
    refuse_unreachable("auto")


def test_storage_that_is_not_shared(tmp_path: Path) -> None:
    with pytest.raises(cupola.CupolaError, match="storage that all machines share"):
        run_cell(str(tmp_path / "nowhere"), "cell")


def test_a_task_is_the_workers_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text(FILE.replace("ProbeRegulator", "PointGoal9").replace("seeds = 2", "seeds = 1"))
    sweep = SweepDirectory(tmp_path / "sweep", grid.read(file))
    sweep.write()
    assert run_cell(str(sweep.path), "cup-PointGoal9-0") == 1
    assert "unknown task" in sweep.status("cup-PointGoal9-0").reason
    (sweep.path / STOP).touch()  # whoever starts now ends at once
    assert run_cell(str(sweep.path), "cup-PointGoal9-0") in (-signal.SIGTERM, STOPPED)
