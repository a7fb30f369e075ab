"""How much of one batch's policy gradient is signal? Reward and costs, at a run's last checkpoint.

    python experiments/gradient_noise.py RUN --batches 100 --out FILE.json

The policy stands still and many batches of the run's own size are drawn from it. Over them the
gradient g of mean_t rho_t A_t, with A standardised, has a mean and a spread. `cosine` is that of
the angle between one batch's gradient and the true one, |E g| / sqrt(E |g|^2): 1 where a batch
tells all, 0 where it tells nothing. (The noise left in the mean is subtracted.) `explained`
is the share of the variance of discounted returns that a critic explains.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.algos.assembly import endless_costs
from cupola.config import RunConfig
from cupola.core import distributions
from cupola.core.advantages import gae, scale
from cupola.core.samples import build_samples, ratio, signals
from cupola.errors import CupolaError
from cupola.rollout import collect, make_actor, make_prepare
from cupola.runs.directory import RunDirectory
from cupola.task_source import task_of
from cupola.training import Trainer
from cupola.types import Rollout

LAMBDAS = (0.5, 0.8, 0.95)
AHEAD = 400
"""Steps that a discounted return is summed over at least, before a time limit cuts it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--out", type=Path)
    parsed = parser.parse_args()
    try:
        report = measure(parsed.run, parsed.batches)
    except CupolaError as error:
        raise SystemExit(f"gradient_noise: {error}") from None
    text = json.dumps(report, indent=1)
    print(text)
    if parsed.out:
        parsed.out.write_text(text + "\n")


def measure(path: Path, batches: int) -> dict[str, Any]:
    run = RunDirectory.open_to_load(path)
    config = RunConfig.from_json(run.config())
    iteration, arrays = run.newest_checkpoint()
    if not arrays or batches < 2:
        raise CupolaError(f"{path} needs a readable checkpoint, and --batches at least 2.")
    trainer = Trainer(config, task_of(config, threads=config.options.engine_threads))
    trainer.restore(iteration, arrays)
    rollouts, returns, costs = drawn(trainer, batches)
    trainer.close()
    names = ("reward", *trainer.problem.costs)
    explained = explained_variance(trainer, rollouts)
    report: dict[str, Any] = {
        "task": config.task,
        "algorithm": config.algo,
        "iteration": iteration,
        "batches": batches,
        "batch_size": config.algorithm.batch_size,
        "return": float(returns.mean()),
        "costs, undiscounted": dict(
            zip(trainer.problem.costs, costs.mean(axis=0).tolist(), strict=True)
        ),
        "explained": dict(zip(names, explained, strict=True)),
    }
    for lam in LAMBDAS:
        found = cosines(trainer, rollouts, lam)
        report[f"cosine, lambda {lam}"] = dict(zip(names, found, strict=True))
    return report


def drawn(trainer: Trainer, batches: int) -> tuple[list[Rollout], np.ndarray, np.ndarray]:
    """Normalised rollouts of the standing policy; returns [E] and undiscounted costs [E, K]."""
    config = trainer.config.algorithm
    act = make_actor(trainer.learner.policy, trainer.moments, config.obs_clip, config.normalise_obs)
    shape = (config.batch_size // config.num_envs, config.num_envs, trainer.spec.act_size)
    prepare = make_prepare(config.obs_clip, config.normalise_obs)
    rollouts, finished = [], []
    for i in range(batches):
        noise = np.asarray(
            distributions.unit_noise(jax.random.key(i), shape, trainer.spec.discrete)
        )
        rollout, ended = collect(trainer.collectors, act, noise, trainer.threads > 1)
        rollouts.append(jax.device_get(prepare(trainer.moments, rollout)[0]))
        finished.append(ended)
    returns = np.concatenate([ended.returns for ended in finished])
    return rollouts, returns, np.concatenate([ended.costs for ended in finished])


def explained_variance(trainer: Trainer, rollouts: list[Rollout]) -> list[float]:
    """Of each critic, on steps whose discounted return is known."""
    whole = Rollout(*(np.concatenate(column) for column in zip(*rollouts, strict=True)))

    def sums(signal: jax.Array, gamma: float) -> np.ndarray:
        """Discounted, to the end of each episode: advantages without a critic, lambda 1."""
        none = jnp.zeros_like(signal)
        ends = jnp.asarray(whole.terminated), jnp.asarray(whole.truncated)
        return np.asarray(gae(signal, none, none, *ends, gamma=gamma, lam=1.0))

    totals = sums(signals(whole), trainer.config.algorithm.gamma)  # [T, N, 1 + K]
    # Behind an episode that terminated comes nothing: its returns are known to the last step.
    known = sums(jnp.asarray(1.0 + AHEAD * whole.terminated), 1.0) > AHEAD
    errors = totals - np.asarray(nets.apply_critics(trainer.learner.critics, whole.obs))
    return (1 - np.mean(errors[known] ** 2, axis=0) / np.var(totals[known], axis=0)).tolist()


def cosines(trainer: Trainer, rollouts: list[Rollout], lam: float) -> list[float]:
    """Between one batch's gradient and the true one, of the reward and each cost."""
    learner, config = trainer.learner, trainer.config.algorithm

    @jax.jit
    def gradients(rollout: Rollout) -> jax.Array:
        samples = build_samples(
            learner.policy,
            learner.critics,
            rollout,
            gamma=config.gamma,
            lam=lam,
            time_limit=config.time_limit,
            endless=endless_costs(config, trainer.problem),
        )
        advantages = scale(
            jnp.concatenate([samples.adv_r[:, None], samples.adv_c], axis=1), "standardise"
        )
        slopes = jax.jacobian(lambda policy: ratio(policy, samples) @ advantages)(learner.policy)
        leaves = [leaf.reshape(advantages.shape[1], -1) for leaf in jax.tree.leaves(slopes)]
        return jnp.concatenate(leaves, axis=1) / len(advantages)

    all_of = np.stack([np.asarray(gradients(rollout)) for rollout in rollouts])  # [M, 1 + K, P]
    noise = all_of.var(axis=0, ddof=1).sum(axis=-1)
    signal = np.maximum((all_of.mean(axis=0) ** 2).sum(axis=-1) - noise / len(all_of), 0.0)
    return np.sqrt(signal / (signal + noise)).tolist()


if __name__ == "__main__":
    main()
