"""Time Safety-Gymnasium's steps, in its own Python 3.10 environment.

    python benchmarks/safety_gymnasium_peer.py --task SafetyPointGoal1-v0 --steps 1000

One environment under random actions, resets of ended episodes included, imports and the first reset
not. Prints one JSON object. `versus_safety_gymnasium.py` tells how to install it.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version

WARM_UP = 50


def main() -> None:
    parser = argparse.ArgumentParser(description="Time Safety-Gymnasium's steps.")
    parser.add_argument("--task", default="SafetyPointGoal1-v0")
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    import safety_gymnasium

    env = safety_gymnasium.make(arguments.task)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(WARM_UP + arguments.steps)]
    began = time.perf_counter()
    for i, action in enumerate(actions):
        if i == WARM_UP:
            began = time.perf_counter()
        _, _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    seconds = time.perf_counter() - began
    packages = ("safety-gymnasium", "gymnasium", "mujoco", "numpy")
    print(
        json.dumps(
            {
                "steps_per_second": arguments.steps / seconds,
                "python": platform.python_version(),
                "versions": {package: version(package) for package in packages},
            }
        )
    )


if __name__ == "__main__":
    main()
