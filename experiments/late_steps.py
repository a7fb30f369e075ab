"""What a policy does early and late in an episode, as JSON: `late_steps.py RUN... > FILE.json`.

For each run, at its best and at its last checkpoint, the mean reward and cost per step over each
tenth of the steps of 40 episodes with sampled actions, and the share of episodes whose mean cost
over that tenth is below 0.3: of a cost that is a speed, the robots that hardly move any more.
"""

import json
import sys

import numpy as np

from cupola import evaluation
from cupola.policy import load
from cupola.task_source import find_task

EPISODES, PARTS, STUCK = 40, 10, 0.3


def profile(run: str, checkpoint: str) -> dict:
    policy = load(run, checkpoint=checkpoint)
    envs = find_task(policy.config.task).make(EPISODES, tuple(policy.config.limits))
    rewards, costs = [], []
    for running, step in evaluation.play(envs, policy, False, np.random.default_rng(0), seed=5):
        rewards.append(np.where(running, step.reward, np.nan))
        costs.append(np.where(running, step.costs[:, 0], np.nan))
    envs.close()
    reward, cost = tenths(rewards), tenths(costs)
    return {
        "run": run.rstrip("/").rpartition("/")[2],
        "checkpoint": checkpoint,
        "iteration": policy.iteration,
        "return": round(float(np.nansum(rewards) / EPISODES), 2),
        "reward per step": np.nanmean(reward, axis=1).round(3).tolist(),
        "cost per step": np.nanmean(cost, axis=1).round(3).tolist(),
        "share that hardly moves": np.mean(cost < STUCK, axis=1).round(3).tolist(),
    }


def tenths(steps: list[np.ndarray]) -> np.ndarray:
    """Means [10, N] of values [T, N], NaN where an episode was over."""
    parts = np.array_split(np.array(steps), PARTS)
    return np.array([np.nanmean(part, axis=0) for part in parts])


if __name__ == "__main__":
    found = [profile(run, name) for run in sys.argv[1:] for name in ("best", "last")]
    print("[" + ",\n".join(json.dumps(one) for one in found) + "]")
