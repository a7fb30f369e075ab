"""Check recorded Safety Gym trajectories against cupola's task, row by row.

    python benchmarks/parity.py PointGoal1 FILE.npz

FILE.npz holds, for every seed under the prefix ``s<seed>/``, T actions and T + 1 states, as
docs/tasks/safety-gym.md describes. Prints one JSON object: for each quantity the largest and the
median error over the rows, and how many rows are out of tolerance.

- observation, reward, cost, goal and each part of the cost are computed from the recorded states;
- the next state is what one step makes of state i and action i. Rows in which some contact begins or
  ends within the step amplify rounding, and are out of tolerance only in the median.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from cupola.errors import CupolaError
from cupola.tasks import make_task
from cupola.tasks.safety_gym import world
from cupola.tasks.safety_gym.scenes import GREMLIN_SIZE, Scene
from cupola.tasks.safety_gym.task import SafetyGymTask, Situation, circle

TOLERANCE = 1e-6
STATE_TOLERANCE = 1e-8
PARTS = ("hazards", "gremlins", "buttons", "vases_contact", "vases_velocity")
Record = dict[str, np.ndarray]


def read(path: Path) -> dict[str, Record]:
    """The arrays of each seed."""
    with np.load(path) as stored:
        seeds: dict[str, Record] = {}
        for key in stored.files:
            prefix, _, name = key.partition("/")
            if name:
                seeds.setdefault(prefix, {})[name] = stored[key]
    if not seeds:
        raise CupolaError(f"{path} holds no arrays named s<seed>/<quantity>.")
    return seeds


def situation(scene: Scene, record: Record, states: slice, goals: slice) -> Situation:
    """The recorded ``states`` with the goals, buttons and timers of the rows ``goals``."""
    qpos, qvel = record["qpos"][states].copy(), record["qvel"][states].copy()
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
        else:
            laid = record[f"layout_{kind}"].reshape(-1, 3)[:, :2]
            if len(laid) != number:
                raise CupolaError(f"the task has {number} {kind}, the recording {len(laid)}.")
            objects.append(np.broadcast_to(laid, (count, *laid.shape)))
    loose = scene.gremlins
    turns = record["qpos"][0, -7 * loose :].reshape(loose, 7)[:, 3:] if loose else np.empty((0, 4))
    has_buttons = scene.buttons > 0
    return Situation(
        qpos=qpos,
        qvel=qvel,
        action=np.concatenate([np.zeros((1, 2)), record["action"]])[states],
        time=record["time"][states],
        objects=np.concatenate(objects, axis=1),
        turns=np.broadcast_to(turns, (count, *turns.shape)),
        button=record["button"][goals] * has_buttons,
        timer=record["button_timer"][goals] * has_buttons,
        distance=np.linalg.norm(record["agent_pos"][goals, :2] - goal, axis=1),
    )


def steady(scene: Scene, states: np.ndarray, centres: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Whether the same geoms touch in the same number of points throughout each step, [T] bool.

    ``states`` [T, S] are the engine's, ``centres`` [T, G, 2] those of the gremlins' circles.
    """
    model = world.build(scene)
    data, kind = mujoco.MjData(model), mujoco.mjtState.mjSTATE_INTEGRATION
    same = np.empty(len(states), bool)
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
        same[i] = len(seen) == 1
    return same


def _touching(data: mujoco.MjData) -> frozenset[tuple[tuple[int, ...], int]]:
    """Pairs of geoms that touch, with the number of points."""
    return frozenset(Counter(map(tuple, data.contact.geom[: data.ncon].tolist())).items())


def errors(task_name: str, record: Record) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Errors of each quantity, a row each, and which steps see no contact begin or end."""
    count = len(record["action"])
    task = make_task(task_name, count, ("cost",), threads=0)
    assert isinstance(task, SafetyGymTask)
    rows, before, after = np.arange(count), slice(0, -1), slice(1, None)
    found: dict[str, np.ndarray] = {}

    task.place(rows, situation(task.scene, record, after, before))
    reward, met, charges = task.judge(task.relative())
    found["reward"] = np.abs(reward - record["reward"])
    found["goal"] = np.abs(met.astype(float) - record["goal_met"])
    none = np.zeros(count, bool)
    anything = np.any([none, *charges.values()], axis=0)
    found["cost"] = np.abs(anything - record["cost"])
    for part in PARTS:
        if f"cost_{part}" in record:
            found[f"cost_{part}"] = np.abs(charges.get(part, none) - record[f"cost_{part}"])

    observations = []
    for moment in (before, after):
        task.place(rows, situation(task.scene, record, moment, moment))
        off = np.abs(task.observe(task.relative()) - record["obs"][moment]).max(axis=1)
        observations.append(off if moment == after else off[:1])
    found["observation"] = np.concatenate(observations)

    begins = situation(task.scene, record, before, before)
    task.place(rows, begins)
    states = task.save()["physics"]
    task.advance(record["action"])
    reached = task.save()["physics"]
    expected = situation(task.scene, record, after, after)
    task.place(rows, expected)
    nq, nv = expected.qpos.shape[1], expected.qvel.shape[1]
    gap = np.abs(reached - task.save()["physics"])[:, 1 : 1 + nq + nv]  # behind the time
    found["next_state"] = gap.max(axis=1)
    centres = begins.objects[:, task.scene.slices.get("gremlins", slice(0, 0))]
    return found, steady(task.scene, states, centres, record["action"])


def compare(task_name: str, path: Path) -> dict[str, Any]:
    """The report of one file."""
    parts, calm = [], []
    for record in read(path).values():
        found, same = errors(task_name, record)
        parts.append(found)
        calm.append(same)
    total = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    same = np.concatenate(calm)
    states = total.pop("next_state")
    report: dict[str, Any] = {"task": task_name, "file": path.name, "seeds": len(parts)}
    report["steps"] = len(states)
    for name, values in total.items():
        report[name] = {**_summary(values), "rows_out": int(np.sum(~(values <= TOLERANCE)))}
    steady_rows = states[same]
    out = int(np.sum(~(steady_rows <= STATE_TOLERANCE)))
    report["next_state"] = {
        **_summary(states),
        "steady_contacts": {**_summary(steady_rows), "rows": len(steady_rows)},
        "rows_out": out,
    }
    report["tolerance"] = {"rows": TOLERANCE, "next_state": STATE_TOLERANCE}
    report["rows_out_of_tolerance"] = sum(
        entry["rows_out"] for entry in report.values() if isinstance(entry, dict) and "rows_out" in entry
    )
    return report


def _summary(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return {"max": None, "median": None}
    return {"max": float(values.max()), "median": float(np.median(values))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", help="for example PointGoal1 or SafetyPointGoal1-v0")
    parser.add_argument("file", type=Path, help="recorded trajectories, .npz")
    arguments = parser.parse_args()
    print(json.dumps(compare(arguments.task, arguments.file), indent=2))


if __name__ == "__main__":
    main()
