"""Files that a user names: what is in the way is not destroyed; what will fail is known at once."""

import os

import pytest

WRITERS = {
    "eval RUN --out FILE": ".json",
    "eval RUN --force --video FILE": ".gif",
    "diagnose RUN --out FILE": ".json",
    "diagnose RUN --figure FILE": ".png",
    "export RUN FILE --force": ".npz",
    "render ProbeQuadratic --force --out FILE": ".png",
    "bench ProbeQuadratic --out FILE": ".json",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_device_a_pipe_or_a_link_is_not_replaced(complaint, probe_run, tmp_path, writer):
    """As root, `--out /dev/null` made a file of it, for all programs of the machine."""
    pipe, link, victim = (tmp_path / f"{x}{WRITERS[writer]}" for x in ("pipe", "link", "victim"))
    os.mkfifo(pipe)
    victim.write_text("mine")
    link.symlink_to(victim)
    for file, says in ((pipe, "is no file but a device or a pipe"), (link, "is a link")):
        line = [{"RUN": probe_run, "FILE": file}.get(word, word) for word in writer.split()]
        assert says in complaint(*line)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("writer", WRITERS)
def test_what_nothing_can_be_written_to_is_known_at_once(complaint, probe_run, tmp_path, writer):
    """A name that is too long was a traceback of `eval` and `diagnose`; a folder came last."""
    (tmp_path / f"folder{WRITERS[writer]}").mkdir()
    for name, says in (("folder", "is a directory"), (f"{'x' * 5000}/x", "too long")):
        file = f"{name}{WRITERS[writer]}"
        line = [{"RUN": probe_run, "FILE": file}.get(word, word) for word in writer.split()]
        assert says in complaint(*line)
