"""The robots against two implementations that are not ours, and closed forms."""

import sys
import warnings

import gymnasium
import mujoco
import numpy as np
import pytest
from scipy import stats

from cupola.tasks import make_task, spec_of
from cupola.tasks.speed import ROBOTS, RobotTask

# One row a robot, written down from the sources and not from the code: observation and action
# sizes, range of the actions, limit, threshold, reset noise, normal velocities.
FACTS = {
    "Ant": (27, 8, 1.0, 103.115, 2.6222, 0.1, True),
    "HalfCheetah": (17, 6, 1.0, 151.989, 3.2096, 0.1, True),
    "Hopper": (11, 3, 1.0, 82.748, 0.7402, 5e-3, False),
    "Humanoid": (376, 17, 0.4, 20.140, 1.4149, 1e-2, False),
    "Swimmer": (8, 2, 1.0, 24.516, 0.2282, 0.1, False),
    "Walker2d": (17, 6, 1.0, 81.886, 2.3415, 5e-3, False),
}
NEVER_ENDS = ("HalfCheetah", "Swimmer")
PLANAR_SPEED = ("Ant", "Humanoid", "Swimmer")

every_robot = pytest.mark.parametrize("name", FACTS)


def compared_size(name: str) -> int:
    """Humanoid's last 84 numbers are contact forces, which are zero here."""
    return 292 if name == "Humanoid" else FACTS[name][0]


def make(name: str, num_envs: int, *costs: str) -> RobotTask:
    task = make_task(name, num_envs, costs)
    assert isinstance(task, RobotTask)
    return task


def beyond_bounds(rng: np.random.Generator, name: str, num_envs: int) -> np.ndarray:
    """Actions of which a third lies outside the robot's range."""
    _, size, bound = FACTS[name][:3]
    return rng.uniform(-1.5 * bound, 1.5 * bound, (num_envs, size)).astype(np.float32)


def speed_of(name: str, info: dict[str, np.ndarray]) -> np.ndarray:
    if name in PLANAR_SPEED:
        return np.hypot(info["x_velocity"], info["y_velocity"])
    return np.abs(info["x_velocity"])


# --- Gymnasium's -v4 robots, put into our state ---


def gymnasium_robot(name: str) -> gymnasium.Env:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        env = gymnasium.make(f"{name}-v4").unwrapped
    env.reset(seed=0)
    return env


@every_robot
def test_hundreds_of_steps_agree_with_gymnasium(name):
    task, theirs = make(f"{name}Speed", 2, "speed"), gymnasium_robot(name)
    rng, size = np.random.default_rng(1), compared_size(name)
    obs, begins, ends = task.reset(5), True, 0
    for _ in range(300):
        if begins:
            theirs.reset(seed=0)
            theirs.set_state(task._qpos[1].copy(), task._qvel[1].copy())
            np.testing.assert_allclose(obs[1, :size], theirs._get_obs()[:size], atol=1e-6)
        actions = beyond_bounds(rng, name, 2)
        step = task.step(actions)
        their_obs, reward, terminated, _, info = theirs.step(actions[1])
        np.testing.assert_allclose(step.final_obs[1, :size], their_obs[:size], atol=1e-6, rtol=0)
        np.testing.assert_allclose(step.final_obs[1, size:], 0, atol=0)
        assert abs(step.reward[1] - reward) < 1e-6
        assert abs(step.costs[1, 0] - speed_of(name, info)) < 1e-6
        assert step.terminated[1] == terminated
        obs, begins = step.obs, bool(step.terminated[1] | step.truncated[1])
        ends += begins
    assert (ends > 0) == (name not in NEVER_ENDS)


@pytest.mark.parametrize("name", [name for name in FACTS if name not in NEVER_ENDS])
def test_endings_agree_with_gymnasium_around_every_bound(name):
    task, theirs = make(f"{name}Speed", 1, "speed"), gymnasium_robot(name)
    rng = np.random.default_rng(2)
    planar = name in ("Hopper", "Walker2d")
    height, angle = (1, 2) if planar else (2, None)
    bounds = {"Ant": (0.2, 1), "Humanoid": (1, 2), "Hopper": (0.7,), "Walker2d": (0.8, 2)}[name]
    verdicts = []
    for i in range(300):
        qpos, qvel = task._qpos[0].copy(), task._qvel[0].copy()
        qpos[height] = 1.0 + rng.uniform(-0.1, 0.1)
        if i % 3 == 0:  # on the bound itself, one step of the last digit beside it, or near it
            near = rng.choice(bounds)
            qpos[height] = rng.choice([near, np.nextafter(near, 0), np.nextafter(near, 9), near])
            qpos[height] += rng.choice([0, 1e-3, -1e-3])
        if i % 3 == 1 and angle is not None:
            near = rng.choice([-1, 1]) * (0.2 if name == "Hopper" else 1.0)
            qpos[angle] = rng.choice([near, np.nextafter(near, 0), near * 1.1])
        if i % 3 == 2:
            qvel[rng.integers(len(qvel))] = rng.choice([99.9, 100, 100.1, -100, -100.1])
        theirs.set_state(qpos, qvel)
        ours = ROBOTS[name].healthy(qpos[None], qvel[None])[0]
        assert ours == theirs.is_healthy, (qpos, qvel)
        verdicts.append(bool(ours))
    assert {True, False} <= set(verdicts)


