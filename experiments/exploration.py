"""How much a policy still explores, as JSON: `exploration.py RUN... > FILE.json`.

For each run, at its best and at its last checkpoint, on the states of 16 episodes with sampled
actions: the standard deviation of each action in units of the bound of the actions, the mean and
the 95 % quantile of the distance of the Gaussian's mean from 0 in the same units, and the share of
states in which less than 5 % of the actions lie within the range of the actuator.
"""

import json
import math
import sys

import numpy as np
from scipy.stats import norm

from cupola.policy import load
from cupola.rollout import play
from cupola.task_source import find_task

EPISODES, STEPS, FEW = 16, 600, 0.05


def measure(run: str, checkpoint: str) -> dict:
    policy = load(run, checkpoint=checkpoint)
    envs = find_task(policy.config.task).make(EPISODES, tuple(policy.config.limits))
    bound = envs.spec.act_bound if envs.spec.act_bound < math.inf else 1.0
    ends = np.array(envs.spec.saturation)
    std = np.exp(np.asarray(policy.network.log_std))
    rng, means = np.random.default_rng(0), []

    def act(obs: np.ndarray) -> np.ndarray:
        mean = policy.raw_actions(obs, deterministic=True, rng=rng)
        means.append(mean)
        return (mean + std * rng.standard_normal(mean.shape)).astype(mean.dtype)

    for running, _ in play(envs, act, 5):
        means[-1] = means[-1][running]
        if len(means) == STEPS:
            break
    envs.close()
    mean = np.concatenate(means)
    within = norm.cdf((ends - mean) / std) - norm.cdf((-ends - mean) / std)
    return {
        "run": run.rstrip("/").rpartition("/")[2],
        "checkpoint": checkpoint,
        "iteration": policy.iteration,
        "standard deviation": rounded(std / bound),
        "distance of the mean": rounded(np.abs(mean).mean(axis=0) / bound),
        "its 95 % quantile": rounded(np.quantile(np.abs(mean), 0.95, axis=0) / bound),
        "states with few within": rounded((within < FEW).mean(axis=0)),
    }


def rounded(values: np.ndarray) -> list[float]:
    return np.asarray(values, float).round(3).tolist()


if __name__ == "__main__":
    found = [measure(run, name) for run in sys.argv[1:] for name in ("best", "last")]
    print("[" + ",\n".join(json.dumps(one) for one in found) + "]")
