"""Whole diagnoses, of runs whose numbers are known."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cupola
from cupola import algos, nets
from cupola.diagnosis.changes import changes, update_each
from cupola.diagnosis.gradients import gradients
from cupola.diagnosis.kl_trace import kl_traces
from cupola.diagnosis.sampling import Subject, draw, episodes
from cupola.errors import CupolaError
from cupola.tasks.base import TaskFactory
from cupola.tasks.probes import QUADRATICS, QuadraticTask
from cupola.tasks.probes import TASKS as PROBES

SMALL = {
    "batch_size": 1000,
    "num_envs": 10,
    "hidden": (8,),
    "iterations": 3,
    "checkpoint_every": 1,
    "threads": 1,
    "sinks": (),
}


def silent(title: str, done: int, total: int) -> None:
    pass


def small(algo: str) -> dict:
    minibatches = hasattr(algos.load_algorithm(algo).PRESETS["paper"], "minibatch_size")
    return SMALL | ({"minibatch_size": 250, "epochs": 3} if minibatches else {})


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of TRPO-L, whose steps are long enough to be measured."""
    out = tmp_path_factory.mktemp("probe") / "run"
    return cupola.train("trpo_lag", "ProbeTwoCosts", out=out, **small("trpo_lag")).path


class TestProbe:
    """One-step episodes of a Gaussian of mean m and deviations s: the return is
    10 - |m - target|^2 - |s|^2, the costs are the normals times m."""

    @staticmethod
    def exact(policy: nets.Policy) -> jax.Array:
        """Return and costs."""
        probe = QUADRATICS["ProbeTwoCosts"]
        mean, log_std = nets.apply_policy(policy, jnp.zeros(1))  # ones, normalised
        gain = 10 - jnp.sum((mean - probe.target) ** 2) - jnp.sum(jnp.exp(2 * log_std))
        return jnp.concatenate([gain[None], probe.normals @ mean])

    @pytest.fixture
    def subject(self, probe):
        subject = Subject(probe)
        yield subject
        subject.close()

    def test_changes_are_those_of_the_policies(self, subject):
        drawn = draw(subject, 6, silent)
        assert (len(drawn.batches), drawn.apart) == (6, 1)
        updates = update_each(subject, drawn, drawn.to_update(6), silent)
        found, played = changes(subject, drawn, updates, 600, silent)
        assert played == 600
        now = self.exact(subject.learner.policy)
        after = [self.exact(learner.policy) for learner in updates.learners.values()]
        truth = np.mean(np.stack(after), axis=0) - now
        assert np.abs(truth).min() > 0.005
        for change, exact in zip(found, truth.tolist(), strict=True):
            assert change.measured.mean == pytest.approx(exact, abs=4 * change.measured.error)
            assert change.held_out.mean == pytest.approx(exact, abs=4 * change.held_out.error)
            assert change.measured.error < 0.2 * abs(exact)

    def test_gradients_are_those_of_the_return_and_the_costs(self, subject):
        found = gradients(subject, draw(subject, 6, silent), silent)
        slopes = jax.jacobian(self.exact)(subject.learner.policy)
        rows = np.concatenate([x.reshape(3, -1) for x in jax.tree.leaves(slopes)], axis=1)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        for gradient, row in zip(found[1:], rows[1:], strict=True):
            assert gradient.with_reward.truth == pytest.approx(row @ rows[0], abs=0.1)
            assert gradient.plain.truth > 0.9

    def test_episodes_meet_the_same_noise(self, subject):
        """The same policy twice: no difference at all."""
        old, new = episodes(subject, [subject.learner.policy] * 2, 7, silent)
        assert old.shape == (8, 3)
        np.testing.assert_array_equal(old, new)
        assert len(np.unique(old[:, 0])) == 8

    def test_levels_are_those_of_the_policy(self, probe, subject):
        found = cupola.diagnose(probe, batches=2, episodes=2)
        truth = self.exact(subject.learner.policy).tolist()
        for level, exact in zip(found.levels, truth, strict=True):
            assert level.value.mean == pytest.approx(exact, abs=4 * level.value.error)
        assert [level.limit for level in found.levels] == [None, 0.4, 0.1]