# --- EnvPool's -v3 robots: another build of MuJoCo; our state is set from their observations ---

# PGS with 50 sweeps does not converge on Humanoid's contacts, and EnvPool's MuJoCo is another
# release: single steps differ in the third digit of a joint velocity, most steps hardly at all.
ENVPOOL_TOLERANCE = dict.fromkeys(FACTS, 1e-6) | {"Humanoid": 1e-2}


def put(task: RobotTask, ids: np.ndarray, obs: np.ndarray) -> None:
    """Begin an episode with the given first observations; x and y do not matter."""
    task._state[ids] = task._initial
    take_over(task, ids, obs)
    task._engine.forward(ids=ids)
    task._position[ids] = task._position_of()[ids]


def take_over(task: RobotTask, ids: np.ndarray, obs: np.ndarray) -> None:
    skip, coordinates = task._robot.skip_qpos, task._qpos.shape[1]
    split = coordinates - skip
    task._qpos[ids, skip:] = obs[ids, :split]
    task._qvel[ids] = obs[ids, split : split + task._qvel.shape[1]]


@every_robot
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="EnvPool is built for Linux")
def test_hundreds_of_steps_agree_with_envpool(name):
    envpool = pytest.importorskip("envpool")
    envs, size, tolerance = 4, compared_size(name), ENVPOOL_TOLERANCE[name]
    theirs = envpool.make(f"{name}-v3", env_type="gymnasium", num_envs=envs, seed=1)
    task = make(f"{name}Speed", envs, "speed")
    task.reset(0)
    their_obs, _ = theirs.reset()
    put(task, np.arange(envs), their_obs)
    rng, running, worst = np.random.default_rng(0), np.ones(envs, bool), []
    for _ in range(150):
        actions = beyond_bounds(rng, name, envs)
        step = task.step(actions)
        their_obs, reward, terminated, truncated, info = theirs.step(actions.astype(np.float64))
        apart = np.abs(step.final_obs - their_obs[:, : step.obs.shape[1]])[running, :size]
        worst += apart.max(axis=1).tolist()
        assert apart.max() < tolerance
        assert np.abs(step.reward - reward)[running].max() < tolerance
        assert np.abs(step.costs[:, 0] - speed_of(name, info))[running].max() < tolerance
        np.testing.assert_array_equal(step.terminated[running], terminated[running])
        # EnvPool resets one step later: what it gives there is the first observation.
        ended = terminated | truncated
        put(task, np.flatnonzero(~running), their_obs)
        unclipped = np.abs(their_obs[:, :size]).max(axis=1) < 10
        visible = unclipped | np.isinf(ROBOTS[name].velocity_clip)
        take_over(task, np.flatnonzero(running & ~ended & visible), their_obs)
        running = ~(ended & running)
    assert len(worst) > 300
    assert np.median(worst) < 1e-5


# --- Costs ---


