"""Check recorded Safety Gym trajectories against cupola's tasks, row by row.

    python tests/tasks/parity.py SafetyPointGoal1-v0.npz SafetyCarButton1-v0.npz

A file is named after its task. It holds, for every seed under the prefix ``s<seed>/``, T actions
and T + 1 states (the format is in docs/tasks/safety-gym.md). For each file one JSON object is
printed: of each quantity the largest and the median error, and the number of rows out of tolerance.

- observation, reward, goal, cost and each part of the cost are computed from recorded states;
- ``next_state`` is what one step makes of state i and action i. A contact that begins or ends
  within the step amplifies rounding: such rows are not counted as out of tolerance;
- ``clear`` repeats the numbers for the rows in which no two boxes touch and no wheel touches a
  button. Contacts between boxes are found by other rules today than in the MuJoCo of the
  recordings. Contacts between a wheel and a button depend on rounding.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np

from cupola.errors import CupolaError
from cupola.tasks import make_task
from cupola.tasks.safety_gym import ALIASES, SCENES, world
from cupola.tasks.safety_gym.scenes import GREMLIN_SIZE, Scene
from cupola.tasks.safety_gym.task import SafetyGymTask, Situation, circle

TOLERANCE = 1e-6
STATE_TOLERANCE = 1e-8
PARTS = ("hazards", "gremlins", "buttons", "vases_contact", "vases_velocity")
Record = dict[str, np.ndarray]


class Errors(NamedTuple):
    """Of T steps; the observation's has one row more, the reset's, at its end."""

    rows: dict[str, np.ndarray]  # [T] each
    steady: np.ndarray  # [T] bool: no contact begins or ends
    clear: np.ndarray  # [T] bool: no contact that today's MuJoCo finds in another way


def read(path: Path) -> dict[str, Record]:
    """The arrays of each seed."""
    try:
        with np.load(path) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (OSError, ValueError) as error:
        raise CupolaError(f"{path} cannot be read: {error}.") from None
    seeds: dict[str, Record] = {}
    for key, array in arrays.items():
        prefix, _, name = key.partition("/")
        if name:
            seeds.setdefault(prefix, {})[name] = array
    if not seeds:
        raise CupolaError(f"{path} holds no arrays named s<seed>/<quantity>.")
    return seeds


def situation(
    scene: Scene, record: Record, states: np.ndarray, goals: np.ndarray, action: np.ndarray
) -> Situation:
    """The recorded ``states`` [n] with the goals, buttons and timers of the rows ``goals`` [n]."""
    qpos, qvel = record["qpos"][states], record["qvel"][states]
    start, frame = record["agent_pos"][0, :2], record["agent_mat"][0].reshape(3, 3)[:2, :2]
    if scene.agent == "Point":
        # Recorded joints count from where the episode began, ours from the world's origin.
        qpos[:, :2] = start + qpos[:, :2] @ frame.T
        qpos[:, 2] += math.atan2(frame[1, 0], frame[0, 0])
        qvel[:, :2] = qvel[:, :2] @ frame.T
    count = len(qpos)
    goal = record["goal_pos"][goals, :2]
    objects = []
    for kind, (number, _) in scene.kinds.items():
        if kind == "goal":
            objects.append(goal[:, None])
            continue
        laid = record.get(f"layout_{kind}", np.empty(0)).reshape(-1, 3)[:, :2]
        if len(laid) != number:
            raise CupolaError(f"the task has {number} {kind}, the recording {len(laid)}.")
        objects.append(np.broadcast_to(laid, (count, *laid.shape)))
    loose = scene.gremlins
    turns = record["qpos"][0, -7 * loose :].reshape(loose, 7)[:, 3:] if loose else np.empty((0, 4))
    has_buttons = scene.buttons > 0
    return Situation(
        qpos=qpos,
        qvel=qvel,
        action=action,
        time=record["time"][states],
        objects=np.concatenate(objects, axis=1),
        turns=np.broadcast_to(turns, (count, *turns.shape)),
        button=record["button"][goals] * has_buttons,
        timer=record["button_timer"][goals] * has_buttons,
        distance=np.linalg.norm(record["agent_pos"][goals, :2] - goal, axis=1),
    )


def compare_rows(task_name: str, record: Record) -> Errors:
    """Errors of the steps of one seed.

    A record may hold a selection of an episode's states; then ``before`` and ``after`` [T] say
    between which of them each action leads. The first state is always the reset's.
    """
    count = len(record["action"])
    task = make_task(task_name, count, ("cost",), threads=0)
    assert isinstance(task, SafetyGymTask)
    scene, every = task.scene, np.arange(count)
    before, after = record.get("before", every), record.get("after", every + 1)
    actions, rest = record["action"], np.zeros((count, 2))
    found: dict[str, np.ndarray] = {}

    task.place(every, situation(scene, record, after, before, actions))
    reward, met, cost_parts = task.score_step(task.relative())
    found["reward"] = np.abs(reward - record["reward"])
    found["goal"] = np.abs(met.astype(float) - record["goal_met"])
    none = np.zeros(count, bool)
    found["cost"] = np.abs(np.any([none, *cost_parts.values()], axis=0) - record["cost"])
    for part in PARTS:
        if f"cost_{part}" in record:
            found[f"cost_{part}"] = np.abs(cost_parts.get(part, none) - record[f"cost_{part}"])

    task.place(every, situation(scene, record, after, after, actions))
    off = np.abs(task.observe(task.relative()) - record["obs"][after]).max(axis=1)
    expected = task.save()["physics"]
    first = np.zeros(count, np.int64)
    task.place(every, situation(scene, record, first, first, rest))
    begun = np.abs(task.observe(task.relative()) - record["obs"][first]).max(axis=1)
    found["observation"] = np.append(off, begun[0])

    begins = situation(scene, record, before, before, rest)
    task.place(every, begins)
    states = task.save()["physics"]
    task.advance(actions)
    nq, nv = begins.qpos.shape[1], begins.qvel.shape[1]
    gap = np.abs(task.save()["physics"] - expected)[:, 1 : 1 + nq + nv]  # behind the time
    found["next_state"] = gap.max(axis=1)
    centres = begins.objects[:, scene.slices.get("gremlins", slice(0, 0))]
    return Errors(found, *follow_contacts(scene, states, centres, actions))


def follow_contacts(
    scene: Scene, states: np.ndarray, centres: np.ndarray, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which steps see no contact begin or end, and which are clear, [T].

    ``states`` [T, S] are the engine's, ``centres`` [T, G, 2] those of the gremlins' circles.
    """
    model = world.build(scene)
    data, kind = mujoco.MjData(model), mujoco.mjtState.mjSTATE_INTEGRATION
    box, wheel, core = (
        int(geom)
        for geom in (
            mujoco.mjtGeom.mjGEOM_BOX,
            mujoco.mjtGeom.mjGEOM_CYLINDER,
            mujoco.mjtGeom.mjGEOM_CAPSULE,
        )
    )
    steady, clear = np.empty(len(states), bool), np.empty(len(states), bool)
    for i, state in enumerate(states):
        mujoco.mj_setState(model, data, state, kind)
        data.ctrl[:] = actions[i]
        seen = set()
        for _ in range(world.SUBSTEPS):
            data.mocap_pos[: scene.gremlins, :2] = centres[i] + circle(data.time)
            data.mocap_pos[: scene.gremlins, 2] = 2 * GREMLIN_SIZE
            mujoco.mj_step(model, data)
            seen.add(_touching(data))
        mujoco.mj_forward(model, data)
        seen.add(_touching(data))
        steady[i] = len(seen) == 1
        pairs = {pair for touching in seen for pair, _ in touching}
        types = [set(model.geom_type[list(pair)].tolist()) for pair in pairs]
        clear[i] = not any(of in ({box}, {wheel, core}) for of in types)
    return steady, clear


