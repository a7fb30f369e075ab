"""What the critics of a run expect in the last steps before a fall, as JSON.

    .venv/bin/python experiments/fall_values.py RUN > experiments/results/fall-values.json

A fresh batch of the run's newest policy. Of each step before a termination: the cost of the
step, the discounted cost that the critic expects from there on, and the cost's advantage in
standard deviations. A fall that looks cheap shows as a value that falls while the cost does not.
"""

import json
import sys
from pathlib import Path

import numpy as np

from cupola import nets
from cupola.diagnosis.sampling import Subject, draw

STEPS = (0, 1, 2, 3, 5, 10, 20, 40)


def measure(path: Path) -> dict[str, object]:
    subject = Subject(path)
    drawn = draw(subject, 1, lambda *about: None)
    rollout = drawn.batches[0].rollout
    values = np.asarray(nets.apply_critics(subject.learner.critics, rollout.obs))[..., 1]
    samples = subject.samples_of(subject.learner, drawn.batches[0])
    advantages = np.asarray(samples.adv_c)[:, 0].reshape(values.shape)
    advantages = (advantages - advantages.mean()) / advantages.std()
    falls = np.argwhere(rollout.terminated)
    before = []
    for steps in STEPS:
        at = [(t - steps, n) for t, n in falls if steps <= min(t, rollout.times[t, n])]
        rows, columns = np.array(at).T
        columns_of = (rollout.costs[..., 0], values, advantages)
        cost, value, advantage = (float(array[rows, columns].mean()) for array in columns_of)
        found = {"cost": cost, "value": value, "advantage": advantage}
        before.append({"steps": steps, "falls": len(at)} | found)
    config = subject.run_config
    return {
        "task": config.task,
        "seed": config.options.seed,
        "iteration": subject.trainer.iteration,
        "cost_termination": subject.config.cost_termination,
        "mean cost a step": float(rollout.costs.mean()),
        "mean value": float(values.mean()),
        "before a fall": before,
    }


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1])), indent=1))
