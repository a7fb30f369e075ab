"""A choice whose best mixture is known: does each improvement of CUP lead there?

One choice an episode: rewards 1, 0.6, 0 at costs 1, 0.2, 0 and a limit of 0.5. The linear programme
mixes the first two, for a return of 0.5 + cost / 2. Means of the last 20 of 60 iterations:

    python experiments/choice.py > experiments/results/choice.csv
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

import cupola

REWARDS, COSTS, LIMIT = (1.0, 0.6, 0.0), (1.0, 0.2, 0.0), 0.5
SETTINGS = {
    "clip": {},
    "kl": {"improvement": "kl"},
    "focops": {"improvement": "focops", "temperature": 5.0},
    "paper": {"preset": "paper"},
}
LAST = 20


class Choice(gymnasium.Env):
    """One choice an episode."""

    observation_space = Box(-1, 1, (1,), np.float64)
    action_space = Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        return np.zeros(1), REWARDS[action], True, False, {"cost": COSTS[action]}


def main() -> None:
    print("improvement,seed,return,cost,best_return_at_that_cost")
    for name, settings in SETTINGS.items():
        for seed in range(3):
            with tempfile.TemporaryDirectory() as folder:
                run = cupola.train(
                    "cup",
                    env=Choice,
                    limits=LIMIT,
                    max_episode_steps=2,
                    batch_size=1000,
                    num_envs=10,
                    iterations=60,
                    learning_rate=1e-3,
                    seed=seed,
                    out=Path(folder) / "run",
                    progress=False,
                    **settings,
                )
                records = run.metrics[-LAST:]
            mean = {key: np.mean([row[key] for row in records]) for key in ("return", "cost/cost")}
            cost = mean["cost/cost"]
            best = min(0.5 + cost / 2, 1.0)
            print(f"{name},{seed},{mean['return']:.3f},{cost:.3f},{best:.3f}", flush=True)


if __name__ == "__main__":
    main()