def test_the_kl_of_a_step_that_was_shortened_ends_with_what_is_left(tmp_path):
    fields = small("cup") | {"check_every": 2, "overshoot": 1.0}
    run = cupola.train("cup", "ProbeQuadratic", limits=0.05, out=tmp_path / "run", **fields)
    wild = {"lr_decay": "none", "learning_rate": 0.3, "delta": 1e-3}
    subject = Subject(run.path, settings=wild)
    drawn = draw(subject, 2, silent)
    metrics = update_each(subject, drawn, [0], silent).metrics
    improvement = kl_traces(subject, 0, drawn.batches[0], metrics)[0]
    assert improvement.kl[-2] > 1.5 * improvement.delta
    assert improvement.kl[-1] == pytest.approx(float(metrics["kl_improve"]))
    assert improvement.kl[-1] <= 1.2 * improvement.delta


@pytest.mark.parametrize("algo", ["cup", "focops", "ppo"])
def test_the_kl_as_it_goes_ends_where_the_update_says(tmp_path, algo):
    """And begins where an update of one epoch ends; also where there is no bound (PPO)."""
    limits = None if algo == "ppo" else 0.05  # PPO would say that it ignores them
    fields = small(algo) | ({"check_every": 2} if algo == "cup" else {})
    run = cupola.train(algo, "ProbeQuadratic", limits=limits, out=tmp_path / "run", **fields)
    subject = Subject(run.path, settings={"lr_decay": "none"})
    drawn = draw(subject, 2, silent)
    updates = update_each(subject, drawn, [0], silent)
    traces = kl_traces(subject, 0, drawn.batches[0], updates.metrics)
    names = {"cup": ("kl_improve", "kl_project")}.get(algo, ("kl",))
    delta = getattr(run.config.algorithm, "delta", math.inf)
    looks = 2 if algo == "cup" else 1  # per epoch
    for trace, name in zip(traces, names, strict=True):
        assert trace.kl[-1] == pytest.approx(float(updates.metrics[name]), rel=1e-5)
        assert trace.delta == (delta if delta < math.inf else None)
        assert len(trace.kl) == 3 * looks
    once = dataclasses.replace(subject.config, epochs=1)
    algorithm = algos.load_algorithm(algo).make(once, subject.problem)
    update = algorithm.update(subject.learner, drawn.batches[0], subject.key(1, 0), 1)
    assert traces[0].kl[looks - 1] == pytest.approx(float(update.metrics[names[0]]), rel=1e-5)
    subject.close()


def contents(path: Path) -> dict[str, tuple[bytes, int]]:
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_the_run_is_left_alone_and_a_seed_decides_everything(trained):
    before = contents(trained.path)
    found = cupola.diagnose(trained.path, batches=2, episodes=2)
    assert contents(trained.path) == before
    assert (found.algo, found.task, found.iteration) == ("cup", "HopperSpeed", 6)
    # Batches of 50 steps, episodes of at most 1000: 20 batches lie between two that are compared.
    assert (found.batches, found.apart, found.updates, found.episodes) == (22, 21, 2, 2)
    assert found.progress == pytest.approx(5 / 6)  # as in the last iteration
    assert found.to_json() == cupola.diagnose(trained.path, batches=2, episodes=2).to_json()
    other = cupola.diagnose(trained.path, batches=2, episodes=2, seed=1)
    assert other.to_json()["gradients"] != found.to_json()["gradients"]


def test_the_newest_checkpoint_or_a_given_one(trained):
    newest, older = (trained.path / "checkpoints" / f"0000000{i}.safetensors" for i in (6, 4))
    whole = cupola.diagnose(trained.path, batches=2, episodes=2)
    one = cupola.diagnose(newest, batches=2, episodes=2)
    assert one._replace(run="").to_json() == whole._replace(run="").to_json()
    assert cupola.diagnose(older, batches=2, episodes=2).iteration == 4


