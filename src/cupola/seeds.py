"""Seeds: from the seed of a run to those of its environments."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Purpose = Literal["train", "evaluate", "diagnose", "monitor"]


def environment_seed(seed: int, purpose: Purpose) -> int:
    """The seed of the first environment: runs of neighbouring seeds share no episode."""
    entropy = [seed, get_args(Purpose).index(purpose)]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1)
