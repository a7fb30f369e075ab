"""A real browser, driven over its debugging pipe; sweeps that nobody trained."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cupola.runs.directory import RunDirectory
from cupola.sweeps import grid
from cupola.sweeps.directory import SweepDirectory


class Browser:
    """Headless Chromium with one page; messages are JSON objects that end with a zero byte."""

    def __init__(self, program: str, profile: Path) -> None:
        there, self._write = os.pipe()
        self._read, back = os.pipe()
        command = f'exec "$0" "$@" 3<&{there} 4>&{back}'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options += [f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *options],
            pass_fds=(there, back),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there)
        os.close(back)
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """What went to the console, and errors."""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            assert part, "the browser ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if message.get("method") in (
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ):
            self.complaints.append(json.dumps(message["params"]))
        return message

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def open(self, page: Path) -> None:
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        frames = "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
        self.call("Runtime.evaluate", expression=frames, awaitPromise=True)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def screenshot(self, path: Path) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium on this machine")
    found = Browser(program, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def made_up_sweep() -> Callable[..., None]:
    return make_up_sweep


def make_up_sweep(path: Path, text: str, seed: int = 0) -> None:
    """A sweep's directory with finished runs that nobody trained: curves are random walks."""
    file = path.with_suffix(".toml")
    file.write_text(text)
    sweep = SweepDirectory(path, grid.read(file))
    sweep.write()
    rng = np.random.default_rng(seed)
    for number, cell in enumerate(sweep.cells.values()):
        config = cell.resolve()
        assert config is not None
        run, count = RunDirectory.create(path / cell.name, config.to_json()), cell.iterations
        level = 100.0 * (1 + number % 7)
        returns = level * (1 - np.exp(-np.arange(count) / count * 4)) + rng.normal(0, 9, count)
        with (
            run.metrics_file.open("w") as metrics,
            run.timings_file.open("w") as timings,
        ):
            for i in range(count):
                record: dict[str, Any] = {
                    "iteration": i + 1,
                    "steps": (i + 1) * 5000,
                    "episodes": 5,
                }
                record |= {"length": 1000.0, "return": None if i == 0 else returns[i]}
                for name, limit in config.limits.items():
                    cost = limit * (0.4 + 0.2 * (number % 5)) + rng.normal(0, 1)
                    record |= {f"cost/{name}": None if i == 0 else cost, f"limit/{name}": limit}
                    record |= {f"nu/{name}": 0.1 * rng.random(), "value_loss": rng.random()}
                metrics.write(json.dumps(record) + "\n")
                times = {"iteration": i + 1, "rollout_seconds": 0.4, "update_seconds": 0.1}
                timings.write(json.dumps(times | {"steps_per_second": 10000.0}) + "\n")
        mean = {"mean": level, "low": level - 1, "high": level + 1}
        costs = {name: {**mean, "limit": limit} for name, limit in config.limits.items()}
        evaluation = {"return": mean, "costs": costs}
        result = {"episodes": 20, "versions": {"cupola": "0.1.0", "python": "3.11.7"}}
        result |= {"sampled": evaluation, "deterministic": evaluation}
        (run.path / "result.json").write_text(json.dumps(result))
