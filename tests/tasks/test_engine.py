"""The two engines against each other, and the plain one against MuJoCo without any engine."""

from collections.abc import Callable

import mujoco
import numpy as np
import pytest

from cupola import native
from cupola.errors import CupolaError
from cupola.tasks import engine, make_task, spec_of
from cupola.tasks.base import Task
from cupola.tasks.engine import Engine, NativeEngine, PlainEngine, engine_name, make_engine
from cupola.tasks.safety_gym import SCENES, world
from cupola.tasks.speed import ROBOTS, model_path

ENVS = 5
MODELS: dict[str, Callable[[], mujoco.MjModel]] = {
    **{
        name: lambda name=name: mujoco.MjModel.from_xml_path(str(model_path(ROBOTS[name])))
        for name in ROBOTS
    },
    **{name: lambda name=name: world.build(SCENES[name]) for name in ("PointGoal1", "CarButton1")},
}
STATE = ("time", "qpos", "qvel", "ctrl", "qfrc_applied", "mocap_pos", "mocap_quat")
DERIVED = ("sensordata", "xpos", "xmat", "xipos", "cinert", "cvel", "qfrc_actuator")
compiled = pytest.mark.skipif(engine_name() != "native", reason="without the compiled part")
every_model = pytest.mark.parametrize("name", MODELS)


def bound(of: Engine) -> dict[str, np.ndarray]:
    return {name: of.bind(name) for name in ("state", *STATE, *DERIVED)}


