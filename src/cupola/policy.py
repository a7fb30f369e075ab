"""A trained policy, ready to use: load it, ask it for actions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cupola import nets, zoo
from cupola.config import RunConfig
from cupola.core import moments as obs_moments
from cupola.core.moments import Moments
from cupola.errors import CupolaError
from cupola.rollout import make_actor, unit_noise
from cupola.runs import checkpoints, schema
from cupola.runs.directory import open_checkpoint
from cupola.tasks.base import Choice, Scaled, actions_from
from cupola.tasks.observation import Part, as_vectors


class Policy:
    """Observations in, actions out."""

    def __init__(
        self,
        config: RunConfig,
        iteration: int,
        network: nets.Policy,
        moments: Moments,
        inputs: np.ndarray,
        obs_size: int,
        actions: Scaled | Choice | None = None,
        parts: tuple[Part, ...] = (),
    ) -> None:
        self.config, self.iteration = config, iteration
        self.network, self.moments = network, moments
        self.inputs, self.obs_size = inputs, obs_size
        self.actions, self.parts = actions, parts
        self.discrete = network.log_std is None
        self.act_size = int(network.mean[-1][1].shape[0])
        algorithm = config.algorithm
        self._act = make_actor(network, moments, algorithm.obs_clip, algorithm.normalise_obs)
        self._rng = np.random.default_rng()

    def __repr__(self) -> str:
        config = self.config
        actions = f"{self.act_size} choices" if self.discrete else f"actions ({self.act_size},)"
        return (
            f"<cupola.Policy {config.algo} on {config.task}, iteration {self.iteration}:"
            f" observations ({self.obs_size},) to {actions}>"
        )

    def predict(
        self,
        obs: Any,
        *,
        deterministic: bool = True,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray:
        """Action [A] for an observation [O], or [N, A] for [N, O].

        For a Gymnasium environment whose observations are dicts, tuples, choices or pictures these
        are taken as it gives them, alone or with a leading axis N in every part, or flat as above.
        Deterministic actions are the Gaussian's mean, or the likeliest choice; otherwise they are
        sampled, with ``rng`` where the samples must be repeatable. For a Gymnasium environment
        they are its own actions: within the bounds and of the shape of its Box, or whole numbers.
        """
        raw = self.raw_actions(obs, deterministic=deterministic, rng=rng)
        return raw if self.actions is None else self.actions.decode(raw)

    def raw_actions(
        self, obs: Any, *, deterministic: bool, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        """What `predict` gives, before it is decoded for a Gymnasium environment."""
        obs = as_vectors(self.parts, self.obs_size, obs)
        shape = (*obs.shape[:-1], self.act_size)
        noise = unit_noise(None if deterministic else rng or self._rng, shape, self.discrete)
        return self._act(obs[..., self.inputs], noise)


def load(path: str | Path, checkpoint: str | int = "last") -> Policy:
    """The policy of a run directory's newest checkpoint, of one checkpoint file, or of the zoo.

    A policy of the zoo is called for example "zoo:HopperSpeed" (docs/zoo.md). ``checkpoint`` is
    "last", the number of an iteration whose checkpoint is kept, or "best": the best policy so far,
    feasible first, then by its return (docs/runs.md).
    """
    wanted = parse_checkpoint(checkpoint)
    if zoo.is_named(path):
        if isinstance(wanted, int):
            raise CupolaError(f"{path} is a single policy: leave the checkpoint out.")
        path, wanted = zoo.folder(path), "last"
    number = wanted if isinstance(wanted, int) else None
    run, (iteration, arrays, _) = open_checkpoint(Path(path), number)
    config = RunConfig.of(run)
    of_policy, of_moments = "learner.policy", "moments"
    if wanted == "best":
        of_policy, of_moments = "best.policy", "best.moments"
        if "best.iteration" not in arrays:
            raise CupolaError(
                f"{run.path} has no best policy: no episode had ended yet, or the checkpoint is of"
                " an earlier version; take the last one."
            )
        iteration = int(checkpoints.array_of(arrays, "best.iteration", (), "iu"))
    hidden = config.algorithm.hidden
    obs_size = int(checkpoints.array_of(arrays, "obs_size", (), "iu"))
    inputs = checkpoints.array_of(arrays, "inputs", (None,), "iu")
    if len(inputs) == 0 or inputs.min() < 0 or inputs.max() >= obs_size:
        raise CupolaError("the checkpoint's 'inputs' are no columns of an observation.")
    last_bias = f"{of_policy}.mean[{len(hidden)}][1]"
    act_size = len(checkpoints.array_of(arrays, last_bias, (None,), "f"))
    log_std = config.algorithm.log_std if f"{of_policy}.log_std" in arrays else None
    shapes = jax.eval_shape(
        lambda: nets.init_policy(jax.random.key(0), len(inputs), act_size, hidden, log_std, 1.0)
    )
    return Policy(
        config,
        iteration,
        checkpoints.unflatten(of_policy, arrays, shapes),
        checkpoints.unflatten(of_moments, arrays, obs_moments.empty(len(inputs))),
        inputs,
        obs_size,
        decoder(arrays, act_size),
        parts_of(arrays, obs_size),
    )


def parse_checkpoint(text: str | int) -> str | int:
    """best, last or the number of an iteration."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if text in ("best", "last"):
        return text
    if isinstance(text, str) and text.isdecimal() and len(text) < 19:
        return int(text)
    raise CupolaError(
        f"checkpoint is best, last or the number of an iteration, for example 100, not {text!r}."
    )


def decoder(arrays: checkpoints.Arrays, act_size: int) -> Scaled | Choice | None:
    """What a policy's numbers mean, tried once."""
    try:
        actions = actions_from(arrays)
        if actions:
            actions.decode(np.zeros(act_size))
    except (KeyError, ValueError, TypeError) as error:
        raise CupolaError(f"the checkpoint's actions cannot be decoded ({error!r}).") from None
    return actions


def parts_of(arrays: checkpoints.Arrays, obs_size: int) -> tuple[Part, ...]:
    """The parts of an environment's own observations; none where these are vectors."""
    if "observation" not in arrays:
        return ()
    records = checkpoints.from_json_array(arrays, "observation", schema.OBSERVATION)
    fields = [{name: tuple(record[name]) for name in Part._fields} for record in records]
    parts = tuple(Part(**field) for field in fields)
    choices = all(
        not part.sizes or len(part.sizes) == len(part.first) == math.prod(part.shape)
        for part in parts
    )
    if not choices or sum(part.size for part in parts) != obs_size:
        raise CupolaError("the checkpoint's 'observation' is not of the size of its network.")
    return parts
