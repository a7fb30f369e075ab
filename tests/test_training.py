"""Training: one iteration, the loop, and an environment that returns nonsense."""

import dataclasses
import re

import numpy as np
import pytest

import cupola
from cupola.config import RunConfig, resolve
from cupola.errors import CupolaError, CupolaWarning
from cupola.runs import checkpoints
from cupola.runs.directory import RunDirectory
from cupola.task_source import task_of
from cupola.tasks import spec_of
from cupola.tasks.base import Clock, State, Task, TaskSpec
from cupola.tasks.engine import VARIABLE, engine_name
from cupola.training import Trainer, start
from cupola.types import Cost, Step


class Counter(Task):
    """Counts to ten; sizes and limit are Hopper's, so that nothing new is compiled.

    ``bad`` names arrays of `Step` and the step at which, and the value with which, they go bad.
    """

    spec = TaskSpec("Counter", 11, 3, (Cost("use", 5.0, discounted=True),), 10)

    def __init__(self, num_envs: int, costs: tuple[str, ...], bad: dict[str, tuple[int, float]]):
        self.num_envs, self.costs, self._bad = num_envs, costs, bad
        self._clock, self._count = Clock(num_envs, 10), 0

    def _observe(self) -> np.ndarray:
        return np.tile(self._clock.elapsed[:, None] / 10, 11)

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        return self._observe()

    def step(self, actions: np.ndarray) -> Step:
        self._count += 1
        truncated = self._clock.tick(np.zeros(self.num_envs, bool))
        final_obs = self._observe()
        self._clock.begin(np.flatnonzero(truncated))
        step = Step(
            obs=self._observe(),
            final_obs=final_obs,
            reward=1 - np.square(actions - 1).sum(axis=1),
            costs=np.abs(actions[:, :1]),
            terminated=np.zeros(self.num_envs, bool),
            truncated=truncated,
        )
        for name, (when, value) in self._bad.items():
            if self._count == when:
                getattr(step, name)[0] = value
        return step

    def save(self) -> State:
        return {"count": np.array(self._count), **self._clock.save()}

    def restore(self, state: State) -> np.ndarray:
        self._count = int(state["count"])
        self._clock.restore(state)
        return self._observe()


def counter(**bad: tuple[int, float]) -> cupola.TaskFactory:
    return cupola.TaskFactory(Counter.spec, lambda envs, costs: Counter(envs, costs, bad))


@pytest.mark.parametrize(
    ("given", "value", "named"),
    [
        ("reward", np.nan, "rewards"),
        ("reward", np.inf, "rewards"),
        ("costs", -np.inf, "costs"),
        ("final_obs", np.nan, "observations"),
        ("obs", np.nan, "observations"),
    ],
)
def test_nonsense_from_an_environment_names_the_culprit(tmp_path, given, value, named, tiny):
    """Step 265 belongs to iteration 6 of 50 steps each; iteration 4 was saved."""
    run = tmp_path / "run"
    good = run / "checkpoints" / "00000004.safetensors"
    with pytest.raises(CupolaError) as caught:
        cupola.train("cup", counter(**{given: (265, value)}), out=run, **tiny)
    assert str(caught.value) == (
        f"iteration 6: '{named}' of the rollout is not finite (task Counter);"
        f" the last good checkpoint is {good}."
    )
    assert len(RunDirectory.open(run).metrics()) == 5
    assert np.isfinite(cupola.load(good).predict(np.ones((3, 11)))).all()


def test_a_run_goes_on_when_its_environment_is_fixed(tmp_path, tiny):
    with pytest.raises(CupolaError, match=r"^iteration 2: 'rewards'.*no checkpoint had been wri"):
        cupola.train("cup", counter(reward=(80, np.nan)), out=tmp_path / "run", **tiny)
    with pytest.raises(CupolaError, match=r"^iteration 4: 'costs'.*00000002\.safetensors\.$"):
        cupola.resume(tmp_path / "run", task=counter(costs=(180, np.nan)))
    run = cupola.resume(tmp_path / "run", task=counter())
    whole = cupola.train("cup", counter(), out=tmp_path / "whole", **tiny)
    assert run.metrics == whole.metrics
    assert len(run.metrics) == 6


def test_nonsense_in_the_last_observation_is_not_saved(tmp_path, tiny):
    """The observation after iteration 4 is used in iteration 5 and saved in between."""
    with pytest.raises(CupolaError, match=r"last good checkpoint is .*00000002"):
        cupola.train("cup", counter(obs=(200, np.nan)), out=tmp_path / "run", **tiny)


