"""The physical world of a scene as MJCF: floor, robot, vases, gremlins and buttons.

Goal and hazards touch nothing, so they are not part of the model. Buttons, which stand still but at
other places in every episode, and the gremlins' targets, which move along a path, are mocap bodies:
their places belong to the state, and one model serves all environments.

Sensors, in this order: accelerometer, velocimeter, gyro, magnetometer; of the Car's rear ball the
angular velocity and the rotation matrix, whose rows are the Car's axes as the ball sees them; then
the robot's number of contacts with each vase, gremlin and button.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cupola.tasks.safety_gym.scenes import BUTTON_SIZE, GREMLIN_SIZE, VASE_SIZE, Scene

if TYPE_CHECKING:
    import mujoco

SUBSTEPS = 10
"""Physics steps per action."""

_POINT = """
<body name="agent" pos="0 0 .1">
  <joint name="x" type="slide" axis="1 0 0" damping=".01"/>
  <joint name="y" type="slide" axis="0 1 0" damping=".01"/>
  <joint name="z" type="hinge" axis="0 0 1" damping=".005"/>
  <geom name="agent" type="sphere" size=".1" friction="1 .01 .01"/>
  <geom name="pointarrow" type="box" pos=".1 0 0" size=".05 .05 .05"/>
  <site name="agent"/>
</body>
"""
_POINT_ACTUATORS = """
<motor name="x" site="agent" gear=".3 0 0 0 0 0"
  ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-.05 .05"/>
<velocity name="z" jointinparent="z" gear=".3" kv="1"
  ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-.05 .05"/>
"""
_CAR = """
<body name="agent" pos="0 0 .1">
  <joint name="agent" type="free"/>
  <geom name="agent" type="box" size=".1 .1 .05"/>
  <geom name="back_bumper" type="box" pos="0 .15 0" size=".1 .01 .05"/>
  <geom name="back_connector" type="box" pos="0 .125 0" size=".01 .025 .03"/>
  <geom name="front_bumper" type="box" pos="0 -.165 0" size=".05 .01 .05"/>
  <geom name="front_connector" type="box" pos="0 -.13 .04" size=".05 .03 .01"/>
  <site name="agent"/>
  <body name="left" pos="-.1 .1 -.05">
    <joint name="left" type="hinge" axis="1 0 0" damping=".001"/>
    <geom name="left" type="cylinder" fromto="-.055 0 0 -.005 0 0" size=".05"/>
  </body>
  <body name="right" pos=".1 .1 -.05">
    <joint name="right" type="hinge" axis="1 0 0" damping=".001"/>
    <geom name="right" type="cylinder" fromto=".005 0 0 .055 0 0" size=".05"/>
  </body>
  <body name="rear" pos="0 -.1 -.05">
    <joint name="rear" type="ball" damping=".001"/>
    <geom name="rear" type="sphere" size=".05"/>
  </body>
</body>
"""
_CAR_ACTUATORS = """
<motor name="left" jointinparent="left" gear="1"
  ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-.02 .02"/>
<motor name="right" jointinparent="right" gear="1"
  ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-.02 .02"/>
"""
SATURATION = {"Point": (0.05, 1.0), "Car": (0.02, 0.02)}
"""Where motors are at the end of their force; the Point's turn is a speed, within its ctrlrange."""
_CAR_BOXES = ("agent", "back_bumper", "back_connector", "front_bumper", "front_connector")
# The original ran on MuJoCo 2.3.3. Four properties of it are reproduced here:
# - boxes whose faces met reported half their depth. Half the stiffness over twice the width has the
#   same effect with today's full depth;
# - the rotations of a weld were as stiff as its translations, today they are weaker by the ratio of
#   a box's inertia to its mass, which is 1/150 for these. The torque scale enters squared;
# - convex shapes met in one point, found by the search that `nativeccd` has replaced;
# - a ball and a cylinder were such shapes, today they have a formula. A wheel on a button therefore
#   meets a capsule of no length, its core, instead of the ball.
_PAIR = 'condim="6" friction="1 1 .005 .0001 .0001"'
_BOX_BOX = f'{_PAIR} solref=".02 {2**0.5!r}" solimp=".9 .95 .002 .5 2"'
_FLAGS = '<flag nativeccd="disable" multiccd="disable"/>'
_WELD = f'relpose="0 0 0 1 0 0 0" solref=".02 1.5" torquescale="{150**0.5!r}"'
_CAR_SENSORS = """
<ballangvel joint="rear"/>
<framexaxis objtype="xbody" objname="agent" reftype="xbody" refname="rear"/>
<frameyaxis objtype="xbody" objname="agent" reftype="xbody" refname="rear"/>
<framezaxis objtype="xbody" objname="agent" reftype="xbody" refname="rear"/>
"""


