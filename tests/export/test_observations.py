"""`predict` takes observations as environments give them, alone and in batches."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space, create_empty_array
from gymnasium.vector.utils import concatenate as put_together

from cupola.errors import CupolaError
from cupola.gym import spaces
from cupola.policy import parts_of
from cupola.runs import checkpoints


@pytest.fixture
def arm(policy_of):
    return policy_of("arm")


def test_dicts_alone_and_in_batches_are_their_flat_vectors(arm, arm_space):
    space = arm_space
    space.seed(0)
    samples = [space.sample() for _ in range(6)]
    flat = np.stack([gymnasium.spaces.flatten(space, sample) for sample in samples])
    batch = put_together(space, samples, create_empty_array(space, 6))
    assert batch in batch_space(space, 6)
    expected = arm.predict(flat)
    assert expected.shape == (6, 2, 2)
    np.testing.assert_array_equal(arm.predict(batch), expected)
    for sample, action in zip(samples, expected, strict=True):
        found = arm.predict(sample)
        assert found.shape == (2, 2)
        np.testing.assert_allclose(found, action, rtol=1e-5)


def test_choices_alone_and_in_batches(policy_of):
    menu = policy_of("menu")
    expected = menu.predict(np.eye(4))
    assert expected.shape == (4,)
    # A batch of four choices looks like one flat vector: whole numbers are choices.
    np.testing.assert_array_equal(menu.predict(np.arange(2, 6)), expected)
    assert [menu.predict(state) for state in range(2, 6)] == expected.tolist()
    with pytest.raises(CupolaError, match="must lie between 2 and 5"):
        menu.predict(6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"place": np.zeros(3)}, r"\['place'\] \(2,\) has shape \(3,\)"),
        ({"place": np.zeros((5, 2))}, "some parts have a leading axis and some have not"),
        ({"mode": 0.5}, r"\['mode'\] \(\) must be whole numbers, not float64"),
        ({"parts": (np.zeros((2, 3)),)}, r"there is no \['parts'\]\[1\] \(2,\)"),
        ({"dials": np.array([0, 4])}, r"\['dials'\] \(2,\) must lie between 0 and 3"),
    ],
)
def test_what_does_not_fit_is_said_with_the_expected_shapes(arm, arm_space, change, says):
    obs = arm_space.sample() | change
    with pytest.raises(CupolaError, match=says) as refused:
        arm.predict(obs)
    assert "takes observations of shape" in str(refused.value)
    assert "['parts'][0] (2, 3)" in str(refused.value)
    assert "(19,) or (N, 19)" in str(refused.value)


def test_vectors_and_dicts_that_no_part_fits(arm, policy_of):
    with pytest.raises(CupolaError, match=r"\(378,\) or \(N, 378\): a dict is no array of numbers"):
        policy_of("robot").predict({"place": np.zeros(378)})
    with pytest.raises(CupolaError, match=r"\(19,\) or \(N, 19\): it has shape \(18,\)"):
        arm.predict(np.zeros(18))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (b"{", "is damaged"),
        (b'{"path": []}', "is damaged"),
        (b'[{"path": [[]], "shape": [3], "sizes": [], "first": []}]', "is damaged"),
        (b'[{"path": [], "shape": [-1], "sizes": [], "first": []}]', "is damaged"),
        (b'[{"path": [], "shape": [4], "sizes": [], "first": []}]', "not of the size"),
        (b'[{"path": [], "shape": [], "sizes": [3], "first": []}]', "not of the size"),
        (b"[" * 100_000, "is damaged"),
    ],
)
def test_what_a_checkpoint_says_of_observations_is_checked(record, says):
    arrays = {"observation": np.frombuffer(record, np.uint8)}
    with pytest.raises(CupolaError, match=says):
        parts_of(arrays, 3)


def test_parts_come_back_as_they_were_written(arm_space):
    parts = spaces.parts_of(arm_space)
    written = checkpoints.json_array([part._asdict() for part in parts])
    assert parts_of({"observation": written}, 19) == parts
    assert [part.size for part in parts] == [2, 3, 6, 2, 6]
