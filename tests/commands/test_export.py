"""`cupola export`."""

import numpy as np
import pytest

import cupola


def test_export_writes_the_policy_once(command, trained, tmp_path):
    status, out, err = command("export", trained.path, "policy.npz")
    assert (status, err) == (0, "")
    assert out.startswith("policy.npz: iteration 6, 11 numbers in, 3 numbers out, ")
    with np.load(tmp_path / "policy.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(
            arrays["weight0"], cupola.load(trained.path).network.mean[0][0]
        )
    older = trained.path / "checkpoints" / "00000002.safetensors"
    before = (tmp_path / "policy.npz").read_bytes()
    status, out, err = command("export", older, "policy.npz")
    assert (status, out) == (1, "")
    assert err == "cupola: policy.npz exists: name another file, or add --force to replace it.\n"
    assert (tmp_path / "policy.npz").read_bytes() == before
    assert command("export", older, "policy.npz", "--force")[0] == 0
    assert (tmp_path / "policy.npz").read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["policy.npz"]


def test_the_policy_of_a_checkpoint(command, complaint, trained):
    best = cupola.load(trained.path, checkpoint="best")
    for which, iteration in (("best", best.iteration), ("last", 6), ("2", 2)):
        status, out, _ = command("export", trained.path, f"{which}.npz", "--checkpoint", which)
        assert (status, f"iteration {iteration}," in out) == (0, True)
    with np.load("best.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["weight0"], best.network.mean[0][0])
    assert "keeps no checkpoint of iteration 7" in complaint(
        "export", trained.path, "seven.npz", "--checkpoint", "7"
    )


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("policy.pt", r"written as .onnx or .npz: not policy.pt"),
        ("nowhere/policy.npz", r"there is no directory nowhere"),
    ],
)
def test_what_cannot_be_written_is_refused(complaint, trained, file, says):
    assert says in complaint("export", trained.path, file)


def test_a_directory_and_a_link_in_the_way(complaint, trained, tmp_path):
    (tmp_path / "folder.npz").mkdir()
    assert "is a directory" in complaint("export", trained.path, "folder.npz", "--force")
    (tmp_path / "link.npz").symlink_to(tmp_path / "elsewhere")
    assert "link.npz exists" in complaint("export", trained.path, "link.npz")
