"""MLflow: pip install 'cupola[mlflow]'.

The variables of its own decide where to: MLFLOW_TRACKING_URI (default: mlflow.db in the working
directory), MLFLOW_EXPERIMENT_NAME (default cupola). RUN/mlflow.json names the run, so that a
resumed training continues the same one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from cupola.runs import schema
from cupola.runs.files import Folder


class MLflow:
    """One run of MLflow: the config as parameters, the iteration as the step of every metric."""

    def __init__(self) -> None:
        import mlflow

        self._entities, self._connect = mlflow.entities, mlflow.MlflowClient
        self._client: Any = None
        self._run = ""

    def start(self, path: Path, config: dict[str, Any], first_iteration: int) -> None:
        self._client = self._connect()
        folder = Folder(path)
        known = schema.read_record(folder, "mlflow.json", schema.MLFLOW)
        if known:
            self._run = known["run_id"]
            self._client.update_run(self._run, status="RUNNING")
        else:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "cupola")
            known = self._client.get_experiment_by_name(name)
            experiment = known.experiment_id if known else self._client.create_experiment(name)
            run = self._client.create_run(experiment, run_name=path.resolve().name)
            self._run = run.info.run_id
            schema.write_record(folder, "mlflow.json", {"run_id": self._run})
        # Also of a run that goes on: it may have stopped before they were stored.
        params = [self._entities.Param(key, str(value)) for key, value in flat(config).items()]
        self._client.log_batch(self._run, params=params)

    def log(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None:
        now, step = time.time_ns() // 10**6, metrics["iteration"]
        numbers = [
            self._entities.Metric(name, value, now, step)
            for name, value in (metrics | timings).items()
            if isinstance(value, int | float) and name != "iteration"
        ]
        self._client.log_batch(self._run, metrics=numbers)

    def close(self, finished: bool) -> None:
        if not self._run:
            return
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of nested tables, with a dot between the names."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


make = MLflow
