"""A line is in a file, or the write fails."""

import io
from pathlib import Path

import pytest

from cupola.errors import CupolaError
from cupola.runs.directory import FORMAT, RunDirectory

CONFIG = {
    "algo": "cup",
    "task": "x",
    "limits": {},
    "algorithm": {"batch_size": 1},
    "format": FORMAT,
}


def metrics(iteration: int) -> dict[str, object]:
    line = {"iteration": iteration, "steps": iteration, "length": 1.0, "return": 0.5}
    return line | {f"number {i}": 0.123456 for i in range(4)}


def timings(iteration: int) -> dict[str, object]:
    return {"iteration": iteration, "rollout_seconds": 0.1, "update_seconds": 0.2}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("name", ["_metrics", "_timings"])
def test_a_line_that_does_not_fit_any_more(tmp_path, name):
    with RunDirectory.create(tmp_path / "run", CONFIG) as run:
        run.rewind(0, keep=3)
        journal = getattr(run, name)
        journal.close()
        journal._file = io.FileIO("/dev/full", "wb")
        with pytest.raises(CupolaError, match=r"cannot write to .* \(No space left on device\)"):
            run.log(metrics(1), timings(1))


def test_half_a_line_is_a_failed_write(tmp_path):
    """A write that fills the disk may take a part and report no error: the next one would."""
    resource = pytest.importorskip("resource")
    run = RunDirectory.create(tmp_path / "run", CONFIG)
    run.rewind(0, keep=3)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    taken = 0
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
        for i in range(1, 100):
            run.log(metrics(i), timings(i))
            taken = i
    except CupolaError as error:
        assert str(error).startswith("cannot write to")  # noqa: PT017
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        run.close()
    assert len(run.metrics()) == taken
    assert 20 < taken < 99
