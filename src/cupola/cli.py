"""The command line: `cupola train`, and all that follows it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from cupola import commands_sweeps as commands
from cupola.compilation import warm_up_cache
from cupola.errors import CupolaError, in_words, unknown
from cupola.version import __version__

Parsed = TypeVar("Parsed")

USAGE = """\
usage: cupola COMMAND ...

  cupola train ALGO TASK   train a policy (cupola train cup HopperSpeed)
  cupola resume RUN        continue a run that was stopped
  cupola eval RUN          measure a trained policy on fresh episodes
  cupola list              algorithms, presets and tasks
  cupola bench TASK        steps a second, beside the physics ceiling
  cupola sweep FILE        train all cells of an experiment file (experiments/toy.toml)
  cupola report DIR        one page of a sweep or of any runs: tables, curves, figures
  cupola compare RUN ...   a quick look at a few runs
  cupola theory            the paper's claims on random CMDPs, printed and corrected

Each command explains itself: cupola train cup --help
"""


@dataclass(frozen=True)
class ResumeArgs:
    """Continue a run from its newest checkpoint, exactly as if it had never stopped."""

    run: Positional[Path]
    """The run's directory."""


@dataclass(frozen=True)
class EvalArgs:
    """Measure a trained policy on fresh episodes."""

    run: Positional[Path]
    """The run's directory, or one of its checkpoints."""
    episodes: int = 20
    deterministic: bool = False
    """Take the mean action instead of sampling."""
    seed: int = 0


@dataclass(frozen=True)
class ListArgs:
    """Algorithms with their presets; tasks with sizes, costs and default limits."""


@dataclass(frozen=True)
class BenchArgs:
    """Time whole training iterations and, in the same run, the physics alone."""

    task: Positional[str]
    algo: str = "cup"
    iterations: int = 20
    threads: int = 0
    """Cores to use; 0 means all."""
    out: Path | None = None
    """JSON file for the figures."""


@dataclass(frozen=True)
class TheoryArgs:
    """Test the paper's claims on random finite CMDPs, and exact CUP against the optimum."""

    cases: int = 2000
    """Random cases with dense transitions; a quarter as many sparse ones are added."""
    seed: int = 0
    out: Path = Path("theory")
    """Directory for theory.json, table.txt, counterexamples.json and the figures."""


def run_train(args: Sequence[str]) -> None:
    from cupola.algos import load_algorithm
    from cupola.gym.options import GymOptions
    from cupola.training import train

    parsed = parse_train(args)
    module = load_algorithm(parsed.algo)
    defaults = module.PRESETS[parsed.preset]
    fields = vars(parsed.options) | {
        name: value
        for before, after in ((defaults, parsed.algorithm), (GymOptions(), parsed.gym))
        for name, value in vars(after).items()
        if value != getattr(before, name)
    }
    console = Console()
    warm_up_cache()
    from cupola.display import ProgressDisplay

    with ProgressDisplay(console, parsed.options.iterations) as progress:
        run = train(
            parsed.algo,
            parsed.task,
            preset=parsed.preset,
            limits=parse_limits(parsed.limit),
            out=parsed.out,
            listener=progress,
            **fields,
        )
    conclude(console, run)


def parse_train(args: Sequence[str]) -> Any:
    """Arguments of `cupola train`, whose fields depend on the algorithm and the preset."""
    from cupola import algos
    from cupola.config import RunOptions
    from cupola.gym.options import GymOptions

    asks_help = "--help" in args or "-h" in args
    positional = [a for a in args[:1] if not a.startswith("-")]
    if not positional and not asks_help:
        raise CupolaError(
            "say what to train: cupola train ALGO TASK, for example 'cupola train cup HopperSpeed'"
            " (see 'cupola list')."
        )
    module = algos.load_algorithm(positional[0] if positional else "cup")
    preset = option_value(args, "--preset") or "paper"
    if preset not in module.PRESETS:
        raise unknown("preset", preset, module.PRESETS)
    kind = dataclasses.make_dataclass(
        "Train",
        [
            ("algo", Annotated[Positional[str], arg(metavar="ALGO", help="See 'cupola list'.")]),
            (
                "task",
                Annotated[
                    Positional[str],
                    arg(metavar="TASK", help="See 'cupola list'; or gym:ID, a Gymnasium id."),
                ],
            ),
            (
                "limit",
                Annotated[
                    UseAppendAction[tuple[str, ...]],
                    arg(metavar="X|NAME=X", help="Limit of the task's cost, or of a named one."),
                ],
                (),
            ),
            (
                "out",
                Annotated[
                    Path | None, arg(help="Directory of the run; default runs/ALGO-TASK-SEED.")
                ],
                None,
            ),
            (
                "preset",
                Annotated[str, arg(help=f"One of {', '.join(module.PRESETS)}.")],
                "paper",
            ),
            ("options", Annotated[RunOptions, arg(name="")], RunOptions()),
            ("algorithm", Annotated[module.Config, arg(name="")], module.PRESETS[preset]),
            ("gym", Annotated[GymOptions, arg(name="")], GymOptions()),
        ],
        frozen=True,
    )
    return parse(kind, args, "train", f"Train {positional[0] if positional else 'a policy'}.")