def test_other_settings_can_be_tried(probe_cup):
    as_it_is, slow, large = (
        cupola.diagnose(probe_cup, batches=2, episodes=2, settings=settings)
        for settings in (None, {"learning_rate": 1e-6}, {"batch_size": 4000, "num_envs": 20})
    )
    assert slow.kl[0].kl[-1] < 1e-3 * as_it_is.kl[0].kl[-1]
    assert slow.levels == as_it_is.levels
    assert (slow.settings, as_it_is.settings) == ({"learning_rate": 1e-6}, {})
    assert (as_it_is.batch_size, large.batch_size) == (1000, 4000)
    noise = [1 - found.gradients[0].plain.truth for found in (as_it_is, large)]
    assert noise[1] < noise[0]
    with pytest.raises(CupolaError, match="unknown field 'lamb': did you mean 'lam'"):
        cupola.diagnose(probe_cup, settings={"lamb": 0.8})
    with pytest.raises(CupolaError, match="lam must lie in"):
        cupola.diagnose(probe_cup, settings={"lam": 8})
    with pytest.raises(CupolaError, match="network size"):
        cupola.diagnose(probe_cup, settings={"hidden": (9,)})


@pytest.fixture(scope="module")
def probe_cup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("probe_cup") / "run"
    return cupola.train("cup", "ProbeQuadratic", out=out, **small("cup")).path


KINDS = ("cpo", "ppo_lag")
"""One of each kind of update; CUP, PPO and TRPO-L are in other tests here."""


@pytest.mark.parametrize(
    "algo",
    [n if n in KINDS else pytest.param(n, marks=pytest.mark.slow) for n in algos.names()],
)
def test_every_algorithm_has_findings_on_everything(tmp_path, algo):
    run = cupola.train(algo, "ProbeTwoCosts", out=tmp_path / "run", **small(algo))
    found = cupola.diagnose(run.path, batches=3, episodes=4)
    assert [level.name for level in found.levels] == ["return", "first", "second"]
    for numbers in (found.critics, found.gradients, found.changes):
        assert [row.name for row in numbers] == ["return", "first", "second"]
    for gradient in found.gradients:
        assert 0.5 < gradient.plain.truth <= 1
        assert 0.5 < gradient.natural.truth <= 1
    for change in found.changes:
        assert np.isfinite([*change.fitted, *change.held_out, *change.measured]).all()
    topics = {finding.topic for finding in found.findings}
    assert {"level", "critic", "gradient", "change", "kl"} <= topics
    lagrangian = algo in ("cup", "focops", "ppo_lag", "ppo_pid", "trpo_lag")
    assert len(found.multipliers) == 2 * lagrangian
    two_steps = algo == "cup"
    assert len(found.kl) == 1 + two_steps


def test_gymnasium_with_choices_and_without_costs(tmp_path):
    run = cupola.train("ppo", "gym:CartPole-v1", out=tmp_path / "run", **small("ppo"))
    found = cupola.diagnose(run.path, batches=2, episodes=2)
    assert [level.name for level in found.levels] == ["return"]
    # A reward of 1 per step: the return is the length, and the critic has to know what is left.
    assert 10 < found.levels[0].value.mean < 100
    assert found.multipliers == ()
    assert found.gradients[0].with_reward is None
    assert found.gradients[0].plain.truth > 0.5


def test_a_task_of_ones_own_is_given_again(tmp_path):
    spec = PROBES["ProbeQuadratic"]._replace(name="Mine")
    own = TaskFactory(spec, lambda n, costs: QuadraticTask(PROBES["ProbeQuadratic"], n, costs))
    run = cupola.train("cup", own, out=tmp_path / "run", **small("cup"))
    with pytest.raises(CupolaError, match=r"'Mine' is no task of cupola: .* give it again"):
        cupola.diagnose(run.path)
    assert cupola.diagnose(run.path, batches=2, episodes=2, task=own).task == "Mine"


def test_a_run_that_began_with_another_one_that_is_gone(tmp_path, probe_cup):
    first = Path(shutil.copytree(probe_cup, tmp_path / "first"))
    fields = small("cup") | {"start_from": str(first)}
    run = cupola.train("cup", "ProbeQuadratic", out=tmp_path / "second", **fields)
    shutil.rmtree(first)
    assert cupola.diagnose(run.path, batches=2, episodes=2).iteration == 3