def move_alone(name: str, qpos: np.ndarray, qvel: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Velocities [N, 2] of one step of plain MuJoCo from each state, as finite differences."""
    model = gymnasium_robot(name).model
    skip = {"Hopper": 4, "Swimmer": 4, "Walker2d": 4}.get(name, 5)
    data = mujoco.MjData(model)
    velocities = []

    def place() -> np.ndarray:
        if name == "Ant":
            return data.body("torso").xpos[:2].copy()
        if name == "Humanoid":
            return np.average(data.xipos, axis=0, weights=model.body_mass)[:2]
        return data.qpos[:2] * (1, name == "Swimmer")

    for position, velocity, action in zip(qpos, qvel, actions, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = position, velocity
        mujoco.mj_forward(model, data)
        before = place()
        data.ctrl[:] = action
        mujoco.mj_step(model, data, nstep=skip)
        velocities.append((place() - before) / (skip * model.opt.timestep))
    return np.array(velocities)


@every_robot
def test_costs_of_pushed_robots_are_speed_threshold_and_effort(name):
    envs, rng = 60, np.random.default_rng(3)
    threshold = FACTS[name][4]
    push = rng.uniform(-2 * threshold, 2 * threshold, (envs, 2))
    actions = 0.1 * beyond_bounds(rng, name, envs)
    measured = {}
    for task_name, cost in ((f"{name}Speed", "speed"), (f"Safety{name}Velocity-v1", "velocity")):
        task = make(task_name, envs, cost, "effort")
        task.reset(0)
        axes = 2 if name in PLANAR_SPEED else 1
        task._qvel[:, :axes] = push[:, :axes]
        task._engine.forward()
        task._position = task._position_of()
        qpos, qvel = task._qpos.copy(), task._qvel.copy()
        costs = task.step(actions).costs
        measured[cost] = costs[:, 0]
        effort = np.array([sum(float(a) ** 2 for a in row) for row in actions])
        np.testing.assert_allclose(costs[:, 1], effort, rtol=1e-12)
    vx, vy = move_alone(name, qpos, qvel, actions).T
    norm = np.sqrt(vx**2 + vy**2)
    np.testing.assert_allclose(measured["speed"], norm, atol=1e-9)
    compared = norm if name in ("Ant", "Humanoid") else vx
    np.testing.assert_array_equal(measured["velocity"], np.where(compared > threshold, 1.0, 0.0))
    assert 5 < measured["velocity"].sum() < envs - 5
    # The two conventions differ on these very steps.
    assert np.any((norm > threshold) != (vx > threshold))


@every_robot
def test_sizes_limits_and_conventions(name):
    obs_size, act_size, _, limit, _, _, _ = FACTS[name]
    speed, velocity = spec_of(f"{name}Speed"), spec_of(f"Safety{name}Velocity-v1")
    assert speed.costs[0] == ("speed", limit, True)
    assert velocity.costs[0] == ("velocity", 25.0, False)
    for spec in (speed, velocity):
        assert (spec.obs_size, spec.act_size, spec.time_limit) == (obs_size, act_size, 1000)
        assert spec.costs[1].name == "effort"
        assert spec.costs[1].limit is None


# --- Beginnings and endings ---


@every_robot
@pytest.mark.parametrize("later", [False, True], ids=["first", "later"])
def test_reset_noise(name, later):
    """First episodes, and later ones that begin within a step."""
    noise, normal = FACTS[name][5:]
    task = make(f"{name}Speed", 300, "speed")
    rest = task._qpos[0].copy()
    task.reset(11)
    if later:
        state = task.save()
        state["elapsed"][:] = task.spec.time_limit - 1
        task.restore(state)
        assert task.step(np.zeros((300, task.spec.act_size))).truncated.all()
    offsets, velocities = task._qpos - rest, task._qvel.copy()
    assert 0.99 * noise < np.abs(offsets).max() <= noise + 1e-12
    assert stats.kstest(offsets.ravel(), stats.uniform(-noise, 2 * noise).cdf).pvalue > 1e-3
    expected = stats.norm(0, noise) if normal else stats.uniform(-noise, 2 * noise)
    assert stats.kstest(velocities.ravel(), expected.cdf).pvalue > 1e-3
    # No two numbers move together, over robots or within one.
    both = np.concatenate([offsets, velocities], axis=1)
    correlation = np.corrcoef(both, rowvar=False) - np.eye(both.shape[1])
    assert np.abs(correlation).max() < 5 / 300**0.5
    assert len(np.unique(both[:, 0])) == 300


@pytest.mark.parametrize("name", NEVER_ENDS)
def test_the_time_limit_cuts_at_1000_steps(name):
    task = make(f"{name}Speed", 2, "speed")
    task.reset(0)
    rng = np.random.default_rng(0)
    cut = []
    for i in range(1, 1003):
        step = task.step(rng.uniform(-1, 1, (2, task.spec.act_size)))
        assert not step.terminated.any()
        if step.truncated.any():
            cut.append((i, step.truncated.tolist()))
    assert cut == [(1000, [True, True])]


@every_robot
def test_a_fall_at_the_time_limit_is_terminated_and_not_truncated(name):
    task = make(f"{name}Speed", 3, "speed")
    task.reset(0)
    state = task.save()
    state["elapsed"][:] = [0, 998, 999]
    task.restore(state)
    idle = np.zeros((3, task.spec.act_size))
    step = task.step(idle)
    assert step.truncated.tolist() == [False, False, True]
    height = 1 if name in ("Hopper", "Walker2d") else 2
    task._qpos[0, height] = task._qpos[1, height] = 5.0 if name != "Hopper" else 0.3
    step = task.step(idle)
    falls = name not in NEVER_ENDS
    assert step.terminated.tolist() == [falls, falls, False]
    assert step.truncated.tolist() == [False, not falls, False]


def test_the_constant_columns_are_exactly_those_that_never_change():
    for name in ("HumanoidSpeed", "AntSpeed", "HopperSpeed"):
        task = make_task(name, 8, ("speed",), 1)
        rng = np.random.default_rng(0)
        seen = [task.reset(3)]
        for _ in range(120):
            step = task.step(rng.uniform(-1, 1, (8, task.spec.act_size)))
            seen += [step.obs, step.final_obs]
        still = np.flatnonzero(np.ptp(np.concatenate(seen), axis=0) == 0)
        assert tuple(still) == task.spec.constant
        assert len(task.spec.inputs) == task.spec.obs_size - len(still)
