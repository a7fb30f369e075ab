"""Safety Gym: a robot drives to goals or buttons among hazards, vases and gremlins.

`PointGoal1`, `CarButton2`, ...: the Point or the Car, to a goal or to buttons, at level 0, 1 or 2.
Costs are 0 or 1 per step: `hazards`, `gremlins`, `buttons` (wrong ones), `vases`, and `cost`, which
is 1 where any of these is (docs/tasks/safety-gym.md). Limits are on the undiscounted sum.
"""

from __future__ import annotations

from cupola.tasks.base import TaskSpec
from cupola.tasks.safety_gym.lidar import BINS
from cupola.tasks.safety_gym.scenes import Scene, scene
from cupola.tasks.safety_gym.task import SENSORS, SafetyGymTask
from cupola.tasks.safety_gym.world import SATURATION
from cupola.types import Cost

TIME_LIMIT = 1000
LIMIT = 25.0

SCENES = {
    f"{agent}{objective}{level}": scene(agent, objective, level)
    for agent in ("Point", "Car")
    for objective in ("Goal", "Button")
    for level in (0, 1, 2)
}


def _spec(name: str, of: Scene) -> TaskSpec:
    rear = 12 if of.agent == "Car" else 0  # its ball's angular velocity and rotation
    parts = (Cost(part, None, discounted=False) for part in of.costs)
    return TaskSpec(
        name,
        obs_size=SENSORS + rear + BINS * len(of.kinds),
        act_size=2,
        costs=(Cost("cost", LIMIT, discounted=False), *parts),
        time_limit=TIME_LIMIT,
        saturates=SATURATION[of.agent],
    )


TASKS = {name: _spec(name, of) for name, of in SCENES.items()}
ALIASES = {f"Safety{name}-v0": name for name in TASKS}
"""Safety-Gymnasium's names."""


def make(name: str, num_envs: int, costs: tuple[str, ...], threads: int) -> SafetyGymTask:
    return SafetyGymTask(TASKS[name], SCENES[name], num_envs, costs, threads)
