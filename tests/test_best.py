"""The best policy of a training: by hand, against a search over all lines, and as it is loaded."""

from __future__ import annotations

import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import cupola
from cupola import nets
from cupola.best import WINDOW, Best, Standing
from cupola.core import moments
from cupola.errors import CupolaError
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.runs.files import Folder
from cupola.steadiness import violation

EMPTY = moments.empty(1)


def network(iteration: int) -> nets.Policy:
    """A policy that can be told from others."""
    return nets.Policy(mean=[(jnp.full((1, 1), float(iteration)), jnp.zeros(1))], log_std=None)


def looked_at(lines: np.ndarray, limits: tuple[float, ...]) -> Best:
    """After lines [T, 1 + K] of return and costs."""
    best = Best(limits, network(0), EMPTY)
    for updates, line in enumerate(lines):
        best.consider(updates, network(updates), EMPTY, line)
    return best


def search(lines: np.ndarray, limits: np.ndarray) -> int:
    """The documented rule, over all windows at once."""
    ranks = []
    for k in range(WINDOW, len(lines) + 1):
        value, *costs = lines[k - WINDOW : k].mean(axis=0)
        over = [(c - b) / b if b else c for c, b in zip(costs, limits, strict=True)]
        ranks.append((max([0.0, *over]), -value, k - 1))
    return min(ranks)[2]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limits", [(5.0,), (0.2,), (5.0, 0.0), (4.0, 6.0), ()])
def test_it_is_the_best_of_all_windows(seed, limits):
    lines = np.random.default_rng(seed).gamma(2.0, 2.5, (60, 1 + len(limits)))
    best = looked_at(lines, limits)
    expected = search(lines, np.array(limits))
    assert best.standing.iteration == expected
    window = lines[expected + 1 - WINDOW : expected + 1]
    assert (best.standing.mean_return, *best.standing.costs) == pytest.approx(window.mean(axis=0))
    assert best.save()["best.policy.mean[0][0]"].item() == expected


def test_feasible_comes_first_and_then_the_return():
    def line(value, cost):
        return [[value, cost]] * WINDOW

    # One line of the dangerous policies is enough for a mean cost above 5.
    lines = np.array(line(9, 90) + line(1, 4) + line(2, 4) + line(8, 90) + line(1.5, 0))
    best = looked_at(lines, (5.0,))
    assert best.standing == Standing(3 * WINDOW - 1, 2.0, (4.0,))
    infeasible = np.array(line(9, 8) + line(1, 6) + line(20, 7))
    assert looked_at(infeasible, (5.0,)).standing == Standing(2 * WINDOW - 1, 1.0, (6.0,))


def test_lines_before_the_first_episode_do_not_count():
    lines = np.full((14, 2), np.nan)
    lines[4:] = [3.0, 1.0]
    lines[9:] = [4.0, 1.0]
    best = looked_at(lines, (5.0,))
    assert best.standing == Standing(13, 3.5, (1.0,))
    assert looked_at(lines[:4], (5.0,)).standing is None


def test_more_iterations_count_more_than_a_lucky_one():
    lines = np.array([[8.0, 1.0], [3.0, 9.0], [1.0, 5.0]])
    assert looked_at(lines, (5.0,)).standing == Standing(2, 4.0, (5.0,), judged_by=3)
    lucky = np.array([[99.0, 0.0], *[[1.0, 7.0]] * WINDOW])
    assert looked_at(lucky, (5.0,)).standing == Standing(WINDOW - 1, 10.8, (6.3,))


def test_the_relative_violation_by_hand():
    limits = np.array([10.0, 0.0])
    assert violation(np.array([9.0, 0.0]), limits) == 0
    assert violation(np.array([12.0, 0.1]), limits) == pytest.approx(0.2)
    assert violation(np.array([12.0, 0.4]), limits) == pytest.approx(0.4)
    assert violation(np.zeros(0), np.zeros(0)) == 0


@pytest.mark.parametrize("cut", [3, 10, 11, 25, 40])
def test_a_saved_and_restored_one_goes_on_with_the_same_bits(cut):
    lines = np.random.default_rng(5).gamma(2.0, 2.5, (60, 3))
    whole = looked_at(lines, (5.0, 4.0))
    saved = looked_at(lines[:cut], (5.0, 4.0)).save()
    resumed = Best((5.0, 4.0), network(0), EMPTY)
    resumed.restore(saved)
    for updates in range(cut, 60):
        resumed.consider(updates, network(updates), EMPTY, lines[updates])
    ours, theirs = resumed.save(), whole.save()
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


# --- In a run ---


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> cupola.Run:
    """A probe whose cost begins far too high: the best policies are not the first ones."""
    return cupola.train(
        "ppo_lag",
        "ProbeQuadratic",
        out=tmp_path_factory.mktemp("kept") / "run",
        iterations=30,
        checkpoint_every=1,
        keep_checkpoints=30,
        batch_size=40,
        num_envs=4,
        minibatch_size=20,
        epochs=4,
        hidden=(4,),
        threads=1,
        learning_rate=0.01,
        progress=False,
    )


def test_the_kept_policy_is_that_of_its_iteration(kept):
    """Chosen again from metrics.jsonl, and compared with the checkpoint of that iteration."""
    [name] = kept.config.limits
    lines = np.array([[m["return"], m[f"cost/{name}"]] for m in kept.metrics], float)
    expected = search(lines, np.array([kept.config.limits[name]]))
    assert kept.best.iteration == expected
    best = cupola.load(kept.path, checkpoint="best")
    same = cupola.load(kept.path, checkpoint=expected)
    assert best.iteration == same.iteration == expected
    obs = np.random.default_rng(0).normal(size=(50, best.obs_size))
    np.testing.assert_array_equal(best.predict(obs), same.predict(obs))
    last = cupola.load(kept.path, checkpoint="last")
    assert last.iteration == 30
    assert not np.array_equal(best.predict(obs), last.predict(obs))
    results = [cupola.evaluate(policy, episodes=3) for policy in (best, same)]
    assert results[0] == results[1]


def test_a_checkpoint_that_is_not_kept_is_one_sentence(kept, probe_run):
    with pytest.raises(CupolaError, match="keeps no checkpoint of iteration 3: choose from best"):
        cupola.load(probe_run, checkpoint=3)
    for wrong in ("worst", "-1", "1.5", None, True):
        with pytest.raises(CupolaError, match="checkpoint is best, last or the number"):
            cupola.load(kept.path, checkpoint=wrong)
    early = kept.path / "checkpoints" / checkpoints.name_of(4)
    assert cupola.load(early, checkpoint="best").iteration == 3
    assert cupola.load(early, checkpoint=4).iteration == 4
    with pytest.raises(CupolaError, match="is the checkpoint of iteration 4 already"):
        cupola.load(early, checkpoint=5)


def test_a_checkpoint_of_an_earlier_version_has_no_best_one(kept, tmp_path):
    """Such a run can be resumed: it chooses from the policies to come."""
    arrays = RunDirectory(kept.path).newest_checkpoint("none").arrays
    old = {name: array for name, array in arrays.items() if not name.startswith("best.")}
    best = Best((5.0,), network(0), EMPTY)
    best.restore(old)
    assert best.standing is None
    folder = tmp_path / "checkpoints"
    shutil.copytree(kept.path, tmp_path, dirs_exist_ok=True)
    checkpoints.write(Folder(folder), checkpoints.Checkpoint(30, old), keep=1)
    assert cupola.load(tmp_path).iteration == 30
    with pytest.raises(CupolaError, match="has no best policy: no episode had ended yet, or the"):
        cupola.load(tmp_path, checkpoint="best")
