"""`cupola diagnose`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text
from tyro.conf import UseAppendAction, arg

from cupola.commands.parsing import OptionalPath, RunPath, parse
from cupola.commands.writing import check_place, write_new
from cupola.compilation import warm_up_cache
from cupola.display import CountDisplay, Terminal
from cupola.errors import CupolaError

if TYPE_CHECKING:
    from cupola.diagnosis.result import Diagnosis, Estimate, Finding, Trace


@dataclass(frozen=True)
class DiagnoseArgs:
    """Find out at a checkpoint why a run learns as it does, and why a limit is not held."""

    run: RunPath
    """The run's directory, or one of its checkpoints."""
    batches: int = 8
    """Independent batches to compare; a few more are drawn. Each gives one update to be tried."""
    episodes: int = 40
    """Episodes of the old policy, and of the updated ones, for the measured changes."""
    change: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=X")] = ()
    """Try another value of a field of the algorithm, for example --change lam=0.8."""
    seed: int = 0
    out: OptionalPath = None
    """JSON file for the figures."""
    figure: OptionalPath = None
    """PNG file for the chart."""
    trust: bool = False
    """Import the environment and the cost function that the run names (docs/security.md)."""


def run(args: Sequence[str]) -> None:
    parsed = parse(DiagnoseArgs, args, "diagnose")
    from cupola.diagnosis.diagnose import diagnose
    from cupola.diagnosis.figure import draw_diagnosis

    for path in filter(None, (parsed.out, parsed.figure)):
        check_place(path)
    if parsed.figure and parsed.figure.suffix != ".png":
        raise CupolaError(f"--figure is a name like diagnosis.png, not {parsed.figure}.")
    warm_up_cache()
    console = Terminal()
    with CountDisplay(console) as progress:
        found = diagnose(
            parsed.run,
            batches=parsed.batches,
            episodes=parsed.episodes,
            settings=parse_settings(parsed.change),
            seed=parsed.seed,
            tell=progress,
            trust=parsed.trust,
        )
    console.print(diagnosis_table(found))
    console.print(kl_table(found.kl))
    console.print(findings_table(found.findings))
    if parsed.out:
        text = json.dumps(found.to_json(), indent=1) + "\n"
        write_new(parsed.out, text.encode())
    if parsed.figure:
        write_new(parsed.figure, draw_diagnosis(found))


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """`lam=0.8`, any number of times; fields are written with - or _."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise CupolaError(f"--change takes FIELD=value, for example lam=0.8, not {text!r}.")
        try:
            settings[name.replace("-", "_")] = json.loads(value)
        except ValueError:  # a word
            settings[name.replace("-", "_")] = value
    return settings


def diagnosis_table(found: Diagnosis) -> Table:
    """A column for the return and for each cost, a row for each number."""
    tried = "".join(f", {name}={value}" for name, value in found.settings.items())
    what = f"{found.algo} on {found.task}, iteration {found.iteration}{tried}"
    sizes = f"{found.batches} batches of {found.batch_size:,}, {found.updates} updates"
    table = Table(
        title=f"{what}\n{sizes}, twice {found.episodes} episodes",
        caption="± standard error; changes are of the discounted return\n"
        "and of costs as limits count them",
    )
    table.add_column("")
    for level in found.levels:
        name = level.name if level.limit is None else f"cost {level.name}"
        table.add_column(name, justify="right")
    levels, critics, changes = found.levels, found.critics, found.changes
    table.add_row("mean of the episodes", *(pm(level.value) for level in levels))
    limits = ("" if level.limit is None else f"{level.limit:g}" for level in levels)
    table.add_row("limit", *limits, end_section=True)
    table.add_row("critic explains, before an update", *(share(c.before) for c in critics))
    table.add_row("  after it, on its own batch", *(share(c.in_sample) for c in critics))
    table.add_row(
        "  after it, on a fresh batch", *(share(c.held_out) for c in critics), end_section=True
    )
    gradients = found.gradients
    table.add_row("gradients of two batches, cosine", *(pm(g.plain.between) for g in gradients))
    table.add_row("  one batch and the truth", *(fixed(g.plain.truth) for g in gradients))
    table.add_row("natural gradients, cosine", *(pm(g.natural.between) for g in gradients))
    table.add_row("  one batch and the truth", *(fixed(g.natural.truth) for g in gradients))
    pairs = [g.with_reward for g in gradients]
    table.add_row("cost and reward, cosine", *(pm(c.between) if c else "" for c in pairs))
    truths = (fixed(c.truth) if c else "" for c in pairs)
    table.add_row("  of the true gradients", *truths, end_section=True)
    table.add_row("change, predicted on its batch", *(pm(c.fitted) for c in changes))
    table.add_row("  predicted on fresh batches", *(pm(c.held_out) for c in changes))
    table.add_row("  measured", *(pm(c.measured) for c in changes), end_section=True)
    if found.multipliers:
        table.add_row("multiplier nu", "", *(f"{m.nu:.3g}" for m in found.multipliers))
        table.add_row("  return per cost", "", *(f"{m.price:.3g}" for m in found.multipliers))
    return table


def findings_table(findings: tuple[Finding, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column()
    for finding in findings:
        style = "yellow" if finding.status == "warning" else "green"
        table.add_row(Text(finding.status, style), Text(finding.text))
    return table


def kl_table(traces: tuple[Trace, ...]) -> Table:
    table = Table(title="KL of an update as it goes")
    for column in ("step", "KL at each check", "allowed"):
        table.add_column(column, justify="right" if column == "allowed" else "left")
    for trace in traces:
        shown = [f"{value:.2g}" for value in trace.kl]
        if len(shown) > 12:
            shown = [*shown[:6], "...", *shown[-5:]]
        allowed = "no bound" if trace.delta is None else f"{trace.delta:g}"
        table.add_row(trace.step, " ".join(shown) or "skipped", allowed)
    return table


def pm(value: Estimate) -> str:
    """A mean with as many digits as its standard error has two of."""
    mean, error = value
    if not math.isfinite(mean):
        return "-"
    if not math.isfinite(error) or error <= 0:
        return f"{mean:.3g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:,.0f} %"


def fixed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"
