"""Rollouts of robots by the compiled part: `robot_play` of native/kernels.c."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cupola import native
from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import Clock
from cupola.tasks.engine import NativeEngine
from cupola.tasks.playing import policy_of, rollout_of
from cupola.types import Rollout

if TYPE_CHECKING:
    import mujoco

    from cupola.tasks.speed import Robot


class RobotPlayer:
    """N copies of a robot, whose ``clock`` and engine belong to the task."""

    def __init__(
        self, engine: NativeEngine, model: mujoco.MjModel, robot: Robot, clock: Clock, axes: int
    ) -> None:
        count = engine.num_envs
        self._engine = engine
        self.obs = np.zeros((count, robot.obs_size))
        self.position = np.zeros((count, axes))
        self._terminated, self._truncated = np.zeros((2, count), bool)
        places = {"torso": "xpos", "mass_centre": "xipos"}.get(robot.position, "qpos")
        torso = 3 * model.body("torso").id if robot.position == "torso" else 0
        names = ("cinert", "cvel", "qfrc_actuator") if robot.full_dynamics else ()
        dynamics = [(engine.addresses(name), None, engine.size(name)) for name in names]
        self._robot = native.Robot()
        self._robot.keep(dynamics)
        self._robot.fill(
            physics=engine.physics,
            **{name: engine.addresses(name) for name in ("qpos", "qvel", "ctrl")},
            places=engine.addresses(places, torso),
            dynamics=native.field_array(dynamics),
            dynamics_count=len(dynamics),
            bodies=model.nbody,
            nq=model.nq,
            nv=model.nv,
            skip_qpos=robot.skip_qpos,
            obs_size=robot.obs_size,
            axes=axes,
            frame_skip=robot.frame_skip,
            velocity_clip=robot.velocity_clip,
            height=-1,
            obs=self.obs,
            position=self.position,
        )
        if robot.position == "mass_centre":
            self._robot.fill(shares=model.body_mass / model.body_mass.sum())
        if robot.healthy:
            self._robot.fill(**vars(robot.healthy))
        self._robot.clock.fill(
            elapsed=clock.elapsed,
            limit=clock.time_limit,
            terminated=self._terminated,
            truncated=self._truncated,
        )

    def drive(self, actions: np.ndarray) -> None:
        """Physics of actions [T, N, A], and nothing else."""
        drive = self._engine.library.robot_drive
        self._engine.drive(drive, self._robot, actions, *actions.shape[1:])

    def play(
        self,
        actor: NetworkActor,
        noise: np.ndarray,
        inputs: np.ndarray,
        into: Rollout,
        begin: Callable[[int], None],
    ) -> tuple[np.ndarray, np.ndarray]:
        """T steps from `obs` and `position` on; positions [T, n, P] before and after each.

        ``begin`` puts one environment at the start of its next episode.
        """
        policy, out = policy_of(actor), rollout_of(into, noise, inputs, actor)
        before, after = np.empty((2, len(noise), out.stride, self.position.shape[1]))
        out.fill(before=before, after=after)
        library = self._engine.library

        def play_one(i: int, at: int, until: int) -> int:
            at = library.robot_play(self._robot.at, policy.at, out.at, i, at, until)
            if self._terminated[i] or self._truncated[i]:
                self._terminated[i] = self._truncated[i] = False
                begin(i)
                library.robot_begin(self._robot.at, i)
            return at

        self._engine.share_out(play_one, len(noise))
        mine = slice(self._engine.num_envs)
        return before[:, mine], after[:, mine]