def run_resume(args: Sequence[str]) -> None:
    parsed = parse(ResumeArgs, args, "resume")
    from cupola.config import RunConfig
    from cupola.display import ProgressDisplay
    from cupola.runs.directory import RunDirectory
    from cupola.training import resume

    config = RunConfig.from_json(RunDirectory.open(parsed.run).config())
    console = Console()
    warm_up_cache()
    with ProgressDisplay(console, config.options.iterations) as progress:
        run = resume(parsed.run, listener=progress)
    conclude(console, run)


def conclude(console: Console, run: Any) -> None:
    """The closing table and the next commands; exit code 130 where the run was stopped."""
    from cupola.display import summary
    from cupola.runs.directory import RunDirectory

    if run.metrics:
        timings = RunDirectory.open(run.path).timings()
        console.print(summary(run.metrics, timings, run.finished))
    if not run.finished:
        console.print(f"stopped; continue with: {program()} resume {run.path}", soft_wrap=True)
        sys.exit(130)
    console.print("next:")
    console.print(f"  {program()} eval {run.path} --episodes 20", soft_wrap=True)
    console.print(f"  tensorboard --logdir {run.path}  (pip install tensorboard)", soft_wrap=True)


def program() -> str:
    """How this program can be called again."""
    if shutil.which("cupola"):
        return "cupola"
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "cupola" else "python -m cupola"


def run_eval(args: Sequence[str]) -> None:
    parsed = parse(EvalArgs, args, "eval")
    from cupola.cores import available_cores
    from cupola.display import evaluation_table
    from cupola.evaluation import evaluate
    from cupola.policy import load

    warm_up_cache()
    result = evaluate(
        load(parsed.run),
        episodes=parsed.episodes,
        deterministic=parsed.deterministic,
        seed=parsed.seed,
        threads=available_cores(),
    )
    Console().print(evaluation_table(result))


def run_list(args: Sequence[str]) -> None:
    parse(ListArgs, args, "list")
    from cupola import algos, tasks
    from cupola.display import task_table

    console = Console()
    console.print("algorithms", style="bold")
    for name in algos.names():
        module = algos.load_algorithm(name)
        title = (module.__doc__ or "").partition("\n")[0]
        console.print(f"  {name}  {title} Presets: {', '.join(module.PRESETS)}.", highlight=False)
    console.print(task_table(tasks.specs()))


def run_bench(args: Sequence[str]) -> None:
    parsed = parse(BenchArgs, args, "bench")
    from cupola.bench import bench
    from cupola.display import bench_table
    from cupola.runs.checkpoints import write_atomically

    if parsed.iterations < 1:
        raise CupolaError(f"iterations must be at least 1, not {parsed.iterations}.")
    warm_up_cache()
    result = bench(
        parsed.task, algo=parsed.algo, iterations=parsed.iterations, threads=parsed.threads
    )
    Console().print(bench_table(result))
    if parsed.out:
        with in_words(f"cannot write {parsed.out}"):
            write_atomically(parsed.out, (json.dumps(result, indent=1) + "\n").encode())


def run_sweep(args: Sequence[str]) -> None:
    commands.sweep(parse(commands.SweepArgs, args, "sweep"), program())


def run_report(args: Sequence[str]) -> None:
    commands.report(parse(commands.ReportArgs, args, "report"))


def run_compare(args: Sequence[str]) -> None:
    commands.compare(parse(commands.CompareArgs, args, "compare"))


