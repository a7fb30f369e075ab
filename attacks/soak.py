"""A long training, watched: memory, descriptors and threads against iterations, flat or not.

    python -m attacks.soak tiny experiments/results/soak      # 20,000 iterations, about 25 minutes
    python -m attacks.soak real experiments/results/soak      # two hours of CUP on HopperSpeed

Writes NAME.csv.gz and NAME.png into the folder; exit code 1 where something is not flat.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cupola.drawing import own_settings

TINY = (
    *("ppo_lag", "ProbeQuadratic", "--batch-size", "40", "--num-envs", "4", "--epochs", "1"),
    *("--minibatch-size", "20", "--hidden", "4", "--threads", "1", "--checkpoint-every", "50"),
)
REAL = ("cup", "HopperSpeed", "--threads", "1")
SETTLED = 0.2
"""The first part of a run does not count: functions are compiled, caches and windows fill."""
ALLOWED = {"rss_mb": 0.03, "descriptors": 0.0, "threads": 0.0}
"""By how much of its median each may grow from there to the end."""
LABELS = {"rss_mb": "memory (MB)", "descriptors": "descriptors", "threads": "threads"}


class Sample(NamedTuple):
    """The state of the process at one moment."""

    seconds: float
    iteration: int
    rss_mb: float
    descriptors: int
    threads: int


def watch(
    process: subprocess.Popen[bytes], run: Path, iterations: int, every: float, hours: float
) -> list[Sample]:
    """A sample now and then, until the last iteration or until the time is over."""
    began, samples, lines = time.monotonic(), [], LineCount(run / "metrics.jsonl")
    while process.poll() is None:
        spent = time.monotonic() - began
        if hours and spent > 3600 * hours:
            process.terminate()
            process.wait()
            break
        iteration = lines.update()
        if 0 < iteration < iterations and (sample := look(process.pid, spent, iteration)):
            samples.append(sample)
        time.sleep(every)
    return samples


class LineCount:
    """The lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._count = path, 0, 0

    def update(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._place)
                new = file.read()
            self._place += len(new)
            self._count += new.count(b"\n")
        return self._count


def look(pid: int, seconds: float, iteration: int) -> Sample | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # it has just ended
        return None
    facts = dict(line.split(":", 1) for line in status.splitlines())
    if "VmRSS" not in facts:
        return None
    memory = int(facts["VmRSS"].split()[0]) / 1024
    return Sample(seconds, iteration, memory, descriptors, int(facts["Threads"]))


def growth(iterations: np.ndarray, values: np.ndarray) -> float:
    """Growth over the settled part by its share of the median; the slope is Theil and Sen's."""
    from scipy.stats import theilslopes

    chosen = iterations >= SETTLED * iterations[-1]
    x, y = iterations[chosen], values[chosen]
    step = max(1, len(x) // 1000)  # the slope looks at all pairs
    slope = theilslopes(y[::step], x[::step]).slope
    return float(slope * (x[-1] - x[0]) / np.median(y))


def write_csv(path: Path, samples: list[Sample]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Sample._fields)
    for s in samples:
        row = (f"{s.seconds:.1f}", s.iteration, f"{s.rss_mb:.2f}", s.descriptors, s.threads)
        writer.writerow(row)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def draw(path: Path, samples: list[Sample], grown: dict[str, float], title: str) -> None:
    from matplotlib.figure import Figure

    iterations = [sample.iteration for sample in samples]
    figure = Figure(figsize=(8, 7), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    for axis, (name, share) in zip(axes, grown.items(), strict=True):
        values = [getattr(sample, name) for sample in samples]
        axis.plot(iterations, values, linewidth=1.2)
        axis.axvspan(0, SETTLED * iterations[-1], color="0.93", zorder=0)
        axis.set_ylabel(LABELS[name])
        axis.set_ylim(0, 1.25 * max(values))
        verdict = "flat" if share <= ALLOWED[name] else "not flat"
        axis.set_title(
            f"{verdict}: {100 * share:+.2f} % over the white part", fontsize=9, loc="right"
        )
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("iteration")
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attacks.soak", description=__doc__)
    parser.add_argument("which", choices=("tiny", "real"))
    parser.add_argument("out", type=Path, help="folder for the table and the figure")
    parser.add_argument("--iterations", type=int, default=20_000, help="of the tiny one")
    parser.add_argument("--hours", type=float, default=2.0, help="of the real one")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between samples")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    tiny = asked.which == "tiny"
    words, count = (TINY, asked.iterations) if tiny else (REAL, 1_000_000)
    with tempfile.TemporaryDirectory(prefix="cupola-soak-") as folder:
        run = Path(folder) / "run"
        command = [*words, "--iterations", str(count), "--out", str(run)]
        print("cupola train", *command[:-2], flush=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "cupola", "train", *command], stdout=subprocess.DEVNULL
        )
        samples = watch(process, run, count, asked.every, 0.0 if tiny else asked.hours)
    if process.returncode not in (0, 130) or not samples:
        print(f"the training failed: exit code {process.returncode}")
        return 1
    table = np.array(samples)
    iterations = table[:, Sample._fields.index("iteration")]
    grown = {name: growth(iterations, table[:, Sample._fields.index(name)]) for name in ALLOWED}
    write_csv(asked.out / f"{asked.which}.csv.gz", samples)
    what = f"{words[0]} on {words[1]}, {samples[-1].iteration:,} iterations"
    title = f"{what}, {samples[-1].seconds / 60:.1f} min"
    with own_settings():
        draw(asked.out / f"{asked.which}.png", samples, grown, title)
    for name, share in grown.items():
        word = "flat" if share <= ALLOWED[name] else "NOT FLAT"
        print(f"{LABELS[name]:12} {word}, {100 * share:+.2f} % from iteration "
              f"{SETTLED * iterations[-1]:.0f} on")  # fmt: skip
    return 0 if all(share <= ALLOWED[name] for name, share in grown.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
