"""Experiment files, damaged and at random: cells or one sentence. Nothing is trained."""

from __future__ import annotations

from random import Random
from typing import Any

from attacks import mutate
from attacks.kinds.mutants import SWEEP
from attacks.places import Place
from attacks.programs import REPOSITORY, call
from attacks.verdicts import check_manners, require

SHARE, SECONDS, WARM, COUNTS = 1.0, 30.0, True, "command"

VALUES = (
    *("1", "0", "-1", "2", "1.5", "nan", "inf", "-inf", "true", '""', '"x"', '"cup"', "[]", "[[]]"),
    *("{}", "[1, 2]", '["cup", "cup"]', '["ppo_lag"]', '["ProbeQuadratic"]', '["NoTask"]', "0xff"),
    *("1979-05-27", "07:32:00", '["x", 1]', "[{}]", '[{ algorithm = "cup" }]', "{ a = { b = 1 } }"),
    *("{ cost = 1 }", "1e400", "9" * 30, "9" * 5000, '"\\u0000"', '"../../outside/x"', '"[/b]"'),
    *("[0, 0]", '"a/b"', '"²"', "1000000000000", '[{ name = "x", algorithm = "cup", lam = 2 }]'),
    *("[" * 2000 + "]" * 2000, "{ algorithm = [1] }", '{ seed = 0, task = "x" }', "'''\n'''"),
)
KEYS = (
    *("iterations", "algorithms", "tasks", "seeds", "evaluation_episodes", "name", "shared"),
    *("grid", "override", "resources", "memory_gb", "limit", "preset", "batch_size", "hidden"),
    *("threads", "sinks", "start_from", "delta", "seed", "where", "set", "x", '""', '"a b"', "²"),
)
TABLES = (
    "[shared]",
    "[grid]",
    "[[override]]",
    "[resources]",
    "[x]",
    "[[grid]]",
    "[shared.x]",
    "[]",
)


def attack(random: Random, place: Place) -> None:
    file = place.work / "toy.toml"
    file.write_bytes(text(random))
    with nothing_trained():
        args = ["sweep", file.name, "--out", "sweep"]
        outcome = check_manners(call(args, place.work), "sweep")
    if outcome.code == 1:
        left = [path.name for path in place.work.iterdir() if path != file]
        require(not left, f"sweep: refused, but left behind {left}")


def text(random: Random, known: str = SWEEP) -> bytes:
    style = random.randrange(4)
    if style == 0:
        return random_file(random)
    files = sorted((REPOSITORY / "experiments").glob("*.toml"))
    base = known.encode() if random.random() < 0.7 else random.choice(files).read_bytes()
    if style == 1:
        for _ in range(random.choice((1, 2, 5))):
            base = random.choice(mutate.BYTES)(random, base)
        return base
    lines = base.decode().splitlines()
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(lines))
        if "=" in lines[at] and style == 2:
            lines[at] = f"{lines[at].partition('=')[0]}= {random.choice(VALUES)}"
        else:
            lines.insert(at, random.choice((assignment(random), random.choice(TABLES))))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def random_file(random: Random) -> bytes:
    lines = [] if random.random() < 0.3 else ['algorithms = ["cup"]', 'tasks = ["ProbeQuadratic"]']
    for _ in range(random.randrange(8)):
        lines.append(random.choice(TABLES) if random.random() < 0.3 else assignment(random))
    return "\n".join(lines).encode()


def assignment(random: Random) -> str:
    return f"{random.choice(KEYS)} = {random.choice(VALUES)}"


class nothing_trained:  # noqa: N801 (a context manager)
    """The sweep is planned and written down, and no cell is started."""

    def __enter__(self) -> None:
        from cupola.sweeps import loop

        def work(sweep: Any, *_: object) -> dict[str, Any]:
            return {name: sweep.status(name) for name in sweep.cells}

        self._module, self._original = loop, loop.work
        loop.work = work  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        self._module.work = self._original