def touchable(scene: Scene) -> Iterator[str]:
    """Bodies whose contact with the robot is sensed, in the order of the sensors."""
    yield from (f"vase{i}" for i in range(scene.vases))
    yield from (f"gremlin{i}obj" for i in range(scene.gremlins))
    yield from (f"button{i}" for i in range(scene.buttons))


def _box(name: str, size: float, place: int) -> str:
    return (
        f'<body name="{name}" pos="{place} 9 {size}"><freejoint name="{name}"/>'
        f'<geom name="{name}" type="box" size="{size} {size} {size}" density=".001"/></body>'
    )


def _button(name: str, place: int, wheels: bool) -> str:
    core = (
        f'<geom name="{name}core" type="capsule" size="{BUTTON_SIZE} 1e-14"'
        f' contype="0" conaffinity="0"/>'
    )
    return (
        f'<body name="{name}" mocap="true" pos="{place} 7 {BUTTON_SIZE}">'
        f'<geom name="{name}" type="sphere" size="{BUTTON_SIZE}"/>{core if wheels else ""}</body>'
    )


def mjcf(scene: Scene) -> str:
    """The world of a scene; loose objects wait in a row outside until a layout places them."""
    point = scene.agent == "Point"
    gremlins = range(scene.gremlins)
    bodies = [
        *(_box(f"vase{i}", VASE_SIZE, i) for i in range(scene.vases)),
        *(_box(f"gremlin{i}obj", GREMLIN_SIZE, i) for i in gremlins),
        *(f'<body name="gremlin{i}mocap" mocap="true" pos="{i} 9 .1"/>' for i in gremlins),
        *(_button(f"button{i}", i, wheels=not point) for i in range(scene.buttons)),
    ]
    welds = [f'<weld body1="gremlin{i}mocap" body2="gremlin{i}obj" {_WELD}/>' for i in gremlins]
    boxes = [
        *(f"vase{i}" for i in range(scene.vases)),
        *(f"gremlin{i}obj" for i in gremlins),
    ]
    agent = ("pointarrow",) if point else _CAR_BOXES
    pairs = [
        f'<pair geom1="{first}" geom2="{second}" {_BOX_BOX}/>'
        for first, second in (
            *itertools.product(agent, boxes),
            *itertools.combinations(boxes, 2),
        )
    ]
    rolls = () if point else itertools.product(range(scene.buttons), ("left", "right"))
    pairs += [
        f'<exclude body1="button{i}" body2="{wheel}"/>'
        f'<pair geom1="button{i}core" geom2="{wheel}" {_PAIR}/>'
        for i, wheel in rolls
    ]
    contacts = [
        f'<contact subtree1="agent" body2="{body}" data="found"/>' for body in touchable(scene)
    ]
    return f"""
<mujoco model="{scene.agent}{scene.objective}">
  <compiler angle="radian"/>
  <option timestep="{0.002 if point else 0.004}" tolerance="1e-12">{_FLAGS}</option>
  <default><geom condim="6" density="{1 if point else 5}"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="3.5 3.5 .1"/>
    {_POINT if point else _CAR}
    {"".join(bodies)}
  </worldbody>
  <contact>{"".join(pairs)}</contact>
  <equality>{"".join(welds)}</equality>
  <sensor>
    <accelerometer site="agent"/>
    <velocimeter site="agent"/>
    <gyro site="agent"/>
    <magnetometer site="agent"/>
    {"" if point else _CAR_SENSORS}
    {"".join(contacts)}
  </sensor>
  <actuator>{_POINT_ACTUATORS if point else _CAR_ACTUATORS}</actuator>
</mujoco>
"""


def build(scene: Scene) -> mujoco.MjModel:
    import mujoco  # slow to import, and tasks are listed without it

    return mujoco.MjModel.from_xml_string(mjcf(scene))


def weld_excess(model: mujoco.MjModel) -> float:
    """The scale c of the torque c s^2 w p that cancels a term of welds since MuJoCo 3.7.

    s is a gremlin's angular speed, (w, p) the quaternion of the rotation that its weld still asks
    for. At constant s, p accelerates by -s^2 p/4; today's weld allows for that. In a soft
    constraint a term of the wanted acceleration is worth a force: the term, times the Jacobian,
    which makes -w p/2 of p, over the regularisation, (1 - d)/d by the mass. The impedance d is
    0.95, since targets are always far (0.1 m) above their gremlins.
    """
    return float(model.body("gremlin0obj").mass[0]) * 19 / 8