def assert_same_bits(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        other = right[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert array.tobytes() == other.tobytes(), name


def drive(of: Engine, steps: int) -> list[dict[str, np.ndarray]]:
    """Copies of all fields after each call.

    Motors, mocap bodies and forces are driven, velocities pushed, rows reset and restored.
    """
    rng, fields, seen = np.random.default_rng(0), bound(of), []

    def look() -> None:
        seen.append({name: array.copy() for name, array in fields.items()})

    of.forward()
    look()
    initial, saved = fields["state"][0].copy(), fields["state"].copy()
    for step in range(steps):
        fields["ctrl"][:] = rng.uniform(-1.5, 1.5, fields["ctrl"].shape)
        fields["mocap_pos"][:] += rng.normal(0, 0.01, fields["mocap_pos"].shape)
        fields["qfrc_applied"][:] = rng.normal(0, 1e-4, fields["qfrc_applied"].shape)
        of.step(nstep=1 + step % 4)
        look()
        if step % 10 == 3:  # some begin anew, and only these are made current
            ids = np.flatnonzero(rng.random(ENVS) < 0.5)
            fields["state"][ids] = initial
            fields["qvel"][ids] += rng.normal(0, 0.5, (len(ids), fields["qvel"].shape[1]))
            of.forward(ids=ids)
            look()
        if step % 50 == 20:
            saved = fields["state"].copy()
        if step % 50 == 40:
            fields["state"][:] = saved
            look()
    return seen


@compiled
@every_model
def test_both_engines_give_the_same_bits(name):
    model = MODELS[name]()
    theirs = drive(PlainEngine(model, ENVS, 1), 300)
    for other in (
        NativeEngine(model, ENVS, 1),
        NativeEngine(model, ENVS, 3),
        PlainEngine(model, ENVS, 3),
    ):
        ours = drive(other, 300)
        assert len(ours) == len(theirs) > 300
        for left, right in zip(ours, theirs, strict=True):
            assert_same_bits(left, right)
    assert len(np.unique(theirs[-1]["qpos"], axis=0)) == ENVS


@every_model
def test_the_plain_engine_is_mujoco_with_an_mjdata_per_simulation(name):
    """Also where no mjbatch fits the installed MuJoCo."""
    model, rng = MODELS[name](), np.random.default_rng(1)
    ours = PlainEngine(model, ENVS, 2)
    fields, alone = bound(ours), [mujoco.MjData(model) for _ in range(ENVS)]
    for data in alone:
        mujoco.mj_forward(model, data)
    for _ in range(100):
        ctrl = rng.uniform(-1.5, 1.5, (ENVS, model.nu))
        drift = rng.normal(0, 0.01, (ENVS, model.nmocap, 3))
        fields["ctrl"][:] = ctrl
        fields["mocap_pos"][:] += drift
        ours.step(nstep=3)
        for i, data in enumerate(alone):
            data.ctrl[:] = ctrl[i]
            data.mocap_pos[:] += drift[i]
            mujoco.mj_step(model, data, nstep=3)
            for field in (*STATE, *DERIVED):
                theirs = np.asarray(getattr(data, field))
                assert fields[field][i].tobytes() == theirs.tobytes(), field


@compiled
def test_what_the_physics_breaks_is_reset_alike_by_both(tmp_path, monkeypatch):
    """MuJoCo puts a simulation that diverges back to its initial state."""
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file there
    model = MODELS["Hopper"]()
    ends = []
    for of in (NativeEngine(model, ENVS, 1), PlainEngine(model, ENVS, 1)):
        fields = bound(of)
        fields["ctrl"][:] = 0.5
        of.step(nstep=7)
        fields["qvel"][1, 0] = 1e12
        fields["qpos"][2, 1] = np.nan
        of.step(nstep=3)
        assert fields["time"].round(6).tolist() == [0.02, 0.006, 0.006, 0.02, 0.02]
        of.step(nstep=3)
        ends.append({name: array.copy() for name, array in fields.items()})
    assert_same_bits(*ends)


# ---- whole tasks


def make(name: str, kind: str, monkeypatch: pytest.MonkeyPatch, threads: int = 1) -> Task:
    monkeypatch.setenv(engine.VARIABLE, kind)
    costs = tuple(cost.name for cost in spec_of(name).costs)
    return make_task(name, ENVS, costs, threads)


@compiled
@pytest.mark.parametrize(
    "name",
    ["HopperSpeed", "HumanoidSpeed", "AntCircle"],  # Safety Gym: test_playing.py
)
def test_a_task_is_the_same_on_both_engines(name, monkeypatch):
    theirs, ours = make(name, "native", monkeypatch), make(name, "plain", monkeypatch)
    assert isinstance(theirs._engine, NativeEngine)
    assert isinstance(ours._engine, PlainEngine)
    rng, ends = np.random.default_rng(0), 0
    first = [task.reset(4, stagger=True) for task in (theirs, ours)]
    assert first[0].tobytes() == first[1].tobytes()
    for step in range(250):
        actions = rng.uniform(-1, 1, (ENVS, theirs.spec.act_size))
        left, right = theirs.step(actions)._asdict(), ours.step(actions)._asdict()
        assert_same_bits(left, right)
        ends += int((left["terminated"] | left["truncated"]).sum())
        if step % 60 == 30:
            assert_same_bits(theirs.save(), ours.save())
            state, theirs, ours = theirs.save(), ours, make(name, "plain", monkeypatch, threads=2)
            ours.restore(state)  # what was saved on one engine goes on on the other
    assert ends > 0


# ---- the choice


@compiled
def test_the_compiled_part_is_chosen_where_it_is_there_and_else_the_plain_engine(monkeypatch):
    model = MODELS["Hopper"]()
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    assert engine_name() == "native"
    assert isinstance(make_engine(model, 2, 1), NativeEngine)
    monkeypatch.setenv(engine.VARIABLE, "plain")
    assert isinstance(make_engine(model, 2, 1), PlainEngine)
    monkeypatch.delenv(engine.VARIABLE)
    monkeypatch.setattr(native, "library", lambda: None)
    assert isinstance(make_engine(model, 2, 0), PlainEngine)


def test_an_engine_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv(engine.VARIABLE, "fast")
    with pytest.raises(CupolaError, match="CUPOLA_ENGINE is 'fast': write native or plain"):
        make_task("HopperSpeed", 1, ("speed",))
    monkeypatch.setenv(engine.VARIABLE, "native")
    monkeypatch.setattr(native, "library", lambda: None)
    with pytest.raises(CupolaError, match=r"without its compiled part.*CUPOLA_ENGINE=plain"):
        make_task("HopperSpeed", 1, ("speed",))