def run_theory(args: Sequence[str]) -> None:
    parsed = parse(TheoryArgs, args, "theory")
    from cupola.display import CountDisplay, theory_tables
    from cupola.runs.checkpoints import write_atomically
    from cupola.theory import counterexample, report

    with in_words(f"cannot write to {parsed.out}"):
        parsed.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    with CountDisplay(console) as progress:
        result = report.make(parsed.cases, parsed.seed, progress)
    tables = theory_tables(result.record)
    with io.StringIO() as text:
        plain = Console(file=text, width=110)
        for table in tables:
            plain.print(table)
        files = {"table.txt": text.getvalue().encode(), **result.figures}
    files["theory.json"] = (json.dumps(result.record, indent=1) + "\n").encode()
    proofs = "counterexamples.json"
    files[proofs] = (json.dumps(result.counterexamples, indent=1) + "\n").encode()
    with in_words(f"cannot write to {parsed.out}"):
        for name, data in files.items():
            write_atomically(parsed.out / name, data)
        written = json.loads((parsed.out / proofs).read_text())
    for table in tables:
        console.print(table)
    for record in written:
        excess = counterexample.check(record)
        console.print(f"{record['title']} as printed fails by {excess} in exact arithmetic.")
    console.print(f"written to {parsed.out}", soft_wrap=True)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "train": run_train,
    "resume": run_resume,
    "eval": run_eval,
    "list": run_list,
    "bench": run_bench,
    "sweep": run_sweep,
    "report": run_report,
    "compare": run_compare,
    "theory": run_theory,
}


def parse(
    kind: type[Parsed], args: Sequence[str], command: str, description: str | None = None
) -> Parsed:
    """Arguments as a dataclass; whatever is wrong with them as one sentence."""
    refuse_unknown_options(kind, args)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(kind, args=args, prog=f"cupola {command}", description=description)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise CupolaError(sentence(complaint.getvalue())) from None


def sentence(box: str) -> str:
    """The text of tyro's framed error, up to the first rule, on one line."""
    lines = [line.strip(" │") for line in box.splitlines()[1:]]
    text = lines[: next((i for i, line in enumerate(lines) if line[:1] in "─╰"), len(lines))]
    return " ".join(" ".join(text).split())


def refuse_unknown_options(kind: type, args: Sequence[str]) -> None:
    known = {"help"}
    pending: list[Any] = [kind]
    while pending:
        for field in dataclasses.fields(pending.pop()):
            nested = field.default
            if dataclasses.is_dataclass(nested):
                pending.append(type(nested))
            else:
                known |= {field.name}
    for token in args:
        if token.startswith("--") and token != "--":
            name = token[2:].partition("=")[0].replace("-", "_")
            if name not in known and name.removeprefix("no_") not in known:
                options = [f"--{option.replace('_', '-')}" for option in known]
                raise unknown("option", token.partition("=")[0], options)


def option_value(args: Sequence[str], option: str) -> str | None:
    for i, token in enumerate(args):
        if token == option and i + 1 < len(args):
            return args[i + 1]
        if token.startswith(f"{option}="):
            return token.partition("=")[2]
    return None


def parse_limits(texts: Sequence[str]) -> float | dict[str, float] | None:
    """`82.7`, or `speed=80` any number of times."""
    if not texts:
        return None
    named: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            limit = float(value)
        except ValueError:
            raise CupolaError(
                f"--limit takes a number or NAME=number, for example --limit 25, not {text!r}."
            ) from None
        if not equals and len(texts) == 1:
            return limit
        if not equals or name in named:
            raise CupolaError("several limits need one name each, for example --limit speed=80.")
        named[name] = limit
    return named


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; errors that a user can act on are one sentence and exit code 1."""
    args = list(sys.argv[1:] if argv is None else argv)
    warnings.showwarning = lambda message, *_: print(f"cupola: warning: {message}", file=sys.stderr)
    try:
        if not args or args[0] in ("-h", "--help", "help"):
            print(USAGE, end="")
            sys.exit(0 if args else 2)
        if args[0] == "--version":
            print(f"cupola {__version__}")
            return
        if args[0] not in COMMANDS:
            raise unknown("command", args[0], COMMANDS)
        COMMANDS[args[0]](args[1:])
    except CupolaError as error:
        print(f"cupola: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("cupola: interrupted.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