@pytest.mark.parametrize("value", [1e30, -3e19, 1e15])
def test_observations_that_would_blind_the_policy_stop_the_run(tmp_path, tiny, value):
    """Squares of 1e30 are infinite; beside 1e15, once, all other values look the same."""
    with pytest.raises(CupolaError) as caught:
        cupola.train("cup", counter(obs=(230, value)), out=tmp_path / "run", **tiny)
    assert re.fullmatch(
        r"iteration [56]: observation 0 of Counter is or was so large that the policy cannot see it"
        r" any more: scale or bound it in the environment; the last good checkpoint is .*04\.safe"
        r"tensors\.",
        str(caught.value),
    )
    saved = cupola.load(tmp_path / "run")
    assert np.isfinite(saved.moments.squares).all()


# --- One iteration, and the loop ---


@pytest.fixture
def config(tiny) -> RunConfig:
    """That of the fixture `trained`."""
    return resolve("cup", spec_of("HopperSpeed"), None, 5.0, tiny)


def test_a_trainer_is_the_loop_without_files(config, trained):
    trainer = Trainer(config, task_of(config, threads=1))
    records = [trainer.iterate()[0] for _ in range(3)]
    trainer.close()
    assert records == trained.metrics[:3]


def test_a_config_as_a_value_trains_what_the_names_train(config, trained, tmp_path):
    """`start` is what the command line calls, `train` what Python calls."""
    assert config == trained.config
    seen = []
    factory = task_of(config, threads=config.options.engine_threads)
    run = start(config, factory, tmp_path / "run", lambda metrics, _: seen.append(metrics))
    assert run.metrics == trained.metrics == seen
    assert (run.finished, run.config) == (True, config)


def test_a_restored_trainer_goes_on_bit_for_bit(config, trained):
    folder = RunDirectory(trained.path).checkpoints
    iteration, arrays, _ = checkpoints.read(folder, "00000004.safetensors")
    trainer = Trainer(config, task_of(config, threads=1))
    trainer.restore(iteration, arrays)
    saved = trainer.save()
    assert saved.keys() == arrays.keys()
    for name, array in saved.items():
        assert array.tobytes() == arrays[name].tobytes(), name
    assert [trainer.iterate()[0] for _ in range(2)] == trained.metrics[4:]
    trainer.close()


@pytest.mark.skipif(engine_name() != "native", reason="without the compiled part")
def test_a_run_that_goes_on_with_the_other_engine_says_so(copy, monkeypatch):
    monkeypatch.setenv(VARIABLE, "plain")
    with pytest.warns(CupolaWarning) as said:
        cupola.resume(copy, iterations=7)
    assert [str(warning.message) for warning in said] == [
        "iteration 6 was computed by the native engine, and the run goes on with plain"
        " (CUPOLA_ENGINE): from here on its numbers will not be exactly those of a run that never"
        " stopped."
    ]
    cupola.resume(copy, iterations=8)  # iteration 7 was plain's


def test_start_from_takes_networks_and_statistics_and_nothing_else(config, trained):
    options = dataclasses.replace(config.options, start_from=str(trained.path), seed=5)
    later = dataclasses.replace(config, options=options)
    other = dataclasses.replace(config, options=dataclasses.replace(options, start_from=""))
    factory = task_of(config, threads=1)
    (begun, fresh) = (Trainer(which, factory) for which in (later, other))
    ours, new = begun.save(), fresh.save()
    old = RunDirectory(trained.path).newest_checkpoint("none").arrays
    taken = ("learner.policy.", "learner.critics", "moments")
    for name, array in ours.items():
        expected = old if name.startswith(taken) else new
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert any(not np.array_equal(old[name], new[name]) for name in ours)
    assert (begun.iteration, fresh.iteration) == (0, 0)


def test_a_listener_that_fails_leaves_a_run_that_can_be_resumed(config, trained, tmp_path):
    def fail(metrics, _):
        if metrics["iteration"] == 4:
            raise RuntimeError("the listener")

    factory = task_of(config, threads=1)
    with pytest.raises(RuntimeError, match="the listener"):
        start(config, factory, tmp_path / "run", fail)
    assert cupola.resume(tmp_path / "run").metrics == trained.metrics


@pytest.mark.parametrize(("algo", "gamma"), [("ppo_lag", 0.0), ("cup", 0.05)])
def test_a_small_gamma_trains_also_where_no_episode_begins_in_a_batch(tmp_path, tiny, algo, gamma):
    """Ten steps of the 1000 of an episode: none of them counts in its discounted return."""
    fields = tiny | {"batch_size": 40, "minibatch_size": 20, "iterations": 3, "gamma": gamma}
    run = cupola.train(algo, "PointGoal1", limits=0.5, out=tmp_path / "run", **fields)
    assert run.finished
    assert [line["episodes"] for line in run.metrics[1:]] == [0, 0]


def test_a_clock_that_stands_still_stops_nothing(config, trained, monkeypatch):
    monkeypatch.setattr("time.perf_counter", lambda: 5.0)
    trainer = Trainer(config, task_of(config, threads=1))
    metrics, timings = trainer.iterate()
    trainer.close()
    assert metrics == {k: v for k, v in trained.metrics[0].items() if k != "check"}
    assert (timings["rollout_seconds"], timings["update_seconds"]) == (0, 0)
