"""A sentence on each finding: what is a warning, and what it says to change."""

from __future__ import annotations

import math
import re

import pytest

from cupola.algos import load_algorithm
from cupola.diagnosis import advice
from cupola.diagnosis.result import (
    Change,
    Cosine,
    Diagnosis,
    Estimate,
    Explained,
    Gradient,
    Level,
    Multiplier,
    Trace,
)

CUP = load_algorithm("cup").Config()
PAPER = load_algorithm("cup").PRESETS["paper"]
TRPO = load_algorithm("trpo_lag").Config()


def cosine(between: float, error: float = 0.01) -> Cosine:
    return Cosine(Estimate(between, error), math.sqrt(between))


def test_a_cost_is_above_its_limit_beyond_doubt_or_not():
    found = advice.on_level(Level("hazards", Estimate(50.2, 2.0), 25.0))
    assert found == ("level", "warning", "Cost hazards stands at 50.2 ± 2 where 25 is allowed.")
    assert advice.on_level(Level("hazards", Estimate(28.0, 2.0), 25.0)).status == "ok"
    assert advice.on_level(Level("cost", Estimate(math.nan, math.nan), 25.0)).status == "warning"


@pytest.mark.parametrize(
    ("own", "fresh", "status", "words"),
    [
        (
            0.05,
            0.03,
            "warning",
            "explains 3 % of the returns of a fresh batch: give .* more critic_epochs",
        ),
        (0.60, 0.05, "warning", "and 60 % of those of its own: it knows its batch by heart"),
        (0.80, 0.40, "warning", "by heart, so use larger batches"),
        (-2.0, -9.0, "warning", "explains nothing of the returns of a fresh batch: give"),
        (0.60, 0.50, "ok", "explains 50 %"),
        (math.nan, math.nan, "ok", "nothing to explain"),
    ],
)
def test_critics(own, fresh, status, words):
    found = advice.on_critic(Explained("hazards", 0.0, own, fresh), CUP)
    assert found.status == status
    assert re.search(words, found.text), found.text
    assert "cost hazards" in found.text


def test_a_critic_is_fitted_as_its_algorithm_does():
    poor = Explained("return", 0.0, 0.01, 0.01)
    assert "more critic_epochs" in advice.on_critic(poor, CUP).text
    assert "more epochs" in advice.on_critic(poor, PAPER).text
    assert "more value_iterations" in advice.on_critic(poor, TRPO).text


def test_gradients_are_judged_as_the_algorithm_follows_them():
    gradient = Gradient("hazards", cosine(0.36), cosine(0.04), None)
    assert [f.status for f in advice.on_gradient(gradient, CUP)] == ["ok"]
    (found,) = advice.on_gradient(gradient, TRPO)
    assert found.status == "warning"
    assert (
        "natural gradient of cost hazards has a cosine of 0.20 with the true one: a" in found.text
    )
    doubtful = gradient._replace(natural=cosine(0.04, 0.05))
    (found,) = advice.on_gradient(doubtful, TRPO)
    assert "cannot be told from 0" in found.text


def test_a_cost_that_rises_with_the_return_is_named():
    gradient = Gradient("hazards", cosine(0.36), cosine(0.36), Cosine(Estimate(0.3, 0.05), 0.7))
    _, found = advice.on_gradient(gradient, CUP)
    assert found.text.startswith("What raises the return raises cost hazards too (cosine 0.70)")
    unsure = gradient._replace(with_reward=Cosine(Estimate(0.3, 0.2), 0.7))
    assert len(list(advice.on_gradient(unsure, CUP))) == 1


