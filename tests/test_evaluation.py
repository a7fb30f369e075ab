"""Evaluation against episodes whose sums are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cupola.config import resolve
from cupola.errors import CupolaError
from cupola.evaluation import evaluate, interval
from cupola.rollout import MAX_ENVS
from cupola.tasks.base import Clock, State, Task, TaskFactory, TaskSpec
from cupola.types import Cost, Step

GAMMA = 0.9
COSTS = (Cost("plain", 6.0, False), Cost("discounted", 3.0, True))


class Counter(Task):
    """Environment of seed s takes 3 + s % 4 steps; a step at time t costs t, and t pays t^2.

    So the returns and costs of an episode of T steps are sums of powers up to T - 1.
    """

    spec = TaskSpec("Counter", 1, 1, COSTS, 100)

    def __init__(self, num_envs: int, costs: tuple[str, ...], seen: list[int]) -> None:
        self.num_envs, self.costs, self._seen = num_envs, costs, seen
        self._clock = Clock(num_envs, 100)

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        self._seen += self._clock.seeds.tolist()
        return self._observe()

    def _observe(self) -> np.ndarray:
        return self._clock.elapsed[:, None].astype(float)

    def step(self, actions: np.ndarray) -> Step:
        time = self._clock.elapsed.astype(float)
        terminated = self._clock.elapsed + 1 == 3 + self._clock.seeds % 4
        self._clock.tick(terminated)
        final_obs = self._observe()
        self._clock.begin(np.flatnonzero(terminated))
        return Step(
            obs=self._observe(),
            final_obs=final_obs,
            reward=time**2,
            costs=np.stack([time, time], axis=1),
            terminated=terminated,
            truncated=np.zeros(self.num_envs, bool),
        )

    def save(self) -> State:
        raise NotImplementedError

    def restore(self, state: State) -> np.ndarray:
        raise NotImplementedError


def counted(**fields: Any) -> tuple[Any, list[int]]:
    """An evaluation of a policy that does nothing, and the seeds of the environments."""
    config = resolve("cup", Counter.spec, "paper", None, {"gamma": GAMMA})
    policy = SimpleNamespace(
        config=config,
        act_size=1,
        raw_actions=lambda obs, deterministic, rng: np.zeros((len(obs), 1)),
    )
    seen: list[int] = []
    factory = TaskFactory(Counter.spec, lambda envs, costs: Counter(envs, costs, seen))
    return evaluate(policy, task=factory, **fields), seen


@pytest.mark.parametrize("episodes", [2, 7, MAX_ENVS, MAX_ENVS + 3])
def test_means_are_those_of_whole_first_episodes(episodes):
    result, seeds = counted(episodes=episodes)
    assert len(seeds) == len(set(seeds)) == episodes
    lengths = np.array([3 + seed % 4 for seed in seeds])
    assert result.episodes == episodes
    assert result.lengths.mean == pytest.approx(lengths.mean())
    # sum of t^2 and of t below T.
    squares = (lengths - 1) * lengths * (2 * lengths - 1) / 6
    assert result.returns.mean == pytest.approx(squares.mean())
    plain = lengths * (lengths - 1) / 2
    weighted = np.array([sum(t * GAMMA**t for t in range(length)) for length in lengths])
    for name, values, limit in (("plain", plain, 6.0), ("discounted", weighted, 3.0)):
        cost = result.costs[name]
        assert cost.value.mean == pytest.approx(values.mean())
        assert cost.undiscounted.mean == pytest.approx(plain.mean())
        assert cost.limit == limit
        assert cost.safe_share == pytest.approx(np.mean(values <= limit))


def test_episodes_are_those_of_the_seed():
    assert counted(episodes=5)[1] == counted(episodes=5)[1]
    assert set(counted(episodes=5)[1]).isdisjoint(counted(episodes=5, seed=1)[1])


def test_an_interval_is_that_of_students_t():
    values = np.array([1.0, 4.0, 2.0, 8.0, 5.0])
    mean, low, high = interval(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((4.0, expected.low, expected.high))


def test_one_episode_has_an_open_interval():
    assert interval(np.array([3.0])) == (3.0, -np.inf, np.inf)


@pytest.mark.parametrize("episodes", [0, -1])
def test_no_episodes_are_refused(episodes):
    with pytest.raises(CupolaError, match=f"episodes must be at least 1, not {episodes}"):
        counted(episodes=episodes)
