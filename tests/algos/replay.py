"""Replay recorded updates and print how far ours are from them.

    python tests/algos/replay.py FILE.npz --algo cup

prints one JSON object: for every case of the file the largest absolute difference of the policy,
of the critics and of nu after its updates, in float64. The file's format: `<case>/delta`,
`<case>/limit`, `<case>/init/{pi,v,vc}/...` and, for every update, the batch, `mean_cost`, `nu` and
`after/{pi,v,vc}/...`, linear layers as [out, in]; the minibatch is the whole batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from cupola import nets
from cupola.algos import load_algorithm
from cupola.core import distributions
from cupola.errors import CupolaError
from cupola.types import Algorithm, Batch, Problem, Samples

LAYERS = ("mlp_net.0", "mlp_net.2")


class Recording:
    """One case of a recorded file."""

    def __init__(self, arrays: dict[str, np.ndarray], case: str) -> None:
        self.arrays, self.case = arrays, case

    def __getitem__(self, key: str) -> np.ndarray:
        try:
            return self.arrays[f"{self.case}/{key}"]
        except KeyError:
            raise CupolaError(f"the file has no array {self.case}/{key}.") from None

    def mlp(self, where: str, head: str) -> nets.Mlp:
        names = [f"{where}/{layer}" for layer in (*LAYERS, head)]
        return tuple(
            (jnp.asarray(self[f"{n}.weight"].T), jnp.asarray(self[f"{n}.bias"])) for n in names
        )

    def policy(self, where: str) -> nets.Policy:
        return nets.Policy(
            self.mlp(f"{where}/pi", "mean_layer"), jnp.asarray(self[f"{where}/pi/logstd_layer"][0])
        )

    def critics(self, where: str) -> nets.Mlp:
        pair = [self.mlp(f"{where}/{net}", "v_head") for net in ("v", "vc")]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair)

    def updates(self) -> int:
        prefix = f"{self.case}/update"
        return len({k.split("/")[1] for k in self.arrays if k.startswith(prefix)})


def samples_of(policy: nets.Policy, recording: Recording, update: str) -> Samples:
    arrays = {
        name: jnp.asarray(recording[f"{update}/{name}"])
        for name in ("obs", "act", "adv", "cadv", "vtarg", "cvtarg")
    }
    mean, log_std = nets.apply_policy(policy, arrays["obs"])
    return Samples(
        obs=arrays["obs"],
        actions=arrays["act"],
        mean=mean,
        log_prob=distributions.log_prob(mean, log_std, arrays["act"]),
        advantages=jnp.stack([arrays["adv"], arrays["cadv"]], axis=-1),
        adv_r=arrays["adv"],
        adv_c=arrays["cadv"][:, None],
        values=jnp.zeros((len(mean), 2)),
        targets=jnp.stack([arrays["vtarg"], arrays["cvtarg"]], axis=-1),
        times=jnp.zeros(len(mean), int),
    )


def difference(ours: object, theirs: object) -> float:
    gaps = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), ours, theirs)
    return float(max(jax.tree.leaves(gaps)))


def replay(recording: Recording, algo: str) -> dict[str, float]:
    """The largest differences over the updates of one case."""
    module = load_algorithm(algo)
    first = recording["update0/obs"]
    config = module.Config(
        **{
            **vars(module.PRESETS["release"]),
            "batch_size": len(first),
            "num_envs": 1,
            "minibatch_size": len(first),
            "delta": float(recording["delta"]),
            "lr_decay": "none",
            "cost_advantage": "none",  # the recorded ones are standardised already
        }
    )
    problem = Problem(
        obs_size=first.shape[1],
        act_size=recording["update0/act"].shape[1],
        costs=("cost",),
        limits=(float(recording["limit"]),),
        discounted=(True,),
    )
    algorithm: Algorithm = module.make(config, problem)
    fresh = algorithm.init(jax.random.key(0))
    policy, values = recording.policy("init"), recording.critics("init")
    learner = fresh._replace(policy=policy, critics=values)
    worst = {"policy": 0.0, "critics": 0.0, "nu": 0.0}
    for i in range(recording.updates()):
        update = f"update{i}"
        batch = Batch(
            rollout=None,  # type: ignore[arg-type]
            cost_returns=jnp.asarray(recording[f"{update}/mean_cost"])[None],
            horizons=jnp.ones(1),
            progress=jnp.zeros(()),
        )
        samples = samples_of(learner.policy, recording, update)
        learner, _ = algorithm.learn(learner, samples, batch, jax.random.key(i), 1)
        after = f"{update}/after"
        gaps = {
            "policy": difference(learner.policy, recording.policy(after)),
            "critics": difference(learner.critics, recording.critics(after)),
            "nu": difference(learner.nu, recording[f"{update}/nu"]),
        }
        worst = {name: max(worst[name], gap) for name, gap in gaps.items()}
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--algo", default="cup", choices=["cup", "focops"])
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    try:
        with np.load(args.file, allow_pickle=False) as file:
            arrays = dict(file)
        cases = list(dict.fromkeys(key.split("/")[0] for key in arrays))
        result = {case: replay(Recording(arrays, case), args.algo) for case in cases}
    except (CupolaError, OSError, ValueError, zipfile.BadZipFile) as error:
        sys.exit(f"replay: {args.file}: {error}")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
