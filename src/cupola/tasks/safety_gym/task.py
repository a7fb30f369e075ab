"""N Safety Gym environments of one scene, stepped together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cupola.tasks.actor import NetworkActor
from cupola.tasks.base import Clock, State, Task, TaskSpec, alike
from cupola.tasks.safety_gym import world
from cupola.tasks.safety_gym.layout import GOAL_TRIES, draw_free, sample_layout
from cupola.tasks.safety_gym.lidar import BINS, ego, lidar
from cupola.tasks.safety_gym.picture import View, draw_scene
from cupola.tasks.safety_gym.scenes import (
    AGENT_KEEPOUT,
    BUTTON_DELAY,
    GREMLIN_AT_REST,
    GREMLIN_SIZE,
    GREMLIN_TRAVEL,
    HAZARD_SIZE,
    VASE_AT_REST,
    VASE_SINK,
    VASE_SIZE,
    Scene,
)
from cupola.types import Rollout, Step

if TYPE_CHECKING:
    from cupola.tasks.safety_gym.player import Player

SENSORS = 12  # accelerometer, velocimeter, gyro, magnetometer: 3 numbers each


class Situation(NamedTuple):
    """n environments at one moment: all that physics, rewards, costs and observations need."""

    qpos: np.ndarray  # [n, nq]
    qvel: np.ndarray  # [n, nv]
    action: np.ndarray  # [n, 2] the last one
    time: np.ndarray  # [n] simulated seconds of the episode
    objects: np.ndarray  # [n, M, 2] places, kinds in the scene's order; a gremlin's circle's centre
    turns: np.ndarray  # [n, G, 4] orientations that the gremlins are held in
    button: np.ndarray  # [n] index of the goal button, 0 without buttons
    timer: np.ndarray  # [n] steps left in which buttons are hidden, 0 without buttons
    distance: np.ndarray  # [n] from the goal, when the last step ended


class SafetyGymTask(Task):
    """The robot drives to a goal, which moves when reached, or to one button after another."""

    def __init__(
        self, spec: TaskSpec, scene: Scene, num_envs: int, costs: tuple[str, ...], threads: int
    ) -> None:
        # slow to import; tasks are listed without them
        from cupola.tasks.engine import NativeEngine, make_engine
        from cupola.tasks.safety_gym.player import Player

        self.spec, self.scene, self.num_envs, self.costs = spec, scene, num_envs, costs
        model = world.build(scene)
        self._engine = engine = make_engine(model, num_envs, threads)
        self.engine_name = engine.name
        self._state = engine.bind("state")
        self._qpos, self._qvel = engine.bind("qpos"), engine.bind("qvel")
        self._initial, self._initial_qpos = self._state[0].copy(), self._qpos[0].copy()
        self._ctrl, self._time = engine.bind("ctrl"), engine.bind("time")
        self._mocap_pos, self._mocap_quat = engine.bind("mocap_pos"), engine.bind("mocap_quat")
        agent = model.body("agent").id
        self._sensors = engine.bind("sensordata")
        self._position = engine.bind("xpos")[:, agent]
        self._frame = engine.bind("xmat").reshape(num_envs, -1, 9)[:, agent]
        self._timestep = float(model.opt.timestep)
        # Vases and gremlins: a free joint each, behind the robot's own joints.
        loose = scene.vases + scene.gremlins
        self._loose_pos = self._qpos[:, model.nq - 7 * loose :].reshape(num_envs, loose, 7)
        self._loose_vel = self._qvel[:, model.nv - 6 * loose :].reshape(num_envs, loose, 6)
        forces = engine.bind("qfrc_applied")[:, model.nv - 6 * loose :]
        self._torques = forces.reshape(num_envs, loose, 6)[..., 3:]
        self._weld_excess = world.weld_excess(model) if scene.gremlins else 0.0
        touches = self._sensors[:, self._sensors.shape[1] - loose - scene.buttons :]
        self._loose_touches, self._button_touches = touches[:, :loose], touches[:, loose:]

        self._at = scene.slices
        self._goal = self._at["goal"].start
        self._moving = self._at.get("vases", self._at.get("gremlins"))
        self._kinds = list(self._at.values())
        self._objects = np.zeros((2, self._kinds[-1].stop, num_envs))  # x and y
        self._centres = np.zeros((num_envs, scene.gremlins, 2))
        self._distance = np.zeros(num_envs)
        self._button = np.zeros(num_envs, np.int64)
        self._timer = np.zeros(num_envs, np.int64)
        self._goals = np.zeros(num_envs, np.int64)
        self._rows = np.arange(num_envs)
        self._clock = Clock(num_envs, spec.time_limit)
        self._obs = np.zeros((num_envs, spec.obs_size))
        self._ends: dict[int, View] = {}  # of the episodes that ended last
        self.fps = round(1 / (world.SUBSTEPS * self._timestep))
        self._player: Player | None = None
        if isinstance(engine, NativeEngine):
            self._player = Player(
                engine,
                model,
                scene,
                self._clock,
                costs,
                obs_size=spec.obs_size,
                sensors_seen=spec.obs_size - BINS * len(self._kinds),
                objects=self._objects,
                centres=self._centres,
                distance=self._distance,
                button=self._button,
                timer=self._timer,
            )

    # ---- episodes

    def reset(self, seed: int, stagger: bool = False) -> np.ndarray:
        self._clock.start(seed, stagger)
        self._begin(self._rows)
        self._obs = self.observe(self.relative())
        return self._obs

    def _begin(self, ids: np.ndarray) -> None:
        """Put environments ``ids`` at the start of their current episode."""
        starts = [self._lay_out(self._clock.stream(env)) for env in ids.tolist()]
        self._goals[ids] = 0
        self.place(ids, Situation(*(np.stack(column) for column in zip(*starts, strict=True))))

    def _lay_out(self, rng: np.random.Generator) -> Situation:
        """The start of one episode, without the leading axis."""
        scene, at = self.scene, self._at
        places = sample_layout(rng, scene.extent, [AGENT_KEEPOUT, *scene.keepouts])
        agent, objects = places[0], places[1:]
        button = 0
        if scene.objective == "Button":
            button = int(rng.integers(scene.buttons))
            objects[self._goal] = objects[at["buttons"]][button]
        else:
            objects[self._goal] = self._draw_goal(rng, objects, agent) or objects[self._goal]
        heading = rng.uniform(0, 2 * np.pi)
        qpos = self._initial_qpos.copy()
        qpos[:2] = agent
        if scene.agent == "Point":
            qpos[2] = heading
        else:
            qpos[3:7] = _about_z(heading)
        loose = scene.vases + scene.gremlins
        turns = _about_z(rng.uniform(0, 2 * np.pi, loose))
        if loose:
            boxes = qpos[-7 * loose :].reshape(loose, 7)
            boxes[:, :2], boxes[:, 3:] = objects[self._moving], turns
            boxes[:, 2] = VASE_SIZE - VASE_SINK if scene.vases else GREMLIN_SIZE
        return Situation(
            qpos=qpos,
            qvel=np.zeros(self._qvel.shape[1]),
            action=np.zeros(2),
            time=np.zeros(()),
            objects=objects,
            turns=turns[: scene.gremlins],
            button=np.array(button),
            timer=np.array(0),
            distance=_length(objects[self._goal] - agent),
        )

    def place(self, ids: np.ndarray, situation: Situation) -> None:
        """Put environments ``ids`` [n] into a situation and compute all derived quantities."""
        scene = self.scene
        self._state[ids] = self._initial
        self._qpos[ids], self._qvel[ids] = situation.qpos, situation.qvel
        self._ctrl[ids], self._time[ids] = situation.action, situation.time
        self._objects[..., ids] = situation.objects.T
        self._button[ids], self._timer[ids] = situation.button, situation.timer
        self._distance[ids] = situation.distance
        if scene.gremlins:
            self._centres[ids] = situation.objects[:, self._moving]
            # A target is where the last physics step found it; before the first, at the centre.
            path = circle(situation.time - self._timestep)
            led = situation.time > 0
            targets = self._mocap_pos[ids, : scene.gremlins]
            targets[..., :2] = self._centres[ids] + np.where(led[:, None], path, 0.0)[:, None]
            targets[..., 2] = np.where(led, 2 * GREMLIN_SIZE, GREMLIN_SIZE)[:, None]
            self._mocap_pos[ids, : scene.gremlins] = targets
            self._mocap_quat[ids, : scene.gremlins] = situation.turns
            self._hold_gremlins(ids)
        if scene.buttons:
            self._mocap_pos[ids, scene.gremlins :, :2] = situation.objects[:, self._at["buttons"]]
        self._engine.forward(ids=ids)
        self._follow(ids)

    def _next_goal(self, env: int) -> bool:
        """Give one environment a new goal; False where there is no room for one."""
        self._goals[env] += 1
        rng = self._clock.stream(env, int(self._goals[env]))
        if self.scene.objective == "Button":
            self._button[env] = button = rng.integers(self.scene.buttons)
            self._timer[env] = BUTTON_DELAY
            self._objects[:, self._goal, env] = self._objects[:, self._at["buttons"], env][
                :, button
            ]
            return True
        goal = self._draw_goal(rng, self._objects[..., env].T, self._position[env, :2])
        if goal is None:
            return False
        self._objects[:, self._goal, env] = goal
        return True

    def _draw_goal(
        self, rng: np.random.Generator, objects: np.ndarray, agent: np.ndarray
    ) -> tuple[float, float] | None:
        """A place for the goal among ``objects`` [M, 2] and the agent [2], or None."""
        keepouts = self.scene.keepouts
        placed = [(x, y, k) for (x, y), k in zip(objects.tolist(), keepouts, strict=True)]
        placed[self._goal] = (float(agent[0]), float(agent[1]), AGENT_KEEPOUT)
        return draw_free(rng, self.scene.extent, keepouts[self._goal], placed, GOAL_TRIES)

    # ---- steps

    def step_engine(self, actions: np.ndarray) -> None:
        if self._player:
            self._player.move(actions)
            return
        self._ctrl[:] = actions
        count = self.scene.gremlins
        if not count:
            self._engine.step(nstep=world.SUBSTEPS)
            return
        spinning = self._spinning(self._rows)
        targets = self._mocap_pos[:, :count]
        targets[..., 2] = 2 * GREMLIN_SIZE
        phases = self._time + self._timestep * np.arange(world.SUBSTEPS)[:, None]
        for path in self._centres + circle(phases)[:, :, None]:
            targets[..., :2] = path
            self._correct_welds(*spinning)
            self._engine.step()

    def drive(self, actions: np.ndarray) -> None:
        if self._player:
            self._player.drive(actions)
        else:
            super().drive(actions)

    def advance(self, actions: np.ndarray) -> None:
        """One action's worth of physics, after which everything derived is up to date."""
        if self._player:
            self._player.advance(actions)
            return
        self.step_engine(actions)
        if self.scene.gremlins:
            self._hold_gremlins(self._rows)
        self._engine.forward()
        self._follow(self._rows)

    def _hold_gremlins(self, ids: np.ndarray) -> None:
        """The torques of `world.weld_excess`, in environments ``ids``."""
        self._torques[ids] = 0.0
        self._correct_welds(*self._spinning(ids))

    def _spinning(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The gremlins of environments ``ids`` that spin, and so need these torques."""
        spins = self._loose_vel[ids][..., 3:]
        at, gremlins = (np.einsum("ngi,ngi->ng", spins, spins) > GREMLIN_AT_REST**2).nonzero()
        return ids[at], gremlins

    def _correct_welds(self, *at: np.ndarray) -> None:
        if not len(at[0]):
            return
        _, _, _, w, x, y, z = self._loose_pos[at].T
        c, _, _, s = self._mocap_quat[at].T  # always about the vertical
        spins = self._loose_vel[at][:, 3:]
        scale = self._weld_excess * np.einsum("ni,ni->n", spins, spins) * (w * c + z * s)
        self._torques[at] = (scale * (-x * c - y * s, x * s - y * c, w * s - z * c)).T

    def _follow(self, ids: np.ndarray) -> None:
        """Read where the vases and gremlins of environments ``ids`` are."""
        if self._moving:
            self._objects[:, self._moving, ids] = self._loose_pos[ids][..., :2].T

    def relative(self) -> np.ndarray:
        """Objects' places relative to the robot's, in the world's axes, [2, M, N]."""
        return self._objects - self._position.T[:2, None]

    def score_step(
        self, relative: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Reward [N], whether the goal is met [N] bool, and the parts of the cost, [N] bool each.

        ``relative`` [2, M, N] are the objects' places relative to the robot's.
        """
        scene = self.scene
        distances = np.sqrt(relative[0] ** 2 + relative[1] ** 2)
        near = distances[self._goal]
        pressed = self._button_touches > 0
        met = (
            near <= scene.goal_size
            if scene.objective == "Goal"
            else pressed[self._rows, self._button]
        )
        reward = self._distance - near
        reward += met
        np.minimum(np.maximum(reward, -10.0, out=reward), 10.0, out=reward)
        self._distance[:] = near
        cost_parts = {}
        if scene.hazards:
            cost_parts["hazards"] = (distances[self._at["hazards"]] < HAZARD_SIZE).any(axis=0)
        if scene.gremlins:
            cost_parts["gremlins"] = (self._loose_touches > 0).any(axis=1)
            cost_parts["buttons"] = (pressed.sum(axis=1) > met) & (self._timer == 0)
        if scene.fragile:
            cost_parts["vases_contact"] = (self._loose_touches > 0).any(axis=1)
            moving = _length(self._loose_vel[..., :3]) >= VASE_AT_REST
            cost_parts["vases_velocity"] = moving.any(axis=1)
        return reward, met, cost_parts

    def step(self, actions: np.ndarray) -> Step:
        if self._player:
            return self._native_step(self._player, actions)
        self.advance(actions)
        relative = self.relative()
        reward, met, cost_parts = self.score_step(relative)
        costs = self._add_up(cost_parts)
        if self.scene.buttons:
            np.maximum(self._timer - 1, 0, out=self._timer)
        terminated = np.zeros(self.num_envs, bool)
        for env in met.nonzero()[0].tolist():
            terminated[env] = not self._renew_goal(env)
            relative[:, self._goal, env] = self.relative()[:, self._goal, env]
        truncated = self._clock.tick(terminated)
        final_obs = self.observe(relative)
        self._obs = final_obs
        (ended,) = (terminated | truncated).nonzero()
        if len(ended):
            for env in ended.tolist():
                self._begin_next(env)
            self._obs = final_obs.copy()
            self._obs[ended] = self.observe(self.relative())[ended]
        return Step(self._obs, final_obs, reward, costs, terminated, truncated)

    def _native_step(self, player: Player, actions: np.ndarray) -> Step:
        """The same by the compiled part."""
        player.step(actions)
        costs = player.costs
        for env in player.met.nonzero()[0].tolist():
            player.terminated[env] = not self._renew_goal(env)
            player.finish(env)
        terminated, truncated = player.terminated.copy(), player.truncated.copy()
        final_obs = self._obs = player.obs.copy()
        (ended,) = (terminated | truncated).nonzero()
        if len(ended):
            for env in ended.tolist():
                self._begin_next(env)
                player.observe(env)
            self._obs = final_obs.copy()
            self._obs[ended] = player.obs[ended]
        return Step(self._obs, final_obs, player.reward.copy(), costs, terminated, truncated)

    def play(self, actor: NetworkActor, noise: np.ndarray, into: Rollout) -> np.ndarray | None:
        player = self._player
        if not player:
            return None
        player.obs[:] = self._obs
        self._obs = player.obs  # what pictures of ended episodes show
        player.play(actor, noise, self.spec.inputs, into, self._renew_goal, self._begin_next)
        self._obs = player.obs.copy()
        return self._obs

    def _renew_goal(self, env: int) -> bool:
        """`_next_goal`, with the distance from it."""
        found = self._next_goal(env)
        gap = self._objects[:, self._goal, env] - self._position[env, :2]
        self._distance[env] = _length(gap)
        return found

    def _begin_next(self, env: int) -> None:
        """One environment's episode has ended."""
        one = np.array([env])
        self._ends[env] = self._view(env)
        self._clock.begin(one)
        self._begin(one)

    def _add_up(self, cost_parts: dict[str, np.ndarray]) -> np.ndarray:
        """Costs [N, K] of the parts of the cost; `cost` is 1 where any part is."""
        costs = np.zeros((self.num_envs, len(self.costs)))
        for k, cost in enumerate(self.costs):
            for name, part in cost_parts.items():
                if cost == "cost" or name.startswith(cost):
                    np.maximum(costs[:, k], part, out=costs[:, k])
        return costs

    def observe(self, relative: np.ndarray) -> np.ndarray:
        """Observations [N, O], given the objects' places relative to the robot's, [2, M, N]."""
        obs = np.empty((self.num_envs, self.spec.obs_size))
        at = self.spec.obs_size - BINS * len(self._kinds)
        obs[:, :at] = self._sensors[:, :at]
        places = ego(relative, self._position[:, 2], self._frame)
        obs[:, at:] = lidar(places, self._kinds)
        if self.scene.buttons:
            obs[self._timer > 0, at : at + BINS] = 0.0
        return obs

    # ---- pictures

    def render(
        self, index: int = 0, width: int = 480, height: int = 480, end: bool = False
    ) -> np.ndarray:
        view = self._ends[index] if end and index in self._ends else self._view(index)
        return draw_scene(self.scene, view, (width, height))

    def _view(self, env: int) -> View:
        qpos = self._qpos[env]
        return View(
            agent=qpos[:2].copy(),
            heading=float(qpos[2]) if self.scene.agent == "Point" else _heading(qpos[3:7]),
            objects=self._objects[..., env].T.copy(),
            angles=np.array([_heading(turn) for turn in self._loose_pos[env, :, 3:]]),
            centres=self._centres[env].copy(),
            readings=self._obs[env, -BINS * len(self._kinds) :].reshape(-1, BINS).copy(),
        )

    # ---- saving

    def save(self) -> State:
        return {
            "physics": self._state.copy(),
            "objects": self._objects.copy(),
            "centres": self._centres.copy(),
            "distance": self._distance.copy(),
            "button": self._button.copy(),
            "timer": self._timer.copy(),
            "goals": self._goals.copy(),
            "obs": self._obs.copy(),
            **self._clock.save(),
        }

    def restore(self, state: State) -> np.ndarray:
        state = alike(state, self.save())
        if not ((state["button"] >= 0) & (state["button"] < max(1, self.scene.buttons))).all():
            raise ValueError("'button' is the number of none")
        self._state[:] = state["physics"]
        self._objects[:], self._centres[:] = state["objects"], state["centres"]
        self._distance[:] = state["distance"]
        self._button[:], self._timer[:] = state["button"], state["timer"]
        self._goals[:], self._obs = state["goals"], state["obs"].copy()
        self._clock.restore(state)
        return self._obs


def _about_z(angle: np.ndarray | float) -> np.ndarray:
    """Quaternions [..., 4] of turns about the vertical."""
    half = np.asarray(angle) / 2
    zero = np.zeros_like(half)
    return np.stack([np.cos(half), zero, zero, np.sin(half)], axis=-1)


def _heading(quaternion: np.ndarray) -> float:
    """The angle about the vertical of an orientation [4]."""
    w, x, y, z = quaternion.tolist()
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def _length(vectors: np.ndarray) -> np.ndarray:
    """Lengths [...] of vectors [..., 2] or [..., 3]."""
    return np.sqrt(np.einsum("...i,...i->...", vectors, vectors))


def circle(phase: np.ndarray | float) -> np.ndarray:
    """Where on its circle a gremlin's target is, [..., 2], at simulated seconds [...]."""
    return GREMLIN_TRAVEL * np.stack([np.sin(phase), np.cos(phase)], axis=-1)
