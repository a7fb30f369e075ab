"""Every task can be drawn, with MuJoCo's renderer and without."""

import subprocess
import sys

import numpy as np
import pytest

from cupola.tasks import make_task, opengl, specs
from cupola.tasks.canvas import ALARM, INK

needs_opengl = pytest.mark.skipif(
    opengl.working_platform() is None, reason="MuJoCo cannot draw here"
)


@pytest.fixture
def flat(monkeypatch):
    monkeypatch.setattr("cupola.tasks.robot_picture.find_camera", lambda *_: None)


def make(name, count=2):
    task = make_task(name, count, (specs()[name].costs[0].name,), 1)
    task.reset(0)
    return task


def act(task, steps=1, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        step = task.step(rng.uniform(-1, 1, (task.num_envs, task.spec.act_size)))
    return step


@pytest.mark.parametrize("name", sorted(specs()))
def test_every_task_can_be_drawn(flat, name):
    task = make(name)
    before = task.render(1, 160, 120)
    assert (before.shape, before.dtype) == ((120, 160, 3), np.uint8)
    assert before.std() > 2
    pictures = []
    for seed in range(10):
        act(task, seed=seed)
        pictures.append(task.render(1, 160, 120))
    assert any(not np.array_equal(before, picture) for picture in pictures)
    np.testing.assert_array_equal(pictures[-1], task.render(1, 160, 120))


@pytest.mark.parametrize("name", ["HopperSpeed", "AntSpeed", "SwimmerSpeed", "HumanoidCircle"])
def test_robots_stand_in_the_middle_of_their_picture(flat, name):
    picture = make(name).render(1)
    assert picture.shape == (480, 480, 3)
    brown = np.linalg.norm(picture / 255 - (0.8, 0.6, 0.4), axis=2) < 0.05
    assert 200 < brown.sum() < 60_000
    _, columns = brown.nonzero()
    assert abs(columns.mean() - 240) < 30


@pytest.mark.parametrize("mujoco", [pytest.param(True, marks=needs_opengl), False])
def test_the_map_shows_the_strip_and_where_the_robot_is(monkeypatch, mujoco):
    if not mujoco:
        monkeypatch.setattr("cupola.tasks.robot_picture.find_camera", lambda *_: None)
    task = make("AntCircle", 24)
    costs = act(task).costs[:, 0]
    assert 0 < costs.sum() < 24
    for env in (int(costs.argmin()), int(costs.argmax())):
        inset = task.render(env)[:173, -173:]
        colour = np.array(ALARM if costs[env] else INK)
        there = np.linalg.norm(inset[3:-3, 3:-3] / 255 - colour, axis=2) < 0.02
        rows, columns = np.array(there.nonzero()).mean(axis=1) + 3.5
        x, y = (columns - 86.5) / 173 * 24, (86.5 - rows) / 173 * 24
        np.testing.assert_allclose([x, y], task._qpos[env, :2], atol=0.15)
        green = np.linalg.norm(inset / 255 - (0.755, 0.9, 0.76), axis=2) < 0.02
        assert green.mean() == pytest.approx(6 / 24, abs=0.04)
    task.close()


def test_the_end_of_an_episode_can_be_drawn_after_it(flat):
    task, ended = make("HopperSpeed", 1), False
    while not ended:
        step = act(task)
        ended = bool(step.terminated[0])
    np.testing.assert_array_equal(task._end_qpos[0, 1:], step.final_obs[0, :5])
    end, start = task.render(0, end=True), task.render(0)
    assert not np.array_equal(end, start)
    task._qpos[0] = task._end_qpos[0]
    np.testing.assert_array_equal(task.render(0), end)


def test_the_end_of_a_drive_can_be_drawn_after_it():
    task = make("PointGoal1", 1)
    act(task, 998)
    before = task.render(0)
    act(task, 2)
    end = task.render(0, end=True)
    assert (end != before).mean() < 0.1, "the same scene"
    assert (task.render(0) != before).mean() > 0.05, "another one"


def test_a_step_of_a_robot_says_how_fast_it_was():
    task = make("SwimmerSpeed")
    before = task._qpos[:, :2].copy()
    step = act(task)
    speeds = np.hypot(*(task._qpos[:, :2] - before).T) / 0.04
    assert task.gauges(1) == [f"speed {speeds[1]:.2f} m/s"]
    np.testing.assert_allclose(step.costs[:, 0], speeds)


@needs_opengl
@pytest.mark.parametrize("name", ["HopperSpeed", "AntCircle"])
def test_mujoco_draws_robots_in_the_middle(name):
    task = make(name)
    picture = task.render(0, 120, 90)
    assert (picture.shape, picture.dtype) == ((90, 120, 3), np.uint8)
    again = task.render(0, 120, 90)  # software renderers round a pixel or two either way
    np.testing.assert_allclose(picture.astype(int), again.astype(int), atol=2)
    red, _, blue = picture[:, :80].transpose(2, 0, 1).astype(int)  # without the map
    rows, columns = (red > 1.3 * blue).nonzero()
    assert 50 < len(rows) < 1500
    assert abs(columns.mean() - 60) < 6
    assert abs(rows.mean() - 45) < 15
    assert not np.array_equal(picture, task.render(1, 120, 90))
    task.close()


def test_a_driver_that_ends_the_process_is_not_used(monkeypatch):
    monkeypatch.setattr(opengl, "_TRIAL", "import os; os.abort()")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert opengl.working_platform.__wrapped__() is None
    for asked in ("disable", "glfw"):
        monkeypatch.setenv("MUJOCO_GL", asked)
        assert opengl.working_platform.__wrapped__() is None


def test_listing_tasks_needs_no_pictures():
    program = "import cupola, cupola.tasks as t, sys; t.specs(); sys.exit('PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
