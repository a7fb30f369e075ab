"""CMDPs: what is refused, and what the generators make."""

import numpy as np
import pytest

from cupola.errors import CupolaError
from cupola.theory import chain, check_policy, grid_world, make_cmdp, solve
from cupola.theory.cmdp import neighbours, random_cmdps, random_policies

MOVES = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, 0.75]]])


def given(**changes):
    arguments = {
        "transitions": MOVES,
        "reward": np.ones((2, 2)),
        "costs": np.ones((1, 2, 2)),
        "limits": [1.0],
        "start": np.array([1.0, 0.0]),
        "gamma": 0.9,
    }
    return arguments | changes


def spoiled(array, at, value):
    copy = np.array(array, float)
    copy[at] = value
    return copy


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"transitions": spoiled(MOVES, (0, 1, 0), 0.9)}, r"transitions\[0, 1\] sums to 0.9"),
        ({"transitions": spoiled(MOVES, (1, 0, 0), -0.5)}, r"transitions\[1, 0, 0\] is -0.5"),
        ({"transitions": MOVES[0]}, "shape"),
        ({"transitions": spoiled(MOVES, (0, 0, 0), np.nan)}, "transitions must be finite"),
        ({"transitions": "a"}, "array of numbers"),
        ({"gamma": 1.0}, r"gamma must lie in \[0, 1\), not 1"),
        ({"gamma": -0.1}, "gamma must lie"),
        ({"start": [0.5, 0.4]}, "start sums to 0.9"),
        ({"start": [1.0]}, "start sums|start must have"),
        ({"start": [1.5, -0.5]}, r"start\[1\] is -0.5"),
        ({"reward": np.ones((3, 2))}, "reward must have the shape"),
        ({"costs": np.ones((2, 2, 2))}, "costs must have the shape"),
        ({"limits": 1.0}, "limits must be a list"),
    ],
)
def test_bad_input_is_one_sentence(changes, sentence):
    with pytest.raises(CupolaError, match=sentence) as error:
        make_cmdp(**given(**changes))
    assert "\n" not in str(error.value)


def test_policies_are_checked():
    cmdp = make_cmdp(**given())
    assert check_policy(cmdp, [[0.5, 0.5], [1, 0]]).shape == (2, 2)
    for policy, sentence in (
        ([[0.5, 0.6], [1, 0]], "sums to 1.1"),
        ([[1.0, 0.0]], "has the shape"),
    ):
        with pytest.raises(CupolaError, match=sentence):
            check_policy(cmdp, policy)


def test_signals_of_state_and_action_are_spread_over_next_states():
    cmdp = make_cmdp(**given(reward=[[1, 2], [3, 4]]))
    assert cmdp.reward.shape == (2, 2, 2)
    np.testing.assert_array_equal(cmdp.reward[1, 0], [3, 3])


def test_random_cmdps_are_cmdps_dense_or_sparse():
    rng = np.random.default_rng(0)
    for sparse in (False, True):
        many = random_cmdps(rng, 20, 6, 3, costs=2, sparse=sparse)
        make_cmdp(*many)
        support = (many.transitions > 0).sum(axis=-1)
        assert (support <= 2).all() if sparse else (support == 6).all()
        assert ((many.gamma >= 0.3) & (many.gamma <= 0.99)).all()
    old = random_policies(rng, 20, 6, 3)
    near = neighbours(rng, old, np.full(20, 1e-3))
    assert 0 < np.abs(near - old).max() < 2e-3


def test_the_chain_walks_and_the_grid_slips():
    walk = chain(4, slip=0.2, gamma=0.5)
    np.testing.assert_allclose(walk.transitions[1, 1], [0.2, 0, 0.8, 0])
    np.testing.assert_allclose(walk.transitions[0, 0], [0.8, 0.2, 0, 0])
    grid = grid_world(("SH", ".G"), slip=0.2, gamma=0.5, step_reward=-1, goal_reward=7)
    np.testing.assert_allclose(grid.transitions[0, 1], [0.1, 0.8, 0.1, 0])  # right, from S
    np.testing.assert_array_equal(grid.transitions[3, :, 3], 1.0)  # the goal is not left
    assert grid.reward[1, 2, 3] == 6
    assert grid.reward[3].any() == 0
    assert (grid.costs[0, 0, :, 1] == 1).all()
    # Around the hazard: -1, then -1 + 7 half as much, without slips.
    paid = {"step_reward": -1, "goal_reward": 7}
    safe = solve(grid_world(("SH", ".G"), slip=0, gamma=0.5, limit=0.0, **paid))
    assert safe.value == pytest.approx(-1 + 0.5 * 6)


@pytest.mark.parametrize("rows", [(), ("S.", "G"), ("SX", ".G"), ("..", ".G"), ("S.", "..")])
def test_bad_grids_are_refused(rows):
    with pytest.raises(CupolaError, match="grid world"):
        grid_world(rows)
