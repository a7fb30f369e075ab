"""Robots with a speed limit: the paper's tasks and Safety-Gymnasium's velocity tasks.

Six robots with the dynamics, observations, rewards and terminations of Gym's -v3 family. Two
families of costs (docs/tasks/speed.md):

- `HopperSpeed`, ...: cost = speed, the limit is on the discounted return;
- `SafetyHopperVelocity-v1`, ...: cost = 1[velocity > threshold], limit 25 undiscounted.

Every robot can also measure `effort` = |action|^2, constrained only where a limit is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import gymnasium
import numpy as np

from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import Clock, State, Task, TaskSpec, alike
from cupola.tasks.robot_picture import Circle, Photographer, View
from cupola.types import Cost, Rollout, Step

if TYPE_CHECKING:
    import mujoco

TIME_LIMIT = 1000
_ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


@dataclass(frozen=True, kw_only=True)
class Health:
    """Where an episode goes on: all bounds are exclusive."""

    height: int
    """The coordinate that must lie between ``low`` and ``high``."""
    low: float
    high: float
    angle: float = np.inf
    """Bound on the next coordinate, the torso's inclination."""
    bound: float = np.inf
    """Bound on that coordinate and all behind it, and on all velocities."""

    def __call__(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Of qpos [N, nq] and qvel [N, nv]: [N] bool."""
        healthy = (qpos[:, self.height] > self.low) & (qpos[:, self.height] < self.high)
        if self.angle < np.inf:
            healthy &= np.abs(qpos[:, self.height + 1]) < self.angle
        rest = qpos[:, self.height + 1 :] if self.bound < np.inf else qpos
        if np.vdot(qvel, qvel) < self.bound**2 and np.vdot(rest, rest) < self.bound**2:
            return healthy  # then no number reaches the bound
        inside = (np.abs(rest) < self.bound).all(1) & (np.abs(qvel) < self.bound).all(1)
        return healthy & inside


@dataclass(frozen=True, kw_only=True)
class Robot:
    """One robot: reward = forward_weight * vx + alive_bonus - effort_weight * |action|^2."""

    model: str
    frame_skip: int
    obs_size: int
    act_size: int
    act_bound: float = 1.0
    """Controls beyond it are clipped."""
    skip_qpos: int
    """Leading coordinates (the position) that are left out of the observation."""
    position: Literal["qpos_x", "qpos_xy", "torso", "mass_centre"]
    """The position whose finite difference over a step is the velocity."""
    velocity_clip: float = np.inf
    """Bound on the velocities in the observation."""
    full_dynamics: bool = False
    """Observe inertias, velocities and actuator forces of all bodies; contact forces as zeros."""
    constant: tuple[int, ...] = ()
    """Columns of the observation that never change."""
    forward_weight: float = 1.0
    alive_bonus: float = 0.0
    effort_weight: float
    healthy: Health | None = None
    """With None an episode never terminates."""
    reset_noise: float
    normal_velocities: bool = False
    """Whether the noise on the initial velocities is normal instead of uniform."""
    speed_limit: float
    """On the discounted return of the speed: half of what an unconstrained PPO reaches."""
    velocity_threshold: float
    view: View = "side"
    """From where pictures show it."""


def model_path(robot: Robot) -> Path:
    """The MJCF file of a robot, one of Gymnasium's; tests/tasks/test_assets.py has its checksum."""
    return _ASSETS / robot.model


class Motion(NamedTuple):
    """What a step did to N robots."""

    position: np.ndarray  # [N, 1 or 2], after the step
    velocity: np.ndarray  # [N, 1 or 2], the position's difference over the step
    effort: np.ndarray  # [N], |action|^2


class UnscoredStep(NamedTuple):
    """A step of N robots without its reward and costs; see `Step`."""

    obs: np.ndarray  # [N, O]
    final_obs: np.ndarray  # [N, O]
    before: np.ndarray  # [N, 1 or 2], the position
    after: np.ndarray  # [N, 1 or 2]
    terminated: np.ndarray  # [N] bool
    truncated: np.ndarray  # [N] bool


class Rules(NamedTuple):
    """Rewards and costs of a family of tasks, and where its robots start."""

    reward: Callable[[Motion], np.ndarray]  # [N]
    costs: dict[str, Callable[[Motion], np.ndarray]]  # [N] each
    scatter: Callable[[np.random.Generator, np.ndarray], None] | None = None
    """Moves one robot's initial qpos [nq] in place."""
    circle: Circle | None = None
    """What lies on the ground."""
    too_fast: float | None = None
    """Speed in m/s above which a step costs."""


# Of the 376: qpos 22, qvel 23, then 14 bodies' cinert (10 each) and cvel (6 each), the world being
# the first of them, qfrc_actuator 23 and cfrc_ext 84.
_HUMANOID_CONSTANT = (
    *range(45, 55),  # inertia of the world
    *range(64, 185, 10),  # masses of the other bodies
    *range(185, 191),  # velocity of the world
    *range(269, 275),  # actuator forces on the root, which has no motor
    *range(292, 376),  # contact forces, which the engine does not compute
)

# The Ant's own bounds are inclusive.
_ANT_HEALTH = Health(height=2, low=float(np.nextafter(0.2, 0)), high=float(np.nextafter(1.0, 2)))
_HOPPER_HEALTH = Health(height=1, low=0.7, high=np.inf, angle=0.2, bound=100.0)
_WALKER_HEALTH = Health(height=1, low=0.8, high=2.0, angle=1.0)
_HUMANOID_HEALTH = Health(height=2, low=1.0, high=2.0)

ROBOTS = {
    "Ant": Robot(
        model="ant.xml", frame_skip=5, obs_size=27, act_size=8, skip_qpos=2, position="torso",
        alive_bonus=1.0, effort_weight=0.5, healthy=_ANT_HEALTH, reset_noise=0.1,
        normal_velocities=True, speed_limit=103.115, velocity_threshold=2.6222, view="top",
    ),
    "HalfCheetah": Robot(
        model="half_cheetah.xml", frame_skip=5, obs_size=17, act_size=6, skip_qpos=1,
        position="qpos_x", effort_weight=0.1, reset_noise=0.1, normal_velocities=True,
        speed_limit=151.989, velocity_threshold=3.2096,
    ),
    "Hopper": Robot(
        model="hopper.xml", frame_skip=4, obs_size=11, act_size=3, skip_qpos=1,
        position="qpos_x", velocity_clip=10.0, alive_bonus=1.0, effort_weight=1e-3,
        healthy=_HOPPER_HEALTH, reset_noise=5e-3, speed_limit=82.748, velocity_threshold=0.7402,
    ),
    "Humanoid": Robot(
        model="humanoid.xml", frame_skip=5, obs_size=376, act_size=17, act_bound=0.4,
        skip_qpos=2, position="mass_centre", full_dynamics=True, constant=_HUMANOID_CONSTANT,
        forward_weight=1.25, alive_bonus=5.0, effort_weight=0.1, healthy=_HUMANOID_HEALTH,
        reset_noise=1e-2, speed_limit=20.140, velocity_threshold=1.4149,
    ),
    "Swimmer": Robot(
        model="swimmer.xml", frame_skip=4, obs_size=8, act_size=2, skip_qpos=2,
        position="qpos_xy", effort_weight=1e-4, reset_noise=0.1, speed_limit=24.516,
        velocity_threshold=0.2282, view="top",
    ),
    "Walker2d": Robot(
        model="walker2d.xml", frame_skip=4, obs_size=17, act_size=6, skip_qpos=1,
        position="qpos_x", velocity_clip=10.0, alive_bonus=1.0, effort_weight=1e-3,
        healthy=_WALKER_HEALTH, reset_noise=5e-3, speed_limit=81.886, velocity_threshold=2.3415,
    ),
}  # fmt: skip


class RobotTask(Task):
    """N copies of one robot."""

    def __init__(
        self,
        spec: TaskSpec,
        robot: Robot,
        rules: Rules,
        num_envs: int,
        costs: tuple[str, ...],
        threads: int,
    ) -> None:
        import mujoco  # slow to import, and tasks are listed without it

        from cupola.tasks.engine import NativeEngine, make_engine
        from cupola.tasks.robot_player import RobotPlayer

        self.spec, self.num_envs, self.costs = spec, num_envs, costs
        self._robot, self._rules = robot, rules
        self._model = model = mujoco.MjModel.from_xml_path(str(model_path(robot)))
        self._dt = robot.frame_skip * model.opt.timestep
        self._engine = make_engine(model, num_envs, threads)
        self.engine_name = self._engine.name
        self._state = self._engine.bind("state")
        self._qpos, self._qvel = self._engine.bind("qpos"), self._engine.bind("qvel")
        self._ctrl = self._engine.bind("ctrl")
        self._initial = self._state[0].copy()
        self._position_of = self._bind_position(model)
        dynamics = ("cinert", "cvel", "qfrc_actuator") if robot.full_dynamics else ()
        self._dynamics = [self._engine.bind(field) for field in dynamics]
        # Only positions of bodies and dynamics are derived; the rest observes qpos and qvel.
        self._needs_forward = bool(dynamics) or robot.position in ("torso", "mass_centre")
        self._measures = [rules.costs[name] for name in costs]
        self._clock = Clock(num_envs, spec.time_limit)
        self._obs = np.zeros((num_envs, robot.obs_size))
        self._position = np.zeros_like(self._position_of())
        self.fps = round(1 / self._dt)
        self._velocity = np.zeros((num_envs, 1))
        self._end_qpos = self._qpos.copy()  # where the last episodes ended
        self._photographer: Photographer | None = None
        self._player = (
            RobotPlayer(self._engine, model, robot, self._clock, self._position.shape[1])
            if isinstance(self._engine, NativeEngine)
            else None
        )

    def _bind_position(self, model: mujoco.MjModel) -> Callable[[], np.ndarray]:
        """Position [N, 2] (or [N, 1]) whose difference is the velocity."""
        kind = self._robot.position
        if kind == "torso":
            xpos, torso = self._engine.bind("xpos"), model.body("torso").id
            return lambda: xpos[:, torso, :2].copy()
        if kind == "mass_centre":
            centres, share = self._engine.bind("xipos"), model.body_mass / model.body_mass.sum()
            return lambda: np.einsum("b,nbi->ni", share, centres[:, :, :2])
        if kind == "qpos_xy":
            return lambda: self._qpos[:, :2].copy()
        return lambda: self._qpos[:, :1].copy()

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        self._begin(np.arange(self.num_envs))
        self._position = self._position_of()
        self._velocity = np.zeros_like(self._position)
        self._obs = self._observe()
        return self._obs

    def _begin(self, ids: np.ndarray) -> None:
        """Put environments ``ids`` into the initial state of their current episode."""
        self._state[ids] = self._initial
        scale = self._robot.reset_noise
        for i in ids:
            rng = self._clock.stream(i)
            self._qpos[i] += rng.uniform(-scale, scale, self._qpos.shape[1])
            self._qvel[i] += (
                scale * rng.standard_normal(self._qvel.shape[1])
                if self._robot.normal_velocities
                else rng.uniform(-scale, scale, self._qvel.shape[1])
            )
            if self._rules.scatter:
                self._rules.scatter(rng, self._qpos[i])
        if self._needs_forward:
            self._engine.forward(ids=ids)

    def _observe(self) -> np.ndarray:
        """Observations [N, O] of the engine's current state."""
        robot = self._robot
        obs = np.zeros((self.num_envs, robot.obs_size))
        at = self._qpos.shape[1] - robot.skip_qpos
        obs[:, :at] = self._qpos[:, robot.skip_qpos :]
        end = at + self._qvel.shape[1]
        velocities, bound = obs[:, at:end], robot.velocity_clip
        np.minimum(np.maximum(self._qvel, -bound, out=velocities), bound, out=velocities)
        for field in self._dynamics:
            at, end = end, end + field[0].size
            obs[:, at:end] = field.reshape(self.num_envs, -1)
        return obs

    def _fallen(self) -> np.ndarray:
        if self._robot.healthy is None:
            return np.zeros(self.num_envs, bool)
        return ~self._robot.healthy(self._qpos, self._qvel)

    def step_engine(self, actions: np.ndarray) -> None:
        self._ctrl[:] = actions
        self._engine.step(nstep=self._robot.frame_skip)

    def drive(self, actions: np.ndarray) -> None:
        if self._player:
            self._player.drive(actions)
        else:
            super().drive(actions)

    def step(self, actions: np.ndarray) -> Step:
        unscored = self.step_physics(actions)
        self._velocity = (unscored.after - unscored.before) / self._dt
        (reward,), (costs,) = self.score([unscored], actions[None])
        return Step(
            unscored.obs, unscored.final_obs, reward, costs, unscored.terminated, unscored.truncated
        )

    def step_physics(self, actions: np.ndarray) -> UnscoredStep:
        self.step_engine(actions)
        before, after = self._position, self._position_of()
        terminated = self._fallen()
        truncated = self._clock.tick(terminated)
        final_obs = self._observe()
        self._obs, self._position = final_obs, after
        (ended,) = (terminated | truncated).nonzero()
        if len(ended):
            self._end_qpos[ended] = self._qpos[ended]
            self._clock.begin(ended)
            self._begin(ended)
            self._obs, self._position = final_obs.copy(), after.copy()
            self._obs[ended] = self._observe()[ended]
            self._position[ended] = self._position_of()[ended]
        return UnscoredStep(self._obs, final_obs, before, after, terminated, truncated)

    def play(self, actor: NetworkActor, noise: np.ndarray, into: Rollout) -> np.ndarray | None:
        player = self._player
        if player is None:
            return None
        player.obs[:], player.position[:] = self._obs, self._position
        before, after = player.play(actor, noise, self.spec.inputs, into, self._begin_next)
        self._obs, self._position = player.obs.copy(), player.position.copy()
        into.rewards[:], into.costs[:] = self._score(before, after, into.actions)
        return self._obs

    def _begin_next(self, env: int) -> None:
        """One environment's episode has ended."""
        one = np.array([env])
        self._end_qpos[env] = self._qpos[env]
        self._clock.begin(one)
        self._begin(one)

    def score(
        self, steps: list[UnscoredStep], actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """As in `Task`, with a few array operations on [T N, ...] for all T steps at once."""
        before, after = (
            np.stack(x) for x in zip(*((s.before, s.after) for s in steps), strict=True)
        )
        return self._score(before, after, actions)

    def _score(
        self, before: np.ndarray, position: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and costs of positions [T, N, P] before and after, and actions [T, N, A]."""
        shape = actions.shape[:2]
        before, position = (x.reshape(-1, x.shape[-1]) for x in (before, position))
        velocity = (position - before) / self._dt
        effort = np.einsum("tna,tna->tn", actions, actions, dtype=np.float64).reshape(-1)
        motion = Motion(position, velocity, effort)
        costs = np.empty((*shape, len(self._measures)))
        for k, measure in enumerate(self._measures):
            costs[..., k] = measure(motion).reshape(shape)
        return self._rules.reward(motion).reshape(shape), costs

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        if self._photographer is None:
            self._photographer = Photographer(self._model, self._robot.view, self._rules.circle)
        qpos = (self._end_qpos if end else self._qpos)[index]
        return self._photographer.draw(qpos, (width, height))

    def gauges(self, index: int = 0) -> list[str]:
        fast = self._rules.too_fast
        limit = "" if fast is None else f", limit {fast:.2f}"
        return [f"speed {float(speed(self._velocity)[index]):.2f} m/s{limit}"]

    def close(self) -> None:
        if self._photographer is not None:
            self._photographer.close()
            self._photographer = None

    def save(self) -> State:
        # Derived quantities lag the state by one physics step: they are saved, not recomputed.
        return {
            "physics": self._state.copy(),
            "obs": self._obs.copy(),
            "position": self._position.copy(),
            **self._clock.save(),
        }

    def restore(self, state: State) -> np.ndarray:
        state = alike(state, self.save())
        self._state[:] = state["physics"]
        self._obs, self._position = state["obs"].copy(), state["position"].copy()
        self._clock.restore(state)
        return self._obs


def _rules(robot: Robot, limited: str) -> Rules:
    def reward(motion: Motion) -> np.ndarray:
        forward = robot.forward_weight * motion.velocity[:, 0]
        return forward + robot.alive_bonus - robot.effort_weight * motion.effort

    def too_fast(motion: Motion) -> np.ndarray:
        planar = robot.position in ("torso", "mass_centre")
        fast = speed(motion.velocity) if planar else motion.velocity[:, 0]
        return (fast > robot.velocity_threshold).astype(np.float64)

    return Rules(
        reward,
        {
            "speed": lambda motion: speed(motion.velocity),
            "velocity": too_fast,
            "effort": lambda motion: motion.effort,
        },
        too_fast=robot.velocity_threshold if limited == "velocity" else None,
    )


def speed(velocity: np.ndarray) -> np.ndarray:
    """|v|, [N], of velocities [N, 1] or [N, 2]."""
    if velocity.shape[1] == 1:
        return np.abs(velocity[:, 0])
    return np.hypot(velocity[:, 0], velocity[:, 1])


def _specs() -> dict[str, tuple[TaskSpec, Robot]]:
    found = {}
    for name, robot in ROBOTS.items():
        effort = Cost("effort", None, discounted=True)
        for task, cost in (
            (f"{name}Speed", Cost("speed", robot.speed_limit, discounted=True)),
            (f"Safety{name}Velocity-v1", Cost("velocity", 25.0, discounted=False)),
        ):
            costs = (cost, effort)
            found[task] = (
                TaskSpec(
                    task, robot.obs_size, robot.act_size, costs, TIME_LIMIT, robot.constant,
                    robot.act_bound,
                ), robot
            )  # fmt: skip
    return found


_TASKS = _specs()
TASKS = {name: spec for name, (spec, _) in _TASKS.items()}


def make(name: str, num_envs: int, costs: tuple[str, ...], threads: int) -> RobotTask:
    spec, robot = _TASKS[name]
    return RobotTask(spec, robot, _rules(robot, spec.costs[0].name), num_envs, costs, threads)
