"""The one source of tasks: from what a user names or gives to a spec and a way to make the task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cupola.config import Limits, RunConfig
from cupola.errors import CupolaError
from cupola.gym.consent import effects_of_function, effects_of_task, require_consent
from cupola.gym.costs import CostFunction
from cupola.gym.options import GymOptions, is_foreign, only_for_gym
from cupola.gym.task import factory as gym_factory
from cupola.gym.task import task_name
from cupola.tasks import make_task, spec_of, specs
from cupola.tasks.base import TaskFactory

EnvMaker = Callable[[], Any]
"""Makes a Gymnasium environment."""


def find_task(
    task: str | TaskFactory | None,
    *,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    gym: GymOptions | None = None,
    limits: float | Limits | None = None,
    threads: int = 1,
    pictures: bool = False,
) -> TaskFactory:
    """A task of any origin.

    ``task`` is a name or an alias of the registry, ``gym:ID``, ``env:package.module:function``, or
    the factory itself. ``env`` and ``cost`` are what the names of a Gymnasium environment and of
    its cost function stand for; ``gym`` and ``limits`` are for Gymnasium environments. ``threads``
    are those of the engine of a registered task. With ``pictures`` environments of Gymnasium are
    made so that they can be drawn.
    """
    if isinstance(task, TaskFactory):
        if env is not None or cost is not None:
            raise CupolaError("a TaskFactory has its own costs: leave env and cost out.")
        return task
    if task is None:
        if env is None:
            raise CupolaError("name a task, for example 'HopperSpeed', or give env=a function.")
        task = task_name(env)
    if is_foreign(task):
        options = gym or GymOptions()
        return gym_factory(task, options, env=env, cost=cost, limits=limits, pictures=pictures)
    for name, given in (("env", env), ("cost", cost)):
        if given is not None:
            raise only_for_gym(name)
    spec = spec_of(task)
    return TaskFactory(spec, partial(make_task, spec.name, threads=threads))


def effects_of_run(
    config: RunConfig, *, env: EnvMaker | None = None, cost: CostFunction | None = None
) -> list[str]:
    """What making the task of a recorded run does that needs the user's consent."""
    effects = [] if env else effects_of_task(config.task)
    if config.gym and not cost:
        effects += effects_of_function(config.gym.cost)
    return effects


def task_of(
    config: RunConfig,
    *,
    task: TaskFactory | None = None,
    env: EnvMaker | None = None,
    cost: CostFunction | None = None,
    threads: int,
    trust: bool = False,
    pictures: bool = False,
) -> TaskFactory:
    """The task of a run that was recorded, with ``pictures`` as in `find_task`.

    What it was given as a Python object (``task``, ``env``, ``cost``) is given again, except
    functions that can be imported by their names if the user says to ``trust`` the run.
    """
    if task is None:
        require_consent(trust, "this run", effects_of_run(config, env=env, cost=cost))
    if task is None and not is_foreign(config.task) and config.task not in specs():
        raise CupolaError(
            f"{config.task!r} is no task of cupola: if it is one of yours, give it again in Python,"
            " as task=its factory."
        )
    return find_task(
        task or config.task,
        env=env,
        cost=cost,
        gym=config.gym,
        limits=config.limits,
        threads=threads,
        pictures=pictures,
    )
