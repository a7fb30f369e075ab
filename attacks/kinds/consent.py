"""Runs that name a stranger's code: it is never imported without --trust, and never by readers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

from attacks.kinds.mutants import prepare
from attacks.places import Place
from attacks.programs import call, consent
from attacks.subjects import QUADRATIC, Subject, reference, stopped
from attacks.verdicts import check_manners, require

__all__ = ["attack", "prepare"]

SHARE, SECONDS, WARM, COUNTS = 2.0, 30.0, True, "attack"

MODULE = """\
FOREIGN = True
with open({mark!r}, "a") as file:
    file.write("imported\\n")


def make(*_, **__):
    with open({mark!r}, "a") as file:
        file.write("called\\n")
    raise SystemExit(7)


class X:
    make = make
"""


def attack(random: Random, place: Place) -> None:
    library, run = place.library, place.work / "run"
    shutil.copytree(random.choice((reference, stopped_at_7))(library, QUADRATIC), run)
    module = f"stranger_{random.randrange(10**9)}"
    mark = place.root / "mark"
    source = MODULE.format(mark=str(mark))
    if random.random() < 0.3:
        (place.work / module).mkdir()
        (place.work / module / "__init__.py").write_text("FOREIGN = True\n")
        (place.work / module / "inner.py").write_text(source)
        module += ".inner"
    else:
        (place.work / f"{module}.py").write_text(source)
    config = json.loads((run / "config.json").read_text())
    name_code(random, config, module)
    (run / "config.json").write_text(json.dumps(config))
    command = random.choice(("eval", "resume", "diagnose", "compare", "report", "load"))
    if command == "load":
        load(str(run))
    else:
        outcome = call([command, str(run)], place.work)
        require(not mark.exists(), f"{command} imported {described(config)} unasked")
        check_manners(outcome, command)
        if command in ("eval", "resume"):
            known = outcome.code == 1 and module.partition(".")[0] in outcome.err
            require(known, f"{command}: the sentence does not name {module}: {outcome.sentence}")
    require(not mark.exists(), f"{command} imported {described(config)} unasked")
    if command in ("eval", "resume") and "stranger" in config["task"]:
        agreed = [command, str(run), *consent(command)]
        call(agreed, place.work)
        require(mark.exists(), f"{command} --trust does not import {described(config)}")


def stopped_at_7(library: Path, subject: Subject) -> Path:
    return stopped(library, subject, 7)


def name_code(random: Random, config: dict[str, Any], module: str) -> None:
    """Let the config of a run name the module, in one of the ways that it can."""
    gym = {"cost": "", "discounted": False, "max_episode_steps": 0, "workers": 0}
    way = random.randrange(5)
    config["task"] = (
        f"env:{module}:make",
        f"env:{module}:X.make",
        f"gym:{module}:Evil-v0",
        "gym:Pendulum-v1",
        "ProbeQuadratic",
    )[way]
    if way == 3:
        gym["cost"] = f"{module}:make"
    if random.random() < 0.2:
        gym["workers"] = 2
    if way < 4:
        config["gym"] = gym
    else:  # another way in
        config["start_from"] = config["algo"] = random.choice((f"{module}", f"../{module}"))


def described(config: dict[str, Any]) -> str:
    return config["task"] + " " + config.get("gym", {}).get("cost", "")


def load(run: str) -> None:
    import cupola

    try:
        cupola.load(run)
    except cupola.CupolaError:
        pass
    except Exception as error:
        require(False, f"load: traceback, {error!r}")
