"""Checkpoints are whole or absent, verified when read, and cannot run code."""

import errno
import os
import pickle
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupola import nets
from cupola.errors import CupolaError
from cupola.runs import checkpoints
from cupola.runs.checkpoints import Checkpoint
from cupola.runs.files import Folder, write_file

ARRAYS = {
    "learner.policy.log_std": np.float32([-0.5, 0.25]),
    "task.seeds": np.array([3, 2**62], np.int64),
    "task.ended": np.array([True, False, True]),
    "estimates.costs": np.zeros((0, 2)),  # before any episode ended
    "moments.total": np.array(7.5),
    "nothing": np.array([np.nan, -0.0, np.inf]),
}


class Tree(NamedTuple):
    policy: nets.Policy
    rest: dict[str, tuple[jax.Array, ...]]


def same(left: checkpoints.Arrays, right: checkpoints.Arrays) -> bool:
    return left.keys() == right.keys() and all(
        (left[k].dtype, left[k].shape, left[k].tobytes())
        == (right[k].dtype, right[k].shape, right[k].tobytes())
        for k in left
    )


def read(path: Path) -> Checkpoint:
    return checkpoints.read(Folder(path.parent), path.name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A good checkpoint of iteration 12."""
    checkpoints.write(Folder(tmp_path), Checkpoint(12, ARRAYS), keep=3)
    return tmp_path / checkpoints.name_of(12)


# --- Trees ---


def test_a_tree_comes_back_from_a_file_bit_for_bit(tmp_path):
    policy = nets.init_policy(jax.random.key(0), 5, 2, (8, 4), -0.5, 0.1)
    tree = Tree(policy, {"b": (jnp.arange(3),), "a": (jnp.zeros(()), jnp.ones((0, 2)))})
    optimiser = optax.scale_by_adam()
    state = optimiser.update(policy, optimiser.init(policy))[1]
    arrays = checkpoints.flatten("tree", tree) | checkpoints.flatten("opt", state)
    checkpoints.write(Folder(tmp_path), Checkpoint(3, arrays), keep=1)
    iteration, back, _ = checkpoints.read(Folder(tmp_path), checkpoints.name_of(3))
    assert iteration == 3
    assert same(back, arrays)
    for prefix, value in (("tree", tree), ("opt", state)):
        empty = jax.tree.map(jnp.zeros_like, value)
        again = checkpoints.unflatten(prefix, back, empty)
        assert jax.tree.structure(again) == jax.tree.structure(value)
        for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(value), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_names_are_paths():
    policy = nets.Policy(mean=((jnp.ones((2, 3)), jnp.zeros(3)),), log_std=jnp.zeros(3))
    names = {"learner.mean[0][0]", "learner.mean[0][1]", "learner.log_std"}
    assert checkpoints.flatten("learner", policy).keys() == names


def test_arrays_of_another_algorithm_or_size_are_refused():
    arrays = checkpoints.flatten("p", {"w": jnp.zeros((2, 3))})
    with pytest.raises(CupolaError, match=r"no array \"p\['v'\]\": it is of another algorithm"):
        checkpoints.unflatten("p", arrays, {"v": jnp.zeros((2, 3))})
    with pytest.raises(CupolaError, match=r"shape \(2, 3\), expected \(3, 2\)"):
        checkpoints.unflatten("p", arrays, {"w": jnp.zeros((3, 2))})


# --- Writing ---


@pytest.mark.parametrize("culprit", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, culprit, code):
    path = tmp_path / "file"
    write_file(path, b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, culprit, fail)
    with pytest.raises(OSError, match=os.strerror(code)):
        write_file(path, b"new and longer")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_a_write_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """fsync of the data, then the rename, then fsync of the folder."""
    path, order = tmp_path / "file", []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        folder = os.path.samestat(os.fstat(descriptor), os.stat(tmp_path))
        order.append(("fsync", "folder" if folder else "data"))
        assert path.exists() == folder
        fsync(descriptor)

    def watched_replace(source: str, target: str, **folders: int) -> None:
        order.append(("replace", Path(target).name))
        replace(source, target, **folders)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    write_file(path, b"data")
    assert order == [("fsync", "data"), ("replace", "file"), ("fsync", "folder")]
    assert path.read_bytes() == b"data"


def test_a_failed_checkpoint_loses_no_earlier_one(tmp_path, monkeypatch):
    for iteration in (1, 2, 3):
        checkpoints.write(Folder(tmp_path), Checkpoint(iteration, ARRAYS), keep=3)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        checkpoints.write(Folder(tmp_path), Checkpoint(4, ARRAYS), keep=3)
    assert checkpoints.iterations(Folder(tmp_path)) == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("keep", [1, 3])
def test_only_the_last_few_are_kept(tmp_path, keep):
    (tmp_path / "notes.safetensors").write_bytes(b"not ours")
    for iteration in (5, 10, 15, 20, 100_000_000):
        checkpoints.write(Folder(tmp_path), Checkpoint(iteration, ARRAYS), keep)
    assert checkpoints.iterations(Folder(tmp_path)) == [5, 10, 15, 20, 100_000_000][-keep:]
    assert (tmp_path / "notes.safetensors").exists()


def test_arrays_that_are_not_contiguous_are_written_as_they_look(tmp_path):
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    arrays = {
        "turned": np.arange(6.0).reshape(2, 3).T,
        "fortran": fortran,
        "every": fortran[:, ::2],
    }
    checkpoints.write(Folder(tmp_path), Checkpoint(1, arrays), keep=1)
    _, back, _ = checkpoints.read(Folder(tmp_path), checkpoints.name_of(1))
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


# --- Reading ---


def test_a_flipped_bit_in_any_byte_is_caught(file):
    """Wherever a bit flips: a sentence, never other numbers and never a traceback."""
    data = file.read_bytes()
    assert same(read(file)[1], ARRAYS)
    for position in range(len(data)):
        for bit in (0, 1, 5):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            file.write_bytes(damaged)
            with pytest.raises(CupolaError):
                read(file)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_a_damaged_stretch_never_gives_other_numbers(tmp_path, data):
    checkpoints.write(Folder(tmp_path), Checkpoint(12, ARRAYS), keep=3)
    path = tmp_path / checkpoints.name_of(12)
    good = path.read_bytes()
    begin = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(begin, len(good)))
    path.write_bytes(good[:begin] + data.draw(st.binary(max_size=40)) + good[end:])
    try:
        iteration, arrays, _ = read(path)
    except CupolaError:
        return
    assert (iteration, same(arrays, ARRAYS)) == (12, True)


def test_every_truncation_is_caught(file):
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(CupolaError, match="not a readable checkpoint"):
            read(file)


class Bomb:
    """Leaves a trace when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("content", ["zeros", "noise", "pickle", "npz", "folder", "missing"])
def test_files_of_something_else_are_refused_and_run_nothing(file, content):
    trace, size = file.parent / "trace", file.stat().st_size
    file.unlink()
    if content == "zeros":
        file.write_bytes(bytes(size))
    elif content == "noise":
        file.write_bytes(np.random.default_rng(0).bytes(size))
    elif content == "pickle":
        file.write_bytes(pickle.dumps(Bomb(trace)))
    elif content == "npz":
        with file.open("wb") as out:
            np.savez(out, bomb=np.array([Bomb(trace)], object))
    elif content == "folder":
        file.mkdir()
    with pytest.raises(CupolaError, match=r"(is not|no) .*00000012|00000012\.safetensors is not a"):
        read(file)
    assert not trace.exists()


def test_a_foreign_safetensors_file_is_refused(file):
    from safetensors.numpy import save_file

    for meta in (None, {"cupola": "3"}, {"cupola": "{}"}, {"cupola": "[]"}, {"other": "x"}):
        save_file(ARRAYS, file, metadata=meta)
        with pytest.raises(CupolaError):
            read(file)


def test_newest_goes_back_past_damaged_files_and_tells(tmp_path):
    for iteration in (3, 6, 9, 12):
        checkpoints.write(
            Folder(tmp_path), Checkpoint(iteration, ARRAYS | {"i": np.array(iteration)}), keep=9
        )
    found, faults = checkpoints.newest(Folder(tmp_path))
    assert (found.iteration, faults) == (12, [])
    (tmp_path / checkpoints.name_of(12)).write_bytes(b"")
    data = bytearray((tmp_path / checkpoints.name_of(9)).read_bytes())
    data[-1] ^= 1
    (tmp_path / checkpoints.name_of(9)).write_bytes(data)
    found, damaged = checkpoints.newest(Folder(tmp_path))
    assert (found.iteration, found.arrays["i"]) == (6, 6)
    assert ["00000012" in damaged[0], "00000009" in damaged[1], len(damaged)] == [True, True, 2]
    for sentence in damaged:
        assert sentence.endswith(".")
        assert "\n" not in sentence
    for i in (3, 6):
        (tmp_path / checkpoints.name_of(i)).write_bytes(b"x")
    assert checkpoints.newest(Folder(tmp_path))[0] is None


def test_newest_of_an_empty_or_missing_folder_is_the_beginning(tmp_path):
    assert checkpoints.newest(Folder(tmp_path)) == (None, [])
    assert checkpoints.newest(Folder(tmp_path, "missing")) == (None, [])
