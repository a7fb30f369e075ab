"""All curves of a sweep, or of any runs, in one file: a compressed CSV, one row per iteration.

    algorithm, FIELD ..., task, seed, iteration, steps, episodes, length, return,
    kl, kl_improve, kl_project, cost/NAME, cost_error/NAME, limit/NAME, nu/NAME, ..., state

A FIELD is a setting that varies between the runs. kl is the KL divergence of a policy step, and
kl_improve and kl_project are those of CUP's two; only columns that a run has are there.
cost_error/NAME is the standard error of the estimate cost/NAME, nu/NAME the Lagrange multiplier of
a cost. Files of earlier versions have no cost_error/NAME. A cell is empty where a value is not
known. Numbers have all their digits, so a report from this file has the same tables and curves as
one from the run directories. The rows of a run stand together, from iteration 1 on; a run without
iterations has one row, in which the iteration is empty.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from cupola.errors import CupolaError, unknown
from cupola.reports.results import Results, RunResult, refuse_enormous
from cupola.runs.files import MAX_CURVES, read_file
from cupola.sweeps.cells import cell_name
from cupola.sweeps.directory import State

FILE_NAME = "curves.csv.gz"
SCALARS = ("iteration", "steps", "episodes", "length", "return")
STEPS = ("kl", "kl_improve", "kl_project")
PER_COST = ("cost/", "cost_error/", "limit/", "nu/")
IF_KNOWN = (*STEPS, "cost_error/", "nu/")
FIXED = ("algorithm", "task", "seed", *SCALARS, "state")


def encode(results: Results) -> bytes:
    """The file of all curves; equal results give equal bytes."""
    costs = list(dict.fromkeys(cost for run in results.runs for cost in run.costs))
    steps = [name for name in STEPS if any(name in run.curves for run in results.runs)]
    numbers = [*SCALARS, *steps, *(prefix + cost for cost in costs for prefix in PER_COST)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["algorithm", *results.varied, "task", "seed", *numbers, "state"])
    for run in results.runs:
        point = [
            write_field(run.point[field]) if field in run.point else "" for field in results.varied
        ]
        rows = max(1, run.iterations)
        columns = [write_numbers(run, name, rows) for name in numbers]
        for values in zip(*columns, strict=True):
            writer.writerow([run.label, *point, run.task, run.seed, *values, run.state])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def write_numbers(run: RunResult, column: str, rows: int) -> list[str]:
    """A column of a run; the limits come from where the tables and charts have them."""
    kind, _, cost = column.partition("/")
    if kind == "limit":
        return [write_number(run.limits.get(cost, math.nan))] * rows
    values = run.curves.get(column, np.full(rows, math.nan))
    return [write_number(value) for value in values.tolist()]


def write_number(value: float) -> str:
    return repr(float(value)).removesuffix(".0") if math.isfinite(value) else ""


def write_field(value: Any) -> str:
    """A setting as JSON; a text stays plain where it cannot be mistaken for something else."""
    if isinstance(value, str) and value and read_field(value) == value:
        return value
    return json.dumps(value)


def read_field(text: str) -> Any:
    try:
        # Python's whole numbers know no bound; those of a chart do.
        return json.loads(text, parse_int=lambda d: int(d) if len(d) < 19 else float(d))
    except (ValueError, RecursionError):
        return text


def read(path: Path) -> Results:
    """The results in a file of curves, compressed or not; one sentence where it is damaged."""
    try:
        data = read_file(path, MAX_CURVES)
        # By its first bytes, not its name: a browser may have unpacked it. A spreadsheet may have
        # put a byte order mark in front.
        packed = data.startswith(b"\x1f\x8b")
        text = (unpack(data) if packed else data).decode("utf-8-sig")
        runs = decode(io.StringIO(text, newline=""))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CupolaError(f"cannot read the curves of {path} ({reason}).") from None
    except CupolaError as error:
        raise CupolaError(f"{path}: {error}") from None
    return Results(title(path.resolve()), runs)


def unpack(data: bytes) -> bytes:
    """What was compressed, up to a bound: a small file can hold very much."""
    with gzip.open(io.BytesIO(data)) as file:
        text = file.read(MAX_CURVES + 1)
    if len(text) > MAX_CURVES:
        raise CupolaError(f"it is too large: more than {MAX_CURVES} bytes.")
    return text


def title(path: Path) -> str:
    """`toy` for toy.csv, toy/curves.csv.gz and toy/report/curves.csv.gz."""
    names = (path.name.partition(".")[0], path.parent.name, path.parent.parent.name)
    return next((name for name in names if name not in ("curves", "report")), "curves")


class Header(NamedTuple):
    """What the columns of a file are called."""

    names: list[str]
    fields: list[str]
    """The settings that vary: the columns between `algorithm` and `task`."""
    texts: list[str]
    """Columns that are the same in all rows of a run."""
    numbers: list[str]
    """All others, which change from iteration to iteration."""


def read_header(names: list[str]) -> Header:
    for name in FIXED:
        if name not in names:
            raise CupolaError(f"the column {name!r} is missing: is this a file of curves?")
    if names[0] != "algorithm" or "" in names or len(set(names)) < len(names):
        raise CupolaError("the first line must name every column once, 'algorithm' first.")
    task = names.index("task")
    for name in names[task:]:
        if name not in (*FIXED, *STEPS) and not name.startswith(PER_COST):
            raise unknown("column", name, (*FIXED, *STEPS, *(f"{kind}NAME" for kind in PER_COST)))
    for name in names[task:]:
        _, slash, cost = name.partition("/")
        for needed in (f"cost/{cost}", f"limit/{cost}"):
            if slash and needed not in names:
                raise CupolaError(f"the column {name!r} needs a column {needed!r} beside it.")
    texts = ["algorithm", *names[1:task], "task", "seed", "state"]
    return Header(names, names[1:task], texts, [name for name in names if name not in texts])


class Block(NamedTuple):
    """The rows of one run: what they share, and their numbers."""

    shared: dict[str, str]
    rows: list[dict[str, float]]


def decode(lines: Iterable[str]) -> list[RunResult]:
    """The runs of a file, in its order."""
    reader = csv.reader(lines, strict=True)
    header = read_header(next(reader, []))
    blocks: list[Block] = []
    for row in reader:
        try:
            if len(row) != len(header.names):
                raise CupolaError(f"there are {len(row)} cells, not {len(header.names)}.")
            cells = dict(zip(header.names, row, strict=True))
            append(
                blocks,
                {name: cells[name] for name in header.texts},
                {name: read_number(name, cells[name]) for name in header.numbers},
            )
        except CupolaError as error:
            raise CupolaError(f"line {reader.line_num}: {error}") from None
    if not blocks:
        raise CupolaError("there are no curves in it.")
    return [make_run(block, header) for block in blocks]


def read_number(name: str, cell: str) -> float:
    if not cell:
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CupolaError(f"{name} must be a number or empty, not {cell[:40]!r}.")
    return value


def append(blocks: list[Block], shared: dict[str, str], row: dict[str, float]) -> None:
    """Add a row to the last run, or begin the next one; refuse a row that fits neither."""
    iteration = row["iteration"]
    if blocks and shared == blocks[-1].shared and iteration == len(blocks[-1].rows) + 1:
        blocks[-1].rows.append(row)
    elif iteration == 1 or math.isnan(iteration):
        check_shared(shared)
        blocks.append(Block(shared, [row]))
    else:
        raise CupolaError(
            f"iteration {iteration:g} is out of order: the rows of a run stand together, from"
            " iteration 1 on."
        )
    if math.isnan(row["steps"]) and not math.isnan(iteration):
        raise CupolaError("steps must be a number in every iteration.")
    for name, value in row.items():
        first = blocks[-1].rows[0][name]
        same = value == first or (math.isnan(value) and math.isnan(first))
        if name.startswith("limit/") and not same:
            raise CupolaError(f"{name} must be the same in all rows of a run.")


def check_shared(shared: dict[str, str]) -> None:
    for name in ("algorithm", "task"):
        if not shared[name]:
            raise CupolaError(f"{name} must not be empty.")
    if shared["state"] not in get_args(State):
        raise unknown("state", shared["state"], get_args(State))
    if not shared["seed"].isdecimal() or len(shared["seed"]) > 18:
        raise CupolaError(f"seed must be a whole number, not {shared['seed'][:40]!r}.")


def make_run(block: Block, header: Header) -> RunResult:
    shared, rows = block
    label, task, seed = shared["algorithm"], shared["task"], int(shared["seed"])
    point = {name: read_field(shared[name]) for name in header.fields if shared[name]}
    limits = {
        name.removeprefix("limit/"): value
        for name, value in rows[0].items()
        if name.startswith("limit/") and not math.isnan(value)
    }
    curves = {}
    if not math.isnan(rows[0]["iteration"]):
        wanted = [
            name
            for name in header.numbers
            if name in (*SCALARS, *STEPS) or name.partition("/")[2] in limits
        ]
        curves = {name: np.array([row[name] for row in rows]) for name in wanted}
        # An algorithm may have no Lagrange multipliers, a run of an earlier version no errors.
        curves = {
            name: values
            for name, values in curves.items()
            if not name.startswith(IF_KNOWN) or np.isfinite(values).any()
        }
    name = cell_name(label, task, point, seed)
    refuse_enormous(name, curves, limits | point)
    return RunResult(
        name, label, task, seed, point, shared["state"], "", limits=limits, curves=curves
    )
