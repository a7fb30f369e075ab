"""Safety Gym by the compiled part: steps and rollouts of native/kernels.c."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cupola import native
from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import Clock
from cupola.tasks.engine import NativeEngine
from cupola.tasks.playing import policy_of, rollout_of
from cupola.tasks.safety_gym import world
from cupola.tasks.safety_gym.scenes import (
    GREMLIN_AT_REST,
    GREMLIN_SIZE,
    GREMLIN_TRAVEL,
    HAZARD_SIZE,
    VASE_AT_REST,
    Scene,
)
from cupola.types import Rollout

if TYPE_CHECKING:
    import mujoco

PARTS = {"hazards": 1, "gremlins": 2, "buttons": 4, "vases_contact": 8, "vases_velocity": 16}
"""Parts of the cost, as bits: those of kernels.c (tests/test_native.py)."""


class Player:
    """N environments, whose arrays belong to the task.

    ``objects`` [2, M, N], ``centres`` [N, G, 2], ``distance``, ``button`` and ``timer`` [N].
    """

    def __init__(
        self,
        engine: NativeEngine,
        model: mujoco.MjModel,
        scene: Scene,
        clock: Clock,
        costs: tuple[str, ...],
        obs_size: int,
        sensors_seen: int,
        **arrays: np.ndarray,
    ) -> None:
        count = engine.num_envs
        self._engine = engine
        self.obs = np.zeros((count, obs_size))
        self.reward = np.zeros(count)
        self.parts = np.zeros(count, np.uint8)
        self.met, self.terminated, self.truncated = np.zeros((3, count), bool)
        self.masks = np.array([mask_of(cost) for cost in costs], np.int64)
        at, agent = scene.slices, model.body("agent").id
        hazards = at.get("hazards", slice(0, 0))
        moving = at.get("vases", at.get("gremlins", slice(0, 0)))
        fields = {
            **{name: (name, 0) for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat")},
            "applied": ("qfrc_applied", 0),
            "sensors": ("sensordata", 0),
            "position": ("xpos", 3 * agent),
            "frame": ("xmat", 9 * agent),
        }
        self._world = native.World()
        self._world.fill(
            physics=engine.physics,
            **{name: engine.addresses(*field) for name, field in fields.items()},
            nq=model.nq,
            nv=model.nv,
            sensor_count=model.nsensordata,
            sensors_seen=sensors_seen,
            obs_size=obs_size,
            substeps=world.SUBSTEPS,
            kinds=np.array([0, *(part.stop for part in at.values())], np.int64),
            kind_count=len(at),
            envs=count,
            goal=at["goal"].start,
            moving=moving.start,
            loose=scene.vases + scene.gremlins,
            gremlins=scene.gremlins,
            buttons=scene.buttons,
            hazards=hazards.start,
            hazards_end=hazards.stop,
            fragile=scene.fragile,
            timestep=model.opt.timestep,
            goal_size=scene.goal_size,
            hazard_size=HAZARD_SIZE,
            travel=GREMLIN_TRAVEL,
            gremlin_height=2 * GREMLIN_SIZE,
            gremlin_at_rest=GREMLIN_AT_REST,
            vase_at_rest=VASE_AT_REST,
            weld_excess=world.weld_excess(model) if scene.gremlins else 0.0,
            masks=self.masks,
            obs=self.obs,
            reward=self.reward,
            parts=self.parts,
            met=self.met,
            **arrays,
        )
        self._world.clock.fill(
            elapsed=clock.elapsed,
            limit=clock.time_limit,
            terminated=self.terminated,
            truncated=self.truncated,
        )

    def drive(self, actions: np.ndarray) -> None:
        """Physics of actions [T, N, 2], and nothing else."""
        self._engine.drive(self._engine.library.world_drive, self._world, actions)

    def move(self, actions: np.ndarray) -> None:
        """Physics of one action [N, 2] each, and nothing else."""
        self._call(self._engine.library.world_move, actions)

    def advance(self, actions: np.ndarray) -> None:
        """The same, with everything derived."""
        self._call(self._engine.library.world_advance, actions)

    def step(self, actions: np.ndarray) -> None:
        """A step with rewards, costs and observations; what met its goal waits for `finish`."""
        self._call(self._engine.library.world_step, actions)

    def _call(self, function: Callable[..., None], actions: np.ndarray) -> None:
        numbers = np.ascontiguousarray(actions, np.float64)
        self._engine.call(function, None, self._world, numbers.ctypes.data)

    def finish(self, env: int) -> None:
        """End the step of an environment that has got its new goal."""
        self._engine.library.world_finish(self._world.at, env)

    def observe(self, env: int) -> None:
        """Write one environment's observation into `obs`."""
        self._engine.library.world_observe(self._world.at, env)

    @property
    def costs(self) -> np.ndarray:
        """Costs [N, K] of the last step."""
        return ((self.parts[:, None] & self.masks) != 0).astype(np.float64)

    def play(
        self,
        actor: NetworkActor,
        noise: np.ndarray,
        inputs: np.ndarray,
        into: Rollout,
        next_goal: Callable[[int], bool],
        begin: Callable[[int], None],
    ) -> None:
        """T steps from `obs` on.

        ``next_goal`` gives one environment a new goal, and False where there is no room for one;
        ``begin`` puts it at the start of its next episode.
        """
        policy, out = policy_of(actor), rollout_of(into, noise, inputs, actor)
        play = self._engine.library.world_play

        def play_one(i: int, at: int, until: int) -> int:
            at = int(play(self._world.at, policy.at, out.at, i, at, until))
            if self.met[i]:
                self.terminated[i] = not next_goal(i)
            elif self.terminated[i] or self.truncated[i]:
                self.terminated[i] = self.truncated[i] = False
                begin(i)
                self.observe(i)
            return at

        self._engine.share_out(play_one, len(noise))


def mask_of(cost: str) -> int:
    """The parts that a cost is made of; `cost` is 1 where any part is."""
    return sum(bit for name, bit in PARTS.items() if cost == "cost" or name.startswith(cost))
