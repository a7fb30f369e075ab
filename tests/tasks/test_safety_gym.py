"""Safety Gym against recordings of the original, closed forms and second implementations."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np
import pytest
from scipy import stats

from cupola.errors import CupolaError
from cupola.tasks import make_task, spec_of, specs
from cupola.tasks.safety_gym import SCENES, world
from cupola.tasks.safety_gym.layout import sample_layout
from cupola.tasks.safety_gym.lidar import ego, lidar
from cupola.tasks.safety_gym.picture import COLOURS
from cupola.tasks.safety_gym.task import SafetyGymTask

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "safety_gym"
RECORDED = sorted(path.stem for path in GOLDEN.glob("*.npz"))
every_recording = pytest.mark.parametrize("alias", RECORDED)


@pytest.fixture(scope="module")
def parity() -> Iterator[ModuleType]:
    """tests/tasks/parity.py, which is a script as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        import parity

        yield parity


def make(name: str, num_envs: int, *costs: str) -> SafetyGymTask:
    task = make_task(name, num_envs, costs or ("cost",), 1)
    assert isinstance(task, SafetyGymTask)
    return task


def idle(task: SafetyGymTask) -> np.ndarray:
    return np.zeros((task.num_envs, 2))


# ---- recordings


@every_recording
def test_recorded_rows_are_reproduced(parity, alias):
    """Every row's reward and costs; observations and states wherever MuJoCo still agrees."""
    report = parity.compare(alias, GOLDEN / f"{alias}.npz")
    for quantity in ("reward", "goal", "cost", *(f"cost_{part}" for part in parity.PARTS)):
        assert report[quantity]["max"] <= 1e-6, quantity
    assert report["clear_steps"] > report["steps"] / 2
    assert report["clear_rows_out_of_tolerance"] == 0
    assert report["observation"]["clear"]["max"] <= 1e-6
    assert report["next_state"]["median"] <= 1e-8


def test_parity_sees_what_is_wrong(parity, tmp_path):
    alias = "SafetyPointGoal1-v0"
    with np.load(GOLDEN / f"{alias}.npz") as stored:
        arrays = {key: stored[key].copy() for key in stored.files}
    arrays["s0/obs"][5, 30] += 1e-3
    arrays["s0/reward"][2] += 1e-3
    arrays["s2/cost"][1] = 1 - arrays["s2/cost"][1]
    np.savez(tmp_path / "wrong.npz", **arrays)
    report = parity.compare(alias, tmp_path / "wrong.npz")
    out = {name: report[name]["rows_out"] for name in ("reward", "cost", "cost_hazards", "goal")}
    assert out == {"reward": 1, "cost": 1, "cost_hazards": 0, "goal": 0}
    assert report["observation"]["rows_out"] >= 1
    assert report["observation"]["max"] == pytest.approx(1e-3, rel=1e-6)
    with pytest.raises(CupolaError, match="the task has 10 hazards, the recording 8"):
        parity.compare("PointGoal2", tmp_path / "wrong.npz")


@every_recording
def test_the_model_has_the_recorded_numbers(alias):
    recorded = json.loads((GOLDEN / f"{alias}.model.json").read_text())
    model = world.build(SCENES[spec_of(alias).name])
    for option in ("timestep", "integrator", "solver", "cone", "impratio", "iterations"):
        assert getattr(model.opt, option) == recorded[option]
    bodies = {name: i for i, name in enumerate(recorded["body_names"])}
    geoms = {name: i for i, name in enumerate(recorded["geom_names"])}
    joints = {name: i for i, name in enumerate(recorded["joint_names"])}

    def same(field: str, ours: int, theirs: int) -> None:
        expected = recorded[field][theirs]
        np.testing.assert_allclose(getattr(model, field)[ours], expected, atol=1e-15, err_msg=field)

    for i in range(1, model.nbody):
        name = model.body(i).name
        if not name.startswith("button") and not name.endswith("mocap"):  # immovable: no mass
            for field in ("body_mass", "body_inertia", "body_ipos"):
                same(field, i, bodies[name])
        if model.body_parentid[i]:
            same("body_pos", i, bodies[name])
    for i in range(model.ngeom):
        if model.geom(i).name.endswith("core"):  # what a wheel meets of a button: ours alone
            continue
        theirs = geoms[model.geom(i).name]
        for field in ("type", "pos", "quat", "friction", "contype", "conaffinity", "condim"):
            same(f"geom_{field}", i, theirs)
        for field in ("solref", "solimp", "margin", "priority"):
            same(f"geom_{field}", i, theirs)
        used = {mujoco.mjtGeom.mjGEOM_SPHERE: 1, mujoco.mjtGeom.mjGEOM_CYLINDER: 2}
        sizes = used.get(mujoco.mjtGeom(model.geom_type[i]), 3)
        np.testing.assert_array_equal(
            model.geom_size[i, :sizes], recorded["geom_size"][theirs][:sizes]
        )
    assert [model.joint(i).name for i in range(model.njnt)] == list(joints)
    for field in ("jnt_type", "jnt_axis", "jnt_pos", "dof_damping", "dof_armature"):
        np.testing.assert_array_equal(getattr(model, field), recorded[field], err_msg=field)
    for field in ("gear", "ctrlrange", "forcerange", "gainprm", "biastype", "trntype"):
        name = f"actuator_{field}"
        np.testing.assert_array_equal(getattr(model, name), recorded[name], err_msg=name)


