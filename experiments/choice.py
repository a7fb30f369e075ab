"""A choice whose best mixture is known: does each improvement of CUP lead there?

One choice an episode (`Menu` of tests/gym/worlds.py): rewards 1, 0.6, 0 at costs 1, 0.2, 0 and a
limit of 0.5. The linear programme mixes the first two, for a return of 0.5 + cost / 2. Means of the
last 20 of 60 iterations:

    python experiments/choice.py > experiments/results/choice.csv
"""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

import numpy as np

import cupola

WORLDS = Path(__file__).parents[1] / "tests" / "gym" / "worlds.py"
LIMIT = 0.5
SETTINGS = {
    "clip": {},
    "kl": {"improvement": "kl"},
    "focops": {"improvement": "focops", "temperature": 5.0},
    "paper": {"preset": "paper"},
}
LAST = 20


def main() -> None:
    menu = runpy.run_path(str(WORLDS))["Menu"]
    print("improvement,seed,return,cost,best_return_at_that_cost")
    for name, settings in SETTINGS.items():
        for seed in range(3):
            with tempfile.TemporaryDirectory() as folder:
                run = cupola.train(
                    "cup",
                    env=menu,
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