@pytest.mark.parametrize(
    ("fitted", "fresh", "measured", "status", "words"),
    [
        ((-13.2, 2), (-2.0, 1), (-1.4, 2), "warning", "by -13 .* but by -2 on fresh ones"),
        ((-13.2, 2), (-11.0, 1), (-12, 2), "ok", "to change by -11 ± 1 and changes by -12 ± 2"),
        ((-13.2, 2), (-11.0, 1), (9, 2), "warning", r"changes by \+9 ± 2: the step is too long"),
        ((-13.2, 2), (-11.0, 1), (-2, 20), "ok", "too noisy to be judged: --episodes"),
        ((-13.2, 9), (-2.0, 1), (-2, 1), "ok", "changes by -2 ± 1"),  # 9: fitted is in doubt
        ((0.0, 0), (0.0, 0), (0.0, 0), "ok", "changes by"),
        ((-13.2, 9), (-2.0, math.nan), (-2, 1), "ok", "to change by -2 and changes by -2 ± 1"),
        ((math.nan, 0), (0.0, 0), (0.0, 0), "warning", "use more --batches"),
    ],
)
def test_changes(fitted, fresh, measured, status, words):
    change = Change("cost", *(Estimate(*pair) for pair in (fitted, fresh, measured)))
    found = advice.on_change(change, CUP)
    assert found.status == status, found.text
    assert re.search(words, found.text), found.text


@pytest.mark.parametrize(
    ("kl", "delta", "status", "words"),
    [
        ((0.44,), 0.02, "warning", "moves 0.44 in KL where 0.02 is allowed, at the first check"),
        ((0.01, 0.04), 0.02, "warning", "at check 2: have fewer steps"),
        ((0.01, 0.025), 0.02, "ok", "moves 0.025 in KL where 0.02 is allowed."),
        ((0.3,), None, "warning", "without a bound: set one"),
        ((0.03,), None, "ok", "without a bound."),
        ((), 0.02, "ok", "was skipped"),
    ],
)
def test_steps(kl, delta, status, words):
    found = advice.on_kl(Trace("projection", kl, delta), CUP)
    assert found.status == status
    assert words in found.text
    assert found.text.startswith("The projection")


def test_a_line_search_that_refuses_all():
    assert advice.on_kl(Trace("step", (0.0,), 0.01), TRPO).status == "warning"


def test_multipliers():
    above, below = (Level("cost", Estimate(x, 1.0), 25.0) for x in (50.0, 20.0))
    full = Multiplier("cost", 2.0, 2.0, 0.34)
    found = advice.on_multiplier(full, above)
    assert found.status == "warning"
    assert "is 2, or 0.34 return per cost, and stands at its bound" in found.text
    assert "raise nu_max" in found.text
    assert advice.on_multiplier(full, below).status == "ok"
    assert advice.on_multiplier(full._replace(nu=0.0, price=0.0), above).status == "warning"


def test_everything_together_in_order():
    level, value = Level("return", Estimate(1.0, 0.1), None), Estimate(0.1, 0.01)
    found = Diagnosis(
        run="run", algo="cup", task="X", iteration=1, settings={}, batch_size=10, batches=2,
        apart=1, updates=2, episodes=2, progress=0.95,
        levels=(level, Level("c", Estimate(3.0, 0.1), 4.0)),
        critics=(Explained("return", 0.1, 0.9, 0.8), Explained("c", 0.1, 0.9, 0.8)),
        gradients=(Gradient("return", cosine(0.5), cosine(0.5), None),),
        changes=(Change("return", value, value, value),),
        kl=(Trace("improvement", (0.01,), 0.02), Trace("projection", (), 0.02)),
        multipliers=(Multiplier("c", 0.1, 2.0, 1234.5),),
    )  # fmt: skip
    findings = advice.advise(found, CUP)
    order = ["level", "rate", "critic", "critic", "gradient", "change", "kl", "kl", "multiplier"]
    assert [finding.topic for finding in findings] == order
    assert [finding.topic for finding in findings if finding.status == "warning"] == ["rate"]
    assert "5 % of its start" in findings[1].text
    assert findings[-1].text == "The multiplier of cost c is 0.1, or 1234 return per cost."
