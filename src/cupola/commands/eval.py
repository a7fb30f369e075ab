"""`cupola eval`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from cupola.commands.filming import new_film, write_film
from cupola.commands.parsing import OptionalPath, RunPath, WhichCheckpoint, parse
from cupola.commands.writing import check_place, write_new
from cupola.compilation import warm_up_cache
from cupola.display import CountDisplay, Terminal, decimals_of, number
from cupola.naming import counted

if TYPE_CHECKING:
    from cupola.evaluation import Evaluation, Interval


@dataclass(frozen=True)
class EvalArgs:
    """Measure a trained policy on fresh episodes."""

    run: RunPath
    """The run's directory, one of its checkpoints, or a policy of the zoo (zoo:HopperSpeed)."""
    checkpoint: WhichCheckpoint = "last"
    """Which policy of the run: the best one, the last one, or that of iteration N if it is kept."""
    episodes: int = 20
    """How many are played; the fewer, the wider the intervals."""
    deterministic: bool = False
    """Take the mean action instead of sampling."""
    seed: int = 0
    """Of the episodes: other ones with another number."""
    out: OptionalPath = None
    """JSON file for the figures."""
    video: OptionalPath = None
    """Film the first four episodes side by side: a file .gif, or .mp4 with the extra video."""
    force: bool = False
    """Replace the video if there is one."""
    trust: bool = False
    """Import the environment and the cost function that the run names (docs/security.md)."""


def run(args: Sequence[str]) -> None:
    parsed = parse(EvalArgs, args, "eval")
    from cupola.cores import available_cores
    from cupola.evaluation import evaluate
    from cupola.policy import load

    if parsed.out:
        check_place(parsed.out)
    warm_up_cache()
    console, policy = Terminal(), load(parsed.run, parsed.checkpoint)
    film = parsed.video and new_film(
        parsed.video, parsed.force, policy.config.limits, policy.config.algorithm.gamma
    )
    with CountDisplay(console) as progress:
        result = evaluate(
            policy,
            episodes=parsed.episodes,
            deterministic=parsed.deterministic,
            seed=parsed.seed,
            threads=available_cores(),
            trust=parsed.trust,
            tell=progress,
            watch=film.watch if film else None,
        )
    console.print(evaluation_table(result, policy.iteration))
    if parsed.out:
        record = {"run": str(parsed.run), "iteration": policy.iteration, "seed": parsed.seed}
        text = json.dumps(record | result.to_json(), indent=1) + "\n"
        write_new(parsed.out, text.encode())
    if film and parsed.video:
        write_film(film, parsed.video)


def evaluation_table(result: Evaluation, iteration: int) -> Table:
    kind = "deterministic" if result.deterministic else "sampled"
    what = f"{counted(result.episodes, 'episode')}, {kind} actions"
    table = Table(title=f"policy of iteration {iteration}\n{what}")
    for column in ("", "mean", "95 % interval", "limit", "safe episodes"):
        table.add_column(column, justify="left" if column == "" else "right")
    table.add_row("return", number(result.returns.mean), span(result.returns), "", "")
    table.add_row("episode length", number(result.lengths.mean), span(result.lengths), "", "")
    for name, cost in result.costs.items():
        share = f"{100 * cost.safe_share:.0f} %"
        decimals, value, plain = decimals_of(cost.limit), cost.value, cost.undiscounted
        mean, limit = number(value.mean, decimals), number(cost.limit, decimals)
        table.add_row(f"cost {name}", mean, span(value, decimals), limit, share)
        if plain != value:
            mean = number(plain.mean, decimals)
            table.add_row(f"cost {name}, undiscounted", mean, span(plain, decimals), "", "")
    return table


def span(value: Interval, decimals: int = 1) -> str:
    if math.isinf(value.low):
        return "one episode"
    return f"[{number(value.low, decimals)}, {number(value.high, decimals)}]"