def _touching(data: mujoco.MjData) -> frozenset[tuple[tuple[int, ...], int]]:
    """Pairs of geoms that touch, with the number of points."""
    return frozenset(Counter(map(tuple, data.contact.geom[: data.ncon].tolist())).items())


def compare(task_name: str, path: Path) -> dict[str, Any]:
    """The report of one file."""
    parts = [compare_rows(task_name, record) for record in read(path).values()]
    steady, clear = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    report: dict[str, Any] = {"task": task_name, "file": path.name, "seeds": len(parts)}
    report |= {"steps": len(steady), "steady_steps": int(steady.sum())}
    report |= {"clear_steps": int(clear.sum())}
    report["tolerance"] = {"rows": TOLERANCE, "next_state": STATE_TOLERANCE}
    report["rows_out_of_tolerance"] = report["clear_rows_out_of_tolerance"] = 0
    for name in parts[0].rows:
        values = np.concatenate([part.rows[name][: len(part.clear)] for part in parts])
        resets = np.concatenate([part.rows[name][len(part.clear) :] for part in parts])
        counted = steady if name == "next_state" else np.ones(len(values), bool)
        limit = STATE_TOLERANCE if name == "next_state" else TOLERANCE
        out = counted & ~(values <= limit)
        late = int(np.sum(~(resets <= limit)))
        report[name] = {
            **_summary(np.append(values, resets)),
            "rows_out": int(out.sum()) + late,
            "clear": {
                **_summary(np.append(values[clear], resets)),
                "rows_out": int(out[clear].sum()) + late,
            },
        }
        if name == "next_state":
            report[name]["rows_out_counting_unsteady"] = int(np.sum(~(values <= limit)))
        report["rows_out_of_tolerance"] += report[name]["rows_out"]
        report["clear_rows_out_of_tolerance"] += report[name]["clear"]["rows_out"]
    return report


def _summary(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return {"max": None, "median": None}
    return {"max": float(values.max()), "median": float(np.median(values))}


def task_of(path: Path) -> str:
    """The Safety Gym task that a file is named after."""
    if path.stem not in SCENES and path.stem not in ALIASES:
        raise CupolaError(
            f"{path} is not named after a Safety Gym task: rename it to TASK.npz, TASK being one of"
            f" {', '.join(ALIASES)}."
        )
    return path.stem


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="recorded trajectories, TASK.npz")
    try:
        for path in parser.parse_args().files:
            print(json.dumps(compare(task_of(path), path), indent=2))
    except CupolaError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
