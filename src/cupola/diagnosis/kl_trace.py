"""The KL divergence of an update as it goes: the one place that knows how it is obtained."""

from __future__ import annotations

import math

import numpy as np

from cupola.diagnosis.result import Trace
from cupola.diagnosis.sampling import Subject
from cupola.types import Batch, Metrics

CUT = 0.999
"""Below this share of the last look at it, the KL of a step was made smaller behind that look."""


def kl_traces(subject: Subject, index: int, batch: Batch, metrics: Metrics) -> tuple[Trace, ...]:
    """Of each step of the update on batch ``index``, whose metrics are given.

    Minibatch descent looks at the KL after every epoch, or more often; where it then shortens the
    step, what is left comes last. A step on the whole batch has one KL.
    """
    config = subject.config
    bound = getattr(config, "delta", math.inf)
    bounds = {"projection": getattr(config, "projection_delta", 0.0) or bound}

    def delta(step: str) -> float | None:
        allowed = bounds.get(step, bound)
        return allowed if allowed < math.inf else None

    if subject.algorithm.trace is None:
        return (Trace("step", (float(metrics["kl"]),), delta("step")),)
    samples = subject.samples_of(subject.learner, batch)
    found = subject.algorithm.trace(subject.learner, samples, batch, subject.key(1, index))
    names = ("improvement", "projection") if len(found) == 2 else ("step",)
    ends = ("kl_improve", "kl_project") if len(found) == 2 else ("kl",)
    traces = []
    for name, end, values in zip(names, ends, found, strict=True):
        looks = np.asarray(values, float)
        kl, left = looks[~np.isnan(looks)].tolist(), float(metrics[end])
        if kl and left < CUT * kl[-1]:
            kl.append(left)
        traces.append(Trace(name, tuple(kl), delta(name)))
    return tuple(traces)
