"""Evaluations during a training: the numbers of `cupola.evaluate`, and a training as without."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

import cupola
from cupola.board.library import Library
from cupola.board.watched import identify
from cupola.config import problem_of
from cupola.errors import CupolaError
from cupola.policy import load
from cupola.reports import panels
from cupola.reports.results import load as load_results
from cupola.rollout import whole_episodes
from cupola.runs import checkpoints
from cupola.runs.files import Folder
from cupola.seeds import environment_seed
from cupola.task_source import task_of

PROBE = {
    **{"iterations": 6, "checkpoint_every": 2, "batch_size": 40, "num_envs": 4},
    **{"minibatch_size": 20, "epochs": 1, "hidden": (4,), "threads": 1, "progress": False},
}
KINDS = ("eval_sampled", "eval_deterministic")


def train(path, task="ProbeQuadratic", **fields) -> cupola.Run:
    return cupola.train("ppo_lag", task, out=path, **PROBE | fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[cupola.Run, cupola.Run]:
    """Without and with evaluations."""
    path = tmp_path_factory.mktemp("monitor")
    return train(path / "a"), train(path / "b", evaluate_every=2, evaluate_episodes=5)


def test_the_training_does_not_notice(runs):
    plain, measured = runs
    without = [{k: v for k, v in m.items() if not k.startswith(KINDS)} for m in measured.metrics]
    assert without == plain.metrics
    assert any(k.startswith(KINDS) for k in measured.metrics[0])
    ours, theirs = (
        checkpoints.read(Folder(run.path, "checkpoints"), checkpoints.name_of(6)).arrays
        for run in runs
    )
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def test_a_line_holds_null_where_nothing_was_evaluated(runs):
    for record in runs[1].metrics:
        known = [value is not None for key, value in record.items() if key.startswith(KINDS)]
        assert len(known) == 2 * 3
        assert set(known) == {record["iteration"] % 2 == 0}


@pytest.mark.parametrize("iteration", [2, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_of_the_checkpoints_policy(runs, iteration, kind):
    """A second computation, from the loaded policy."""
    run = runs[1]
    policy = load(run.path, iteration)
    factory = task_of(run.config, threads=1)
    problem = problem_of(factory.spec, run.config.limits)
    rng = np.random.default_rng([run.config.options.seed, iteration])
    played = whole_episodes(
        factory,
        problem.costs,
        5,
        lambda obs: policy.raw_actions(obs, deterministic="determ" in kind, rng=rng),
        environment_seed(0, "monitor") + 5 * iteration,
        run.config.algorithm.gamma,
    )
    record = run.metrics[iteration - 1]
    assert record[f"{kind}/return"] == played.returns.mean()
    assert record[f"{kind}/length"] == played.lengths.mean()
    [name] = problem.costs
    counted = played.discounted_costs if problem.discounted[0] else played.costs
    assert record[f"{kind}/cost/{name}"] == counted.mean()


def test_no_episode_is_one_of_the_training_or_of_eval():
    first = {purpose: environment_seed(0, purpose) for purpose in ("train", "evaluate", "monitor")}
    assert len(set(first.values())) == 3
    spans = sorted(first.values())
    assert min(b - a for a, b in pairwise(spans)) > 10**9


def test_a_stopped_run_evaluates_the_same(runs, tmp_path):
    path = tmp_path / "run"
    stop = {"listener": lambda metrics, _: cupola.STOP if metrics["iteration"] == 3 else None}
    train(path, evaluate_every=2, evaluate_episodes=5, **stop)
    resumed = cupola.resume(path, iterations=6, progress=False)
    assert resumed.metrics == runs[1].metrics


@pytest.mark.parametrize("fields", [{"evaluate_every": -1}, {"evaluate_episodes": 0}])
def test_impossible_numbers_are_refused(tmp_path, fields):
    with pytest.raises(CupolaError, match=next(iter(fields))):
        train(tmp_path / "run", **fields)


def test_reports_draw_evaluations_with_straight_lines_between_them(runs):
    curves = {one.quantity.label: one for one in panels.curves(load_results(runs[1].path), 100)}
    plain = panels.curves(load_results(runs[0].path), 100)
    assert not any(one.quantity.evaluated for one in plain)
    for how in ("sampled", "deterministic"):
        for key, label in (("return", "return"), ("cost/cost", "cost")):
            (line,) = curves[f"{label}, evaluated, {how} actions"].lines
            two, four, six = (runs[1].metrics[i][f"eval_{how}/{key}"] for i in (1, 3, 5))
            expected = [math.nan, two, (two + four) / 2, four, (four + six) / 2, six]
            np.testing.assert_allclose(line.runs[0], expected)
            assert line.limit == (0.5 if label == "cost" else None)


def test_the_board_shows_the_curves_of_the_report(runs):
    library = Library(runs[1].path.parent)
    while library.refresh():
        pass
    shown = {one["label"]: one for one in library.curves([identify("b")])[0]["panels"]}
    for one in panels.curves(load_results(runs[1].path), 100):
        values = [math.nan if y is None else y for y in shown[one.quantity.label]["y"]]
        np.testing.assert_allclose(values, one.lines[0].runs[0], rtol=1e-4)
        assert shown[one.quantity.label]["evaluated"] == bool(one.quantity.evaluated)
    plain = library.curves([identify("a")])[0]["panels"]
    assert [one["label"] for one in plain] == [k for k in shown if "evaluated" not in k]
