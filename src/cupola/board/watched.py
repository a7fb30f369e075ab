"""One run, as far as the board has read it, and what the page is told of it."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from typing import Any

import numpy as np

from cupola import steadiness
from cupola.errors import CupolaError
from cupola.reports.page import rounded
from cupola.reports.panels import Quantity, over_training, thin
from cupola.reports.results import is_discounted
from cupola.runs.files import Folder, Stamp
from cupola.runs.following import RunFollower

RECENT = 10
"""Iterations whose median time tells how long one takes."""
MOST_VIDEO = 32 * 2**20
"""Bytes of a video that is shown."""
MOST_VIDEOS = 100
"""Files that are looked at to find the last one."""
VIDEO_TYPES = {".gif": "image/gif", ".mp4": "video/mp4", ".webm": "video/webm"}
LIVE_SECONDS, IDLE_SECONDS = 1.0, 5.0
"""Between two looks at a run that trains, and at one that does not."""

Json = dict[str, Any]


class Watched:
    """A run that is read on, piece by piece. Its methods are called with its ``lock`` held."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder, self.name = folder, name
        self.id = identify(name)
        self.lock = threading.Lock()
        self.fault = ""
        """Why it is left out, in a sentence."""
        self.is_training = False
        self.is_read = False
        """Whether all of its lines have been read."""
        self.video: tuple[str, Stamp] | None = None
        self.row: Json = {}
        """Its line in the list of runs; empty where it is left out."""
        self.due = 0.0
        """When to look again, on the monotonic clock."""
        self._run = RunFollower(folder)
        self._glance: Json | None = None
        self._held: tuple[int, dict[str, steadiness.Steadiness]] = (-1, {})

    @property
    def config(self) -> Json:
        return self._run.config

    def look(self) -> None:
        """What can be told at once: the config, the last line, whether it trains, its video."""
        try:
            self._run.read_config()
            self.is_training = self._run.is_training()
            self.video = last_video(self.folder)
            if not self.is_read:
                self._glance = self._run.glance()
            self.fault = ""
        except CupolaError as error:
            self.fault = str(error)
        self.due = time.monotonic() + (LIVE_SECONDS if self.is_training else IDLE_SECONDS)

    def read_on(self) -> None:
        """Read a piece of what is new."""
        try:
            self._run.read_config()
            self.is_read = not self._run.read_on()
            self.fault = ""
        except CupolaError as error:
            self.fault, self.is_read = str(error), True

    def read_all(self) -> None:
        self.read_on()
        while not self.is_read:
            self.read_on()

    # --- What the page is told ---

    @property
    def done(self) -> int:
        if self.is_read:
            return self._run.metrics.iteration
        return self._glance["iteration"] if self._glance else 0

    @property
    def state(self) -> str:
        if self.is_training:
            return "running"
        return "finished" if self.done >= (self._asked or math.inf) else "interrupted"

    @property
    def _asked(self) -> int | None:
        """Iterations of the whole run; of one that ended early those up to there."""
        ended = self.config.get("ended", {})
        return ended.get("iteration", self.config.get("iterations"))

    def tell(self) -> None:
        """Bring its row up to date."""
        self.row = self._make_row() if self.config and not self.fault else {}

    def _make_row(self) -> Json:
        config = self.config
        seconds = self._seconds()[1:]  # the first one compiles
        recent = float(np.median(seconds[-RECENT:])) if len(seconds) else math.nan
        asked, ended = self._asked, config.get("ended")
        changed = self.folder.stamp("metrics.jsonl")
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "reason": f"ended early: {ended['reason']}" if ended else "",
            "algo": config["algo"],
            "task": config["task"],
            "seed": config.get("seed", 0),
            "done": self.done,
            "asked": asked,
            "read": self.is_read,
            "return": known(self._last("return")),
            "costs": [self._cost_row(name, limit) for name, limit in config["limits"].items()],
            "speed": known(self._batch / recent if recent > 0 else math.nan),
            "left": known((asked - self.done) * recent) if asked and self.is_training else None,
            "changed": changed.changed // 10**6 if changed else None,
            "video": self._video_row(),
        }

    def _cost_row(self, name: str, limit: float) -> Json:
        cost = self._last(f"cost/{name}")
        verdict: str = steadiness.verdict(self._steadiness()[name]) if self.is_read else "-"
        if verdict == "exceeded" and cost <= limit:  # the cost is the last one, the verdict not
            verdict = "exceeded on average"
        return {
            "name": name,
            "limit": limit,
            "cost": known(cost),
            "verdict": verdict,
        }

    def _video_row(self) -> Json | None:
        if self.video is None:
            return None
        name, stamp = self.video
        return {"name": name, "at": stamp.changed, "moves": not name.lower().endswith(".gif")}

    def _last(self, key: str) -> float:
        if self.is_read:
            return self._run.metrics.last(key)
        value = (self._glance or {}).get(key)
        return math.nan if value is None else value

    def _seconds(self) -> np.ndarray:
        """Of each iteration, [T]."""
        if not self.is_read:
            return np.zeros(0)
        timings = self._run.timings
        return timings.column("rollout_seconds") + timings.column("update_seconds")

    def _steadiness(self) -> dict[str, steadiness.Steadiness]:
        """How each limit is held; computed once for every new line."""
        metrics = self._run.metrics
        if self._held[0] != metrics.count:
            held = {
                name: steadiness.measure(
                    metrics.column(f"cost/{name}"), metrics.column(f"cost_error/{name}"), limit
                )
                for name, limit in self.config["limits"].items()
            }
            self._held = metrics.count, held
        return self._held[1]

    def curves(self, points: int) -> Json:
        """Its curves, thinned, how it holds its limits and what its iterations take."""
        metrics, config = self._run.metrics, self.config
        bucket = max(1, math.ceil(metrics.count / points))
        panels = []
        for quantity in quantities(config):
            values = metrics.column(quantity.key)
            optional = quantity.evaluated or quantity.kind == "multiplier"
            if not optional or np.isfinite(values).any():
                panels.append(
                    {
                        "kind": quantity.kind,
                        "label": quantity.label,
                        "axis": quantity.axis,
                        "limit": config["limits"].get(quantity.cost)
                        if quantity.kind == "cost"
                        else None,
                        "evaluated": bool(quantity.evaluated),
                        "y": rounded(quantity.values(values, bucket)),
                    }
                )
        held = {
            name: {key: known(value) for key, value in one._asdict().items()}
            | {"verdict": steadiness.verdict(one)}
            for name, one in self._steadiness().items()
        }
        x = [int(step) for step in thin(metrics.column("steps"), bucket)]
        return {
            "id": self.id,
            "done": self.done,
            "task": config["task"],
            "x": x,
            "bucket": bucket,
            "panels": panels,
            "held": held,
            "timings": self._timings(),
        }

    @property
    def _batch(self) -> float:
        """Steps an iteration, as they were counted."""
        return self._last("steps") / self.done if self.done else math.nan

    def _timings(self) -> Json:
        seconds, timings = self._seconds(), self._run.timings
        if not len(seconds):
            return {}
        usual = float(np.median(seconds))
        shares = timings.column("rollout_seconds") / np.maximum(seconds, 1e-9)
        return {
            "speed": known(self._batch / usual if usual > 0 else 0.0),
            "seconds": known(usual),
            "rollout": known(float(np.median(shares))),
            "first": known(float(seconds[0])),
            "minutes": known(float(seconds.sum()) / 60),
        }


def quantities(config: Json) -> list[Quantity]:
    """The panels of a run, as a report has them."""
    costs = [(cost, is_discounted(config["task"], cost, config)) for cost in config["limits"]]
    evaluates = bool(config.get("evaluate_every"))
    return [one for one in over_training(costs) if evaluates or not one.evaluated]


def identify(name: str) -> str:
    """What a run is called in addresses: never its path."""
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12]


def known(value: float) -> float | None:
    """For JSON, with more digits than a screen shows."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def last_video(folder: Folder) -> tuple[str, Stamp] | None:
    """The newest picture that moves in a run's directory, unless it is too large."""
    names = (name for name, is_folder in folder.entries().items() if not is_folder)
    fitting = [name for name in names if video_type(name)][:MOST_VIDEOS]
    stamps = ((name, folder.stamp(name)) for name in fitting)
    found = [(name, stamp) for name, stamp in stamps if stamp and stamp.size <= MOST_VIDEO]
    return max(found, key=lambda one: one[1].changed, default=None)


def video_type(name: str) -> str | None:
    return next((kind for end, kind in VIDEO_TYPES.items() if name.lower().endswith(end)), None)
