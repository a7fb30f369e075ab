"""Command lines with wrong words, wrong values and wrong paths: a result or one sentence."""

from __future__ import annotations

import dataclasses
import importlib
import shutil
from pathlib import Path
from random import Random

from attacks.kinds.mutants import curves_file, prepare, sweep_of
from attacks.places import Place
from attacks.programs import call
from attacks.subjects import QUADRATIC, TINY, reference
from attacks.verdicts import check_manners, require

__all__ = ["attack", "prepare"]

SHARE, SECONDS, WARM, COUNTS = 2.5, 30.0, True, "command"

# Not "/": `report /` is honest work, of all runs of the machine, and puts its page there.
WORDS = (
    *(
        "",
        " ",
        "-",
        "--",
        "---",
        "--=",
        "-h",
        "--help",
        "-x",
        "x",
        "=",
        "a b",
        "a\nb",
        "\t",
        "'",
        '"',
    ),
    *(
        "²",
        "٣",
        "é",
        "\u2028",
        "\udcff",
        "\U0001f600",
        "[/b]",
        "[bold]",
        "[red",
        "$\\frac{$",
        "\\",
        "%s",
    ),
    *(
        "{}",
        "{0}",
        "~",
        "*",
        "None",
        "True",
        "null",
        "[]",
        "cup",
        "ppo_lag",
        "HopperSpeed",
        "x" * 5000,
    ),
    *(".", "..", "/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/no/such/place"),
    *(
        "../outside/victim.txt",
        "run",
        "run/config.json",
        "run/checkpoints",
        "sweep",
        "curves.csv.gz",
    ),
    *(
        "run/checkpoints/00000012.safetensors",
        "toy.toml",
        "out.html",
        "empty",
        "file.txt",
        "out.png",
    ),
    *(
        "gym:",
        "env:",
        "gym:x",
        "env:x",
        "env:x:y",
        "env:json:loads",
        "gym:no-such-v0",
        "env::",
        ":",
    ),
    *("gym:no_such_module:X-v0", "ProbeQuadratic", "TabularGrid", "probequadratic", "speed=1"),
)
NUMBERS = (
    *("0", "-0", "1", "2", "3", "-1", "0.5", "-0.5", "1e-300", "1e308", "-1e308", "1e400", "nan"),
    *("inf", "-inf", "1_0", "٣", "0x10", "1e2", "+1", " 1", "1,5", "1.", ".5", "00", "True"),
)
HUGE = ("2147483648", "4294967296", "9223372036854775808", "1" + "0" * 30, "1" * 5000)
MAY_BE_HUGE = (
    "seed",
    "checkpoint_every",
    "keep_checkpoints",
    "limit",
    "max_episode_steps",
    "gamma",
)
"""Huge values of other options would be honest work: a long training, or much memory."""
LEFT_OUT = ("workers", "threads", "iterations", "batches", "episodes", "jobs", "engine", "sinks")
"""Options whose valid values start processes, services or long work."""
COMMANDS = ("resume", "eval", "diagnose", "list", "report", "compare", "sweep", "bench", "theory")


def attack(random: Random, place: Place) -> None:
    furnish(place)
    before = listing(place.work)
    args = command_line(random)
    environment, encoding = {}, "utf-8"
    terminal = random.random() < 0.25
    if terminal:
        environment = {"TERM": "xterm-256color", "COLUMNS": str(random.choice((10, 40, 80, 200)))}
    elif random.random() < 0.2:
        encoding = random.choice(("ascii", "iso-8859-1"))
    shown = " ".join(map(repr, args))[:300]
    outcome = call(args, place.work, environment, encoding, terminal)
    check_manners(outcome, f"[{shown}]")
    new = listing(place.work) - before
    if outcome.code in (1, 2):
        new = {name for name in new if not in_a_run(place.work, name)}
        require(not new, f"[{shown}]: refused, but left behind {sorted(new)[:5]}")


def furnish(place: Place) -> None:
    """Something of every sort that commands take, and some that they do not."""
    work, library = place.work, place.library
    shutil.copytree(reference(library, QUADRATIC), work / "run")
    shutil.copytree(sweep_of(library), work / "sweep")
    shutil.copy(curves_file(library), work / "curves.csv.gz")
    shutil.copy(work / "sweep" / "toy.toml", work / "toy.toml")
    (work / "empty").mkdir()
    (work / "file.txt").write_text("text\n")


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def in_a_run(work: Path, name: str) -> bool:
    """Whether a file is part of a run that was begun, or one of its folders."""
    path = work / name
    return any((up / "config.json").is_file() for up in (path, *path.parents) if up != work) or (
        path.is_dir() and any(path.rglob("config.json"))
    )


