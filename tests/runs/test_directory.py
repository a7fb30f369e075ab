"""A line is in a file, or the write fails."""

from pathlib import Path

import pytest

from cupola.errors import CupolaError
from cupola.runs.directory import RunDirectory


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
