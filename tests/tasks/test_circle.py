"""Circle tasks against closed forms and a second, single simulation."""

import mujoco
import numpy as np
import pytest
from scipy import stats

from cupola.tasks import make_task, specs
from cupola.tasks.circle import STRIPS, reward
from cupola.tasks.speed import _ASSETS, ROBOTS, Motion

every_circle = pytest.mark.parametrize("name", STRIPS)
MODELS = {"AntCircle": "ant.xml", "HumanoidCircle": "humanoid.xml"}


def motion(position: tuple[float, float], velocity: tuple[float, float]) -> Motion:
    return Motion(np.array([position]), np.array([velocity]), np.zeros(1))


@pytest.mark.parametrize(
    ("position", "velocity", "expected"),
    [
        ((10.0, 0.0), (0.0, 2.0), 20.0),  # on the circle, anticlockwise
        ((10.0, 0.0), (0.0, -2.0), -20.0),  # clockwise
        ((0.0, -10.0), (3.0, 0.0), 30.0),
        ((10.0, 0.0), (5.0, 0.0), 0.0),  # outwards
        ((6.0, 8.0), (-0.8, 0.6), 10.0),
        ((0.0, 12.0), (-1.0, 0.0), 4.0),  # two metres outside: 12 / (1 + 2)
        ((0.0, 5.0), (-1.0, 0.0), 5 / 6),
        ((0.0, 0.0), (1.0, 1.0), 0.0),
    ],
)
def test_reward_is_angular_momentum_over_distance_from_the_circle(position, velocity, expected):
    np.testing.assert_allclose(reward(motion(position, velocity)), [expected], rtol=1e-14)


@every_circle
def test_steps_from_hand_placed_states(name):
    """Reward, cost and observation of one step, beside plain MuJoCo."""
    robot = ROBOTS[name.removesuffix("Circle")]
    model = mujoco.MjModel.from_xml_path(str(_ASSETS / MODELS[name]))
    strip = STRIPS[name]
    places = np.array([[10, 0], [strip + 0.2, 8], [strip - 0.2, 8], [-strip - 0.2, 9], [0.3, -11]])
    task = make_task(name, len(places), ("strip",), 1)
    task.reset(3)
    task._qpos[:, :2] = places
    task._qvel[:, :2] = np.random.default_rng(0).normal(size=places.shape)
    task._engine.forward()
    task._position = task._position_of()
    before = task.save()["physics"]
    actions = np.random.default_rng(1).uniform(-0.3, 0.3, (len(places), model.nu))
    step = task.step(actions)

    def position(data: mujoco.MjData) -> np.ndarray:
        if name == "AntCircle":
            return data.body("torso").xpos[:2].copy()
        return (model.body_mass @ data.xipos)[:2] / model.body_mass.sum()

    for i in range(len(places)):
        data = mujoco.MjData(model)
        mujoco.mj_setState(model, data, before[i], mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(model, data)
        start = position(data)
        data.ctrl[:] = actions[i]
        for _ in range(robot.frame_skip):
            mujoco.mj_step(model, data)
        x, y = position(data)
        vx, vy = (position(data) - start) / (robot.frame_skip * model.opt.timestep)
        paid = (x * vy - y * vx) / (1 + abs((x * x + y * y) ** 0.5 - 10))
        np.testing.assert_allclose(step.reward[i], paid, rtol=1e-9)
        assert step.costs[i, 0] == (abs(x) > strip)
        np.testing.assert_allclose(step.final_obs[i, : model.nq], data.qpos, atol=1e-12)
        velocities = step.final_obs[i, model.nq : model.nq + model.nv]
        np.testing.assert_allclose(velocities, data.qvel, atol=1e-12)
    assert step.costs[:, 0].tolist() == [1, 1, 0, 1, 0]


@every_circle
def test_resets_lie_on_the_circle_at_uniform_angles(name):
    task = make_task(name, 2000, ("strip",), 1)
    obs = task.reset(11)
    x, y = obs[:, 0], obs[:, 1]
    np.testing.assert_allclose(np.hypot(x, y), 10, rtol=1e-12)
    angles = np.arctan2(y, x)
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3
    inside = float(np.mean(np.abs(x) <= STRIPS[name]))
    share = 2 / np.pi * np.arcsin(STRIPS[name] / 10)
    assert round(share, 3) == {"AntCircle": 0.194, "HumanoidCircle": 0.161}[name]
    assert abs(inside - share) < 4 * (share * (1 - share) / 2000) ** 0.5


def test_sizes_costs_and_limits():
    ant, humanoid = specs()["AntCircle"], specs()["HumanoidCircle"]
    assert (ant.obs_size, ant.act_size, humanoid.obs_size, humanoid.act_size) == (29, 8, 378, 17)
    for spec in (ant, humanoid):
        assert spec.costs == (("strip", 50.0, True),)
        assert spec.time_limit == 1000


@every_circle
def test_a_fall_ends_the_episode_and_leaving_the_strip_does_not(name):
    task = make_task(name, 2, ("strip",), 1)
    task.reset(0)
    task._qpos[:, :2] = [[9.0, 4.0], [0.0, 10.0]]
    task._qpos[1, 2] = 5.0
    step = task.step(np.zeros((2, task.spec.act_size)))
    assert step.costs[:, 0].tolist() == [1, 0]
    assert step.terminated.tolist() == [False, True]
