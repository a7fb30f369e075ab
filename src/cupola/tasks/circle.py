"""Robots on a circle: the paper's Circle tasks for Ant and Humanoid (docs/tasks/circle.md).

The reward is for running along a circle of radius 10 around the origin. Every step outside the
strip |x| <= 3 (Ant) or 2.5 (Humanoid), which is narrower than the circle, costs 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cupola.tasks.base import TaskSpec
from cupola.tasks.robot_picture import Circle
from cupola.tasks.speed import ROBOTS, TIME_LIMIT, Motion, RobotTask, Rules
from cupola.types import Cost

RADIUS = 10.0
LIMIT = 50.0
STRIPS = {"AntCircle": 3.0, "HumanoidCircle": 2.5}
_ROBOTS = {
    name: replace(
        robot,
        skip_qpos=0,  # x and y come first
        obs_size=robot.obs_size + 2,
        constant=tuple(column + 2 for column in robot.constant),
        view="top",
    )
    for name, robot in (("AntCircle", ROBOTS["Ant"]), ("HumanoidCircle", ROBOTS["Humanoid"]))
}


def reward(motion: Motion) -> np.ndarray:
    """(x vy - y vx)/(1 + | |(x, y)| - 10 |), [N]: angular momentum, best on the circle."""
    (x, y), (vx, vy) = motion.position.T, motion.velocity.T
    return (x * vy - y * vx) / (1 + np.abs(np.hypot(x, y) - RADIUS))


def _rules(strip: float) -> Rules:
    def outside(motion: Motion) -> np.ndarray:
        return (np.abs(motion.position[:, 0]) > strip).astype(np.float64)

    return Rules(reward, {"strip": outside}, _scatter, Circle(RADIUS, strip))


def _scatter(rng: np.random.Generator, qpos: np.ndarray) -> None:
    angle = rng.uniform(0, 2 * np.pi)
    qpos[:2] = RADIUS * np.cos(angle), RADIUS * np.sin(angle)


TASKS = {
    name: TaskSpec(
        name,
        robot.obs_size,
        robot.act_size,
        costs=(Cost("strip", LIMIT, discounted=True),),
        time_limit=TIME_LIMIT,
        constant=robot.constant,
        act_bound=robot.act_bound,
    )
    for name, robot in _ROBOTS.items()
}


def make(name: str, num_envs: int, costs: tuple[str, ...], threads: int) -> RobotTask:
    return RobotTask(TASKS[name], _ROBOTS[name], _rules(STRIPS[name]), num_envs, costs, threads)
