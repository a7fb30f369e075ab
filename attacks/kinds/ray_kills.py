"""On a Ray cluster of two nodes: kill -9 of a node, of a worker or of the sweep itself."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from random import Random

from attacks.kinds.sweep_kills import ITERATIONS, check_cells, sweep_command, wait_for, whole_sweep
from attacks.places import Place
from attacks.programs import end_with_parent, program, python_path
from attacks.verdicts import Failed, check_manners, require

SHARE, SECONDS, WARM, COUNTS = 12.0, 400.0, False, "kill"
ALONE = True

# In a process of its own, one word a line: Ray starts threads and changes signal handlers.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster

small = {"object_store_memory": 80_000_000}
head = {"num_cpus": 1, "include_dashboard": False, **small}
cluster = Cluster(initialize_head=True, head_node_args=head)
other = cluster.add_node(num_cpus=1, **small)
cluster.wait_for_nodes()
print("cluster at", cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "kill":
        cluster.remove_node(other, allow_graceful=False)
        print("killed", flush=True)
    elif line.strip() == "mend":
        other = cluster.add_node(num_cpus=1, **small)
        cluster.wait_for_nodes()
        print("mended", flush=True)
cluster.shutdown()
"""

PATIENT = {"RAY_raylet_start_wait_time_s": "300", "RAY_agent_register_timeout_ms": "300000"}
"""A busy machine starts slowly."""


class Nodes:
    """Two nodes of one core each, on this machine."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": python_path()} | PATIENT,
            preexec_fn=end_with_parent,
            text=True,
        )
        self.address = self._wait_for("cluster at").split()[-1]

    def say(self, word: str, answer: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._wait_for(answer)

    def _wait_for(self, words: str) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(words):
                return line
        raise Failed(f"the cluster ended before it said {words!r}")


@cache
def nodes() -> Nodes:
    """One cluster for all tries of a process; it ends with the process group."""
    return Nodes()


def attack(random: Random, place: Place) -> None:
    if importlib.util.find_spec("ray") is None:
        raise Failed("Ray is not installed")
    whole, out = whole_sweep(place.library), place.work / "sweep"
    command = sweep_command(place.work, out, "--engine", "ray", "--address", nodes().address)
    sweep = program(command, place.work)
    wait_for(sweep, out, random.randrange(2, ITERATIONS - 10))
    time.sleep(random.uniform(0, 0.1))
    require(sweep.poll() is None, "it ended before the kill")
    what = random.choice(("node", "worker", "sweep"))
    if what == "node":
        nodes().say("kill", "killed")
    elif what == "worker":
        for pid in workers_of(out)[:1]:
            os.kill(pid, signal.SIGKILL)
    else:
        sweep.send(signal.SIGKILL)
    outcome = sweep.wait(180)
    if what == "node":
        nodes().say("mend", "mended")
    if what != "sweep":  # it repeats what was lost by itself
        check_manners(outcome, f"a {what} was killed")
        require(outcome.code == 0, f"a {what} was killed: {outcome.sentence}")
    again = check_manners(program(command, place.work).wait(180), "sweep again")
    require(again.code == 0, f"{what} killed, the sweep does not go on: {again.sentence}")
    check_cells(out, whole)


def workers_of(out: Path) -> list[int]:
    """The processes that train cells of this sweep, on whatever node."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"cupola.sweeps.worker" in words and os.fsencode(out) in words:
            found.append(int(folder.name))
    return sorted(found)
