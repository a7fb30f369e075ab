"""`cupola export`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupola.commands.parsing import FilePath, RunPath, WhichCheckpoint, parse
from cupola.commands.writing import check_new, write_new
from cupola.errors import CupolaError


@dataclass(frozen=True)
class ExportArgs:
    """Write a trained policy as one file that other programs can use: .onnx or .npz."""

    run: RunPath
    """The run's directory, one of its checkpoints, or a policy of the zoo (zoo:HopperSpeed)."""
    file: FilePath
    """policy.onnx for ONNX (needs the extra onnx), or policy.npz for plain numpy arrays."""
    checkpoint: WhichCheckpoint = "last"
    """Which policy of the run: the best one, the last one, or that of iteration N if it is kept."""
    force: bool = False
    """Replace the file if there is one."""


def run(args: Sequence[str]) -> None:
    parsed = parse(ExportArgs, args, "export")
    if parsed.file.suffix not in (".onnx", ".npz"):
        raise CupolaError(f"a policy is written as .onnx or .npz: not {parsed.file}.")
    check_new(parsed.file, parsed.force)
    from cupola.export.arrays import to_npz
    from cupola.export.onnx import to_onnx
    from cupola.policy import load

    policy = load(parsed.run, parsed.checkpoint)
    data = to_onnx(policy) if parsed.file.suffix == ".onnx" else to_npz(policy)
    write_new(parsed.file, data)
    size = f"{policy.obs_size} numbers in, {_outcome(policy.act_size, policy.discrete)} out"
    print(f"{parsed.file}: iteration {policy.iteration}, {size}, {len(data):,} bytes")


def _outcome(act_size: int, discrete: bool) -> str:
    return f"one of {act_size} choices" if discrete else f"{act_size} numbers"
