"""`cupola eval`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from tyro.conf import Positional

from cupola.commands.filming import new_film, write_film
from cupola.commands.parsing import parse
from cupola.compilation import warm_up_cache
from cupola.display import Terminal, number

if TYPE_CHECKING:
    from cupola.evaluation import Evaluation, Interval


@dataclass(frozen=True)
class EvalArgs:
    """Measure a trained policy on fresh episodes."""

    run: Positional[Path]
    """The run's directory, or one of its checkpoints."""
    episodes: int = 20
    deterministic: bool = False
    """Take the mean action instead of sampling."""
    seed: int = 0
    video: Path | None = None
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

    warm_up_cache()
    policy = load(parsed.run)
    film = parsed.video and new_film(
        parsed.video, parsed.force, policy.config.limits, policy.config.algorithm.gamma
    )
    result = evaluate(
        policy,
        episodes=parsed.episodes,
        deterministic=parsed.deterministic,
        seed=parsed.seed,
        threads=available_cores(),
        trust=parsed.trust,
        watch=film.watch if film else None,
    )
    Terminal().print(evaluation_table(result))
    if film and parsed.video:
        write_film(film, parsed.video)


def evaluation_table(result: Evaluation) -> Table:
    kind = "deterministic" if result.deterministic else "sampled"
    table = Table(title=f"{result.episodes} episodes, {kind} actions")
    for column in ("", "mean", "95 % interval", "limit", "safe episodes"):
        table.add_column(column, justify="left" if column == "" else "right")
    table.add_row("return", number(result.returns.mean), span(result.returns), "", "")
    table.add_row("episode length", number(result.lengths.mean), span(result.lengths), "", "")
    for name, cost in result.costs.items():
        share = f"{100 * cost.safe_share:.0f} %"
        value = cost.value
        table.add_row(f"cost {name}", number(value.mean), span(value), number(cost.limit), share)
        plain = cost.undiscounted
        if plain != value:
            table.add_row(f"cost {name}, undiscounted", number(plain.mean), span(plain), "", "")
    return table


def span(value: Interval) -> str:
    if math.isinf(value.low):
        return "one episode"
    return f"[{number(value.low)}, {number(value.high)}]"
