"""Seeds: from the seed of a run to those of its environments."""

from __future__ import annotations

from typing import Literal

import numpy as np


def environment_seed(seed: int, purpose: Literal["train", "evaluate", "diagnose"]) -> int:
    """The seed of the first environment: runs of neighbouring seeds share no episode."""
    entropy = [seed, ("train", "evaluate", "diagnose").index(purpose)]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