# ---- sizes and names


def test_sizes_costs_and_aliases():
    sizes = {"PointGoal1": 60, "CarGoal1": 72, "PointButton1": 76, "CarButton1": 88}
    sizes |= {"PointGoal0": 28, "PointButton0": 44, "CarGoal2": 72, "PointButton2": 76}
    for name, size in sizes.items():
        spec = spec_of(f"Safety{name}-v0")
        assert spec is specs()[name]
        assert (spec.obs_size, spec.act_size, spec.time_limit) == (size, 2, 1000)
        assert spec.costs[0] == ("cost", 25.0, False)
    named = {name: [cost.name for cost in specs()[name].costs[1:]] for name in SCENES}
    assert named["PointGoal0"] == named["CarButton0"] == []
    assert named["PointGoal1"] == ["hazards"]
    assert named["CarGoal2"] == ["hazards", "vases"]
    assert named["PointButton1"] == named["CarButton2"] == ["hazards", "gremlins", "buttons"]
    with pytest.raises(CupolaError, match=r"unknown task 'SafetyPointGol1-v0': did you mean"):
        spec_of("SafetyPointGol1-v0")


# ---- layouts


def gaps(scene, agents: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Distances minus both keepouts, of all pairs, [n, pairs]."""
    keepouts = np.array([0.4, *scene.keepouts])
    places = np.concatenate([agents[:, None], objects], axis=1)
    first, second = np.triu_indices(len(keepouts), 1)
    apart = np.linalg.norm(places[:, first] - places[:, second], axis=2)
    return apart - keepouts[first] - keepouts[second]


@pytest.mark.parametrize(("name", "count"), [("PointGoal1", 2000), ("CarButton1", 400)])
def test_layouts(name, count):
    task = make(name, count)
    scene = task.scene
    task.reset(0)
    agents, objects = task._qpos[:, :2], task._objects.transpose(2, 1, 0)
    if scene.objective == "Button":  # the goal's own place of the layout gives way to its button's
        buttons = objects[:, scene.slices["buttons"]]
        goal = scene.slices["goal"].start
        np.testing.assert_array_equal(objects[:, goal], buttons[np.arange(count), task._button])
        counts = np.bincount(task._button, minlength=4)
        assert stats.chisquare(counts).pvalue > 1e-3
        kept = [i for i in range(objects.shape[1]) if i != goal]
        distances = gaps(scene, agents, objects)
        first, second = np.triu_indices(1 + objects.shape[1], 1)
        distances = distances[:, (first != goal + 1) & (second != goal + 1)]
    else:
        kept, distances = list(range(objects.shape[1])), gaps(scene, agents, objects)
    assert distances.min() >= 0
    bounds = scene.extent - np.array(scene.keepouts)[kept]
    assert np.all(np.abs(objects[:, kept]) <= bounds[:, None])
    assert np.abs(objects[:, kept]).max() > 0.98 * bounds.max()
    assert np.abs(agents).max() <= scene.extent - 0.4
    if scene.agent == "Point":
        headings = task._qpos[:, 2]
    else:
        headings = 2 * np.arctan2(task._qpos[:, 6], task._qpos[:, 3]) % (2 * np.pi)
    assert stats.kstest(headings, stats.uniform(0, 2 * np.pi).cdf).pvalue > 1e-3
    if scene.objective == "Goal":  # there is room enough: the first object lies anywhere
        uniform = stats.uniform(0.4 - scene.extent, 2 * (scene.extent - 0.4))
        for axis in (0, 1):
            assert stats.kstest(agents[:, axis], uniform.cdf).pvalue > 1e-3


def test_a_reached_goal_moves_to_a_free_place_and_pays_one():
    task = make("PointGoal1", 200)
    task.reset(1)
    seen = []
    for _ in range(5):
        goals = task._qpos[:, :2].T.copy()
        task._objects[:, 0] = goals
        task._distance[:] = np.zeros(200)
        step = task.step(idle(task))
        near = np.linalg.norm(task._qpos[:, :2] - goals.T, axis=1)
        np.testing.assert_allclose(step.reward, 1 - near, atol=1e-12)
        objects = task._objects.transpose(2, 1, 0)
        pairs = gaps(task.scene, task._qpos[:, :2], objects)
        first, second = np.triu_indices(1 + objects.shape[1], 1)
        assert pairs[:, (first == 1) | (second == 1)].min() >= -1e-9
        assert np.abs(objects[:, 0]).max() <= 1.5 - 0.305
        assert not step.terminated.any()
        seen.append(objects[:, 0].copy())
        apart = np.linalg.norm(objects[:, 0] - task._qpos[:, :2], axis=1)
        np.testing.assert_allclose(task._distance, apart, atol=1e-12)
    assert len(np.unique(np.concatenate(seen), axis=0)) == 1000


def test_an_episode_ends_where_no_goal_fits(monkeypatch):
    task = make("PointGoal1", 2)
    task.reset(0)
    monkeypatch.setattr("cupola.tasks.safety_gym.task.draw_free", lambda *_: None)
    task._objects[:, 0, 1] = task._qpos[1, :2]
    step = task.step(idle(task))
    assert step.terminated.tolist() == [False, True]
    assert task._clock.episodes.tolist() == [0, 1]


def test_impossible_layouts_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(CupolaError, match=r"30 objects with keepouts of 0.4 to 0.4 m do not fit"):
        sample_layout(rng, 1.0, [0.4] * 30)
    with pytest.raises(CupolaError, match=r"fit in a square of 0.6 m"):
        sample_layout(rng, 0.3, [0.4])


# ---- what the robot sees


def naive_lidar(places: np.ndarray) -> np.ndarray:
    """Readings [16] of one kind at ego-centric places [m, 2], as the original defines them."""
    readings = np.zeros(16)
    for x, y in places:
        angle = math.atan2(y, x) % (2 * math.pi)
        at = int(angle / (math.pi / 8))
        alias = angle / (math.pi / 8) - at
        sensed = max(0.0, 3 - math.hypot(x, y)) / 3
        for bin_, share in ((at, 1.0), (at + 1, alias), (at - 1, 1 - alias)):
            readings[bin_ % 16] = max(readings[bin_ % 16], share * sensed)
    return readings


def test_lidar_is_the_original_one():
    rng = np.random.default_rng(0)
    relative = rng.uniform(-3, 3, (50, 7, 2))
    height = rng.uniform(0.05, 0.2, 50)
    quaternions = rng.normal(size=(50, 4)) * [3, 0.3, 0.3, 3]
    frames = np.empty((50, 9))
    for frame, quaternion in zip(frames, quaternions, strict=True):
        mujoco.mju_quat2Mat(frame, quaternion / np.linalg.norm(quaternion))
    kinds = [slice(0, 1), slice(1, 5), slice(5, 7)]
    seen = ego(relative.T, height, frames)
    readings = lidar(seen, kinds).reshape(50, 3, 16)
    for i in range(50):
        world_vectors = np.column_stack([relative[i], np.full(7, -height[i])])
        places = (world_vectors @ frames[i].reshape(3, 3))[:, :2]
        np.testing.assert_allclose(seen[..., i].T, places, atol=1e-14)
        for k, kind in enumerate(kinds):
            np.testing.assert_allclose(readings[i, k], naive_lidar(places[kind]), atol=1e-14)


def test_lidar_at_and_beyond_its_ends():
    places = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]).T[:, :, None]
    readings = lidar(places, [slice(0, 1), slice(1, 2), slice(2, 3)]).reshape(3, 16)
    assert not readings[:2].any()
    assert readings[2].max() == 1.0


# ---- costs by hand


def test_hazards_cost_within_their_radius():
    task = make("PointGoal1", 4, "hazards", "cost")
    task.reset(0)
    agent = task._qpos[:, :2]
    task._objects[:, 1:9] = 5.0
    task._objects[0, 3] = agent[:, 0] + [0.0, 0.199, 0.201, 0.0]
    task._objects[1, 3] = agent[:, 1] + [0.0, 0.0, 0.0, -0.201]
    step = task.step(idle(task))
    np.testing.assert_array_equal(step.costs[:, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(step.costs[:, 1], step.costs[:, 0])


def on_buttons(task: SafetyGymTask, buttons: list[int]) -> None:
    """Put each robot onto one of its buttons, all else far away."""
    for env, button in enumerate(buttons):
        task._qpos[env, :2] = task._mocap_pos[env, task.scene.gremlins + button, :2] + [0.15, 0.0]
    task._qvel[:] = 0


def test_buttons_pay_cost_and_hide():
    task = make("PointButton0", 3)
    assert task.scene.costs == ()
    task = make("PointButton1", 3, "buttons", "cost")
    task.reset(4)
    task._button[:] = [0, 1, 2]
    task._objects[:, 4:] = 5.0  # goal and hazards
    task._centres[:] = 8.0
    task._loose_pos[:] += 8.0
    on_buttons(task, [0, 0, 0])
    task._distance[:] = np.linalg.norm(task._qpos[:, :2] - 5.0, axis=1)
    step = task.step(idle(task))
    np.testing.assert_allclose(step.reward, [1, 0, 0], atol=0.1)
    np.testing.assert_array_equal(step.costs[:, 0], [0, 1, 1])
    assert task._timer.tolist() == [10, 0, 0]
    lidars = slice(12, 28)
    assert not step.obs[0, lidars].any()
    assert step.obs[1:, lidars].any(axis=1).all()
    task._button[0] = 3  # button 0, which it touches, is a wrong one now
    for steps_left in range(9, -2, -1):
        on_buttons(task, [0, 0, 0])
        step = task.step(idle(task))
        assert step.costs[:, 0].tolist() == [steps_left < 0, 1, 1]
        assert step.obs[0, lidars].any() == (steps_left <= 0)
    np.testing.assert_array_equal(step.costs[:, 1], [1, 1, 1])


def test_a_wheel_presses_a_button():
    task = make("CarButton0", 2)
    task.reset(0)
    task._button[:] = 1
    task._qpos[:, 3:7] = [1, 0, 0, 0]
    for env, x in enumerate((-0.245, -0.26)):  # the left wheel ends 0.155 left of the centre
        task._qpos[env, :2] = task._mocap_pos[env, 1, :2] - [x, 0.1]
    task.advance(idle(task))
    assert task._button_touches.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def test_goal_buttons_are_uniform_and_may_repeat():
    task = make("PointButton0", 400)
    task.reset(0)
    first = task._button.copy()
    for env in range(400):
        task._next_goal(env)
    table = np.zeros((4, 4))
    np.add.at(table, (first, task._button), 1)
    assert stats.chisquare(table.ravel()).pvalue > 1e-3
    assert np.trace(table) > 0


def test_gremlins_circle_and_cost_when_touched():
    task = make("PointButton1", 2, "gremlins", "buttons")
    task.reset(0)
    task._qpos[:, :2] = 6.0  # out of their way
    actions = idle(task)
    for _ in range(150):
        step = task.step(actions)
    assert not step.costs.any()
    time = 150 * 0.02
    circle = 0.35 * np.array([math.sin(time), math.cos(time)])
    off = np.linalg.norm(task._loose_pos[..., :2] - task._centres - circle, axis=2)
    assert off.max() < 0.04  # the spring that holds them lags
    task._qpos[0, :2] = task._loose_pos[0, 2, :2] + [0.15, 0.0]
    step = task.step(actions)
    assert step.costs[:, 0].tolist() == [1, 0]


def test_welds_are_those_of_a_gremlin_that_does_not_spin():
    task = make("PointButton1", 1)
    task.reset(0)
    rng, scene = np.random.default_rng(0), task.scene
    task._loose_pos[..., :2] += 9.0
    task._loose_pos[..., 2] = 1.0
    task._loose_pos[..., 3:] += rng.normal(0, 0.2, (1, scene.gremlins, 4))
    task._loose_pos[..., 3:] /= np.linalg.norm(task._loose_pos[..., 3:], axis=-1, keepdims=True)
    task._loose_vel[..., 3:] = rng.normal(0, 1, (1, scene.gremlins, 3))
    model = world.build(scene)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, task._state[0], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    stiffness, damping, impedance, _ = data.efc_KBIP.T
    plain = -damping * data.efc_vel - stiffness * impedance * data.efc_pos
    excess = (data.efc_aref - plain) / data.efc_R
    torques = -excess @ data.efc_J.reshape(-1, model.nv)
    task._hold_gremlins(np.arange(task.num_envs))
    assert np.abs(task._torques).min() > 0
    np.testing.assert_allclose(task._torques[0], torques[3:].reshape(-1, 6)[:, 3:], rtol=1e-9)
    np.testing.assert_allclose(torques[3:].reshape(-1, 6)[:, :3], 0, atol=1e-15)


def test_vases_cost_when_touched_or_moving_at_level_2_only():
    for name, costs in (("PointGoal2", ("vases", "cost")), ("PointGoal1", ("hazards", "cost"))):
        task = make(name, 3, *costs)
        task.reset(0)
        task._objects[:, task._at["hazards"]] = 5.0
        for _ in range(30):  # until the vases rest
            task._qpos[:, :2], task._qvel[:, :3] = 6.0, 0.0
            step = task.step(idle(task))
        assert not step.costs.any()
        task._qpos[0, :2] = task._loose_pos[0, 0, :2] + [0.2, 0.0]
        task._loose_vel[1, 0, 0] = 0.5
        step = task.step(idle(task))
        expected = [1, 1, 0] if name == "PointGoal2" else [0, 0, 0]
        np.testing.assert_array_equal(step.costs, np.array([expected, expected]).T)


def test_cost_is_where_any_part_is():
    task = make("PointGoal2", 4, "vases", "cost", "hazards")
    charges = {
        "hazards": np.array([True, False, False, False]),
        "vases_contact": np.array([True, True, False, False]),
        "vases_velocity": np.array([False, False, True, False]),
    }
    expected = [[1, 1, 1], [1, 1, 0], [1, 1, 0], [0, 0, 0]]
    np.testing.assert_array_equal(task._add_up(charges), expected)


def test_actions_are_clipped():
    first, second = make("PointGoal0", 1), make("PointGoal0", 1)
    for task, size in ((first, 1.0), (second, 7.0)):
        task.reset(0)
        for _ in range(5):
            step = task.step(np.array([[size, -size]]))
    np.testing.assert_array_equal(first._qpos, second._qpos)
    assert step.obs.shape == (1, 28)


# ---- pictures


@pytest.mark.parametrize("name", ["PointGoal2", "CarButton1"])
def test_pictures_show_everything(name):
    task = make(name, 2)
    task.reset(3)
    picture = task.render(1)
    assert picture.shape == (480, 480, 3)
    assert picture.dtype == np.uint8
    assert not np.array_equal(picture, task.render(0))
    np.testing.assert_array_equal(picture, task.render(1))
    scene, far = task.scene, max(task.scene.extent, np.abs(task._qpos[1, :2]).max()) + 0.5
    for kind, at in scene.slices.items():
        for x, y in task._objects[:, at, 1].T:
            column, row = ((x + far) / (2 * far) * 480, (far - y) / (2 * far) * 480)
            pixel = picture[int(row), int(column)] / 255
            nearest = min(COLOURS, key=lambda k: np.linalg.norm(pixel - COLOURS[k]))
            solid = kind in ("vases", "gremlins", "buttons")
            goal = tuple(task._objects[:, scene.slices["goal"], 1].T[0])
            if solid and (x, y) != goal:
                assert nearest == kind, (kind, pixel)
            else:
                assert np.linalg.norm(pixel - (0.96, 0.95, 0.92)) > 0.1, (kind, pixel)
    state = task.save()
    fresh = make(name, 2)
    fresh.reset(0)
    fresh.restore(state)
    np.testing.assert_array_equal(fresh.render(1), picture)