def command_line(random: Random) -> list[str]:
    style = random.random()
    if style < 0.1:  # anything at all
        return [random.choice((*WORDS, *NUMBERS)) for _ in range(random.randrange(5))]
    args = train_line(random) if style < 0.55 else other_line(random)
    for _ in range(random.choice((0, 0, 0, 1, 2))):  # and a few slips
        at = random.randrange(1, len(args) + 1)
        slip = random.randrange(3)
        if slip == 0:
            args.insert(at, random.choice(WORDS))
        elif slip == 1 and len(args) > 1:
            del args[min(at, len(args) - 1)]
        elif len(args) > 2:
            args.insert(at, args[random.randrange(1, len(args))])
    return bounded(args)


def bounded(args: list[str]) -> list[str]:
    """Real work stays short, whatever the slips: these options come last and win."""
    if args[0] == "train" and len(args) > 2:
        return [*args, "--iterations", "1"]
    if args[0] in ("bench", "theory", "sweep", "diagnose", "eval") and "--help" not in args:
        small = {"eval": "--episodes", "diagnose": "--episodes"}.get(args[0])
        args = [*args, small, "2"] if small else args
        return [*args, "--batches", "2"] if args[0] == "diagnose" else args
    return args


def train_line(random: Random) -> list[str]:
    from cupola import algos
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions

    algo = random.choice(("ppo_lag", "ppo_lag", "cup", "cpo", "focops"))
    kinds = (RunOptions, algos.load_algorithm(algo).Config, GymOptions)
    fields = [field for kind in kinds for field in dataclasses.fields(kind)]
    task = random.choice(("ProbeQuadratic",) * 6 + ("TabularGrid", random.choice(WORDS)))
    if random.random() < 0.05:
        algo = random.choice(WORDS)
    args = ["train", algo, task, *(TINY if random.random() < 0.8 else TINY[:6])]
    args += ["--sinks"] if random.random() < 0.9 else ["--sinks", random.choice(("x", "", "csv"))]
    for _ in range(random.choice((1, 1, 2, 3))):
        field = random.choice(fields)
        if field.name in (*LEFT_OUT, "start_from"):
            continue
        args += option(random, field.name)
    if random.random() < 0.4:
        args += ["--limit", random.choice((*NUMBERS, *HUGE, "x=1", "cost=0.4", "=", "1=1"))]
    if random.random() < 0.2:
        args += ["--start-from", random.choice((*WORDS, "run"))]
    if random.random() < 0.2:
        args += ["--preset", random.choice((*WORDS, "paper"))]
    if random.random() < 0.1:
        args += [random.choice(("--workers", "--threads")), random.choice(("-1", "x", "", "nan"))]
    return [*args, "--out", random.choice(("new", "new", "new", *WORDS))]


def option(random: Random, name: str) -> list[str]:
    word = "--" + name.replace("_", random.choice("-_-"))
    if random.random() < 0.05:
        word = random.choice((word + "x", word[:-1], word.upper(), "--no-" + word[2:], word[1:]))
    pool = (*NUMBERS, *HUGE) if name in MAY_BE_HUGE else NUMBERS
    value = random.choice(pool) if random.random() < 0.7 else random.choice(WORDS)
    return random.choice(([word, value], [f"{word}={value}"], [word], [word, value, value]))


def other_line(random: Random) -> list[str]:
    command = random.choice((*COMMANDS, random.choice(WORDS)))
    args = [command]
    if command in ("bench", "theory", "sweep"):  # what is valid here takes long: only the invalid
        wrong = [word for word in WORDS if word not in ("toy.toml", "HopperSpeed", "TabularGrid")]
        args += [random.choice([word for word in wrong if "Probe" not in word and word])]
        return [*args, random.choice(("--x", "--help", "--jobs", "--out", "--seeds"))]
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        args.append(random.choice((*WORDS, "run", "run", "run")))
    if command in ("resume", "eval", "diagnose", "report", "compare"):
        module = importlib.import_module(f"cupola.commands.{command}")
        kind = getattr(module, f"{command.capitalize()}Args")
        names = [field.name for field in dataclasses.fields(kind)]
        for name in random.choices(names, k=random.randrange(3)):
            if name not in LEFT_OUT:
                args += option(random, name)
    return args
