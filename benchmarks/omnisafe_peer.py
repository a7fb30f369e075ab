"""Time whole training iterations of OmniSafe 0.5, in OmniSafe's own Python 3.10 environment.

    python benchmarks/omnisafe_peer.py --task SafetyHopperVelocity-v1 --iterations 3 --envs 1 \
        --threads 2 --out omnisafe.json

The setting is the CUP paper's: 5000 steps an iteration, minibatches of 64, 10 improvement and 10
projection epochs (PPO-L: 10 epochs), no early stop on the KL divergence; for CPO 10 iterations of
conjugate gradients with damping 0.01 and 80 value iterations on the whole batch. All else is
OmniSafe's default, except that it writes as little to disk as it can. The times are those of
OmniSafe's own clock, read from its progress file: `Time/Epoch` covers the rollout, the update and
the learning-rate schedule, not the table it prints after them. Imports, the making of the
environments and one warm-up are left out. `versus_omnisafe.py` tells how to install OmniSafe and
compares the numbers to cupola's.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

STEPS = 5000
MINIBATCH = 64
EPOCHS = 10
VALUE_ITERATIONS = 80
WARM_UP = 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time OmniSafe's training iterations.")
    parser.add_argument("--algo", choices=("CUP", "PPOLag", "CPO"), default="CUP")
    parser.add_argument("--task", default="SafetyHopperVelocity-v1")
    parser.add_argument("--iterations", type=int, default=3, help="timed, after one warm-up")
    parser.add_argument("--envs", type=int, default=1, help="must divide 5000")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch threads")
    parser.add_argument("--out", type=Path, help="write the JSON object to this file too")
    arguments = parser.parse_args()
    if arguments.iterations < 1:
        parser.error("--iterations must be at least 1")
    if arguments.envs < 1 or STEPS % arguments.envs:
        parser.error(f"--envs must be a divisor of {STEPS}")
    if arguments.threads < 1:
        parser.error("--threads must be at least 1")
    return arguments


def update_settings(algo: str) -> dict[str, Any]:
    """How much an update computes."""
    if algo == "CPO":
        return {
            "steps_per_epoch": STEPS,
            "batch_size": STEPS,  # value iterations on the whole batch
            "update_iters": VALUE_ITERATIONS,
            "kl_early_stop": False,
            "cg_iters": 10,
            "cg_damping": 0.01,
            "fvp_sample_freq": 1,
        }
    return {
        "steps_per_epoch": STEPS,
        "batch_size": MINIBATCH,
        "update_iters": EPOCHS,
        "kl_early_stop": False,
    }


def settings(
    *, algo: str, iterations: int, envs: int, threads: int, log_dir: str
) -> dict[str, Any]:
    """The changes to OmniSafe's defaults."""
    return {
        "train_cfgs": {
            "device": "cpu",
            "torch_threads": threads,
            "vector_env_nums": envs,
            "total_steps": STEPS * (WARM_UP + iterations),
        },
        "algo_cfgs": update_settings(algo),
        "logger_cfgs": {
            "use_tensorboard": False,
            "use_wandb": False,
            "save_model_freq": WARM_UP + iterations,
            "log_dir": log_dir,
        },
    }


def train(algo: str, task: str, custom: dict[str, Any]) -> None:
    """Train without a word on standard output."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        import omnisafe  # here, because importing it prints too

        omnisafe.Agent(algo, task, custom_cfgs=custom).learn()


def read_progress(log_dir: str) -> list[dict[str, float]]:
    """One row an iteration, the warm-up left out."""
    (path,) = Path(log_dir).rglob("progress.csv")
    with path.open(newline="") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return rows[WARM_UP:]


def summarise(rows: list[dict[str, float]]) -> dict[str, Any]:
    seconds = [row["Time/Epoch"] for row in rows]
    return {
        "steps_per_second": STEPS / fmean(seconds),
        "rollout_seconds": fmean(row["Time/Rollout"] for row in rows),
        "update_seconds": fmean(row["Time/Update"] for row in rows),
        "iteration_seconds": seconds,
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as log_dir:
        custom = settings(
            algo=arguments.algo,
            iterations=arguments.iterations,
            envs=arguments.envs,
            threads=arguments.threads,
            log_dir=log_dir,
        )
        train(arguments.algo, arguments.task, custom)
        rows = read_progress(log_dir)
    return {
        "peer": f"omnisafe {version('omnisafe')}",
        "algorithm": arguments.algo,
        "task": arguments.task,
        "envs": arguments.envs,
        "threads": arguments.threads,
        "iterations": arguments.iterations,
        **summarise(rows),
        "update": update_settings(arguments.algo),
        "python": platform.python_version(),
        "torch": version("torch"),
        "safety_gymnasium": version("safety-gymnasium"),
    }


def main() -> None:
    arguments = parse_arguments()
    text = json.dumps(measure(arguments), indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
