"""What each update was predicted to change, held against what then happened."""

from __future__ import annotations

import numpy as np

from cupola.episodes import Finished
from cupola.tasks.base import State, alike
from cupola.types import Prediction


class PredictionCheck:
    """The last update's predictions and the levels before it, [1 + K]: reward first, then costs."""

    def __init__(self, costs: int, gamma: float) -> None:
        self._gamma = gamma
        self._horizon = np.full(1, np.nan)
        self._predicted = np.full(1 + costs, np.nan)
        self._level = np.full(1 + costs, np.nan)

    def absorb(self, finished: Finished) -> None:
        """Take the lengths of episodes in: the horizon of the discounted return."""
        if len(finished.lengths):
            self._horizon = finished.horizons(self._gamma).mean(keepdims=True)

    def compare(self, prediction: Prediction, horizons: np.ndarray) -> dict[str, np.ndarray]:
        """Predicted and measured changes by the last update; ``prediction`` is about the next one.

        ``horizons`` [K] are the costs'. NaN where something is not known yet.
        """
        horizon = np.concatenate([self._horizon, horizons])
        start = np.where(prediction.started > 0, prediction.start, np.nan)
        level = start + horizon * prediction.residual
        predicted, measured = self._predicted, level - self._level
        self._predicted, self._level = horizon * prediction.change, level
        return {
            "return_change_predicted": predicted[0],
            "return_change_measured": measured[0],
            "cost_change_predicted": predicted[1:],
            "cost_change_measured": measured[1:],
        }

    def save(self) -> State:
        return {"horizon": self._horizon, "predicted": self._predicted, "level": self._level}

    def restore(self, state: State) -> None:
        """Nothing is known yet where the state is empty."""
        if state:
            state = alike(state, self.save())
            self._horizon[:] = state["horizon"]
            self._predicted[:], self._level[:] = state["predicted"], state["level"]
