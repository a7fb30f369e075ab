"""A sentence on each finding, and what to change where it is a warning."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cupola.algos.config import MinibatchConfig, OnPolicyConfig, TrustRegionConfig
from cupola.diagnosis.result import (
    RETURN,
    Change,
    Diagnosis,
    Estimate,
    Explained,
    Finding,
    Gradient,
    Level,
    Multiplier,
    Topic,
    Trace,
)

EXPLAINS_LITTLE = 0.1
"""Below this share of the variance a critic is hardly better than a constant."""
OVERFITS = 0.3
"""A critic that explains so much more of its own batch than of a fresh one knows it by heart."""
NOISY = 0.3
"""Below this cosine with the truth less than a tenth of a squared gradient is signal."""
ALIKE = 0.5
"""Above this cosine what raises the return raises the cost."""
ERRORS = 2.0
"""Standard errors from which on a difference counts: about 95 % confidence."""
FITTED = 0.5
"""Share of a change predicted on an update's own batch that must be left on fresh ones."""
KL_EXCESS = 1.5
"""A step may end this much beyond delta: what exceeds it at a check is kept."""
KL_LARGE = 0.1
"""Where there is no bound: beyond this a surrogate says little."""
RATE_LOW = 0.1
"""Below this share of the first learning rate, updates say little about those before."""
AT_BOUND = 0.99
"""A multiplier above this share of its bound stands at it."""


def advise(found: Diagnosis, config: OnPolicyConfig) -> tuple[Finding, ...]:
    """At least one finding on everything that was measured, in that order."""
    limited = [level for level in found.levels if level.limit is not None]
    return (
        *(on_level(level) for level in limited),
        *on_rate(found.progress, config),
        *(on_critic(critic, config) for critic in found.critics),
        *(finding for gradient in found.gradients for finding in on_gradient(gradient, config)),
        *(on_change(change, config) for change in found.changes),
        *(on_kl(trace, config) for trace in found.kl),
        *map(on_multiplier, found.multipliers, limited),
    )


def ok(topic: Topic, text: str) -> Finding:
    return Finding(topic, "ok", text)


def warning(topic: Topic, text: str) -> Finding:
    return Finding(topic, "warning", text)


def on_level(level: Level) -> Finding:
    if math.isnan(level.value.mean):
        sentence = f"No episode ended, so {signal(level.name)} is not known: use more --batches."
        return warning("level", sentence)
    what = f"{opening(level.name)} stands at {pm(level.value)}"
    if is_above(level):
        return warning("level", f"{what} where {short(level.limit)} is allowed.")
    return ok("level", f"{what}, limit {short(level.limit)}.")


def on_rate(progress: float, config: OnPolicyConfig) -> Iterator[Finding]:
    by_rate = ("all", "policy") if isinstance(config, MinibatchConfig) else ("all",)
    if config.lr_decay in by_rate and 1 - progress < RATE_LOW:
        yield warning(
            "rate",
            f"The learning rate has fallen to {percent(1 - progress)} of its start, so that little"
            " moves here: --change lr_decay=none shows updates at the full rate.",
        )


def on_critic(critic: Explained, config: OnPolicyConfig) -> Finding:
    own, other = critic.in_sample, critic.held_out
    if math.isnan(other):
        return ok("critic", f"All returns of {signal(critic.name)} are alike: nothing to explain.")
    who = f"The critic of {signal(critic.name)}"
    what = f"{who} explains {percent(other)} of the returns of a fresh batch"
    own_schedule = "value_iterations" if isinstance(config, TrustRegionConfig) else "epochs"
    fit = "critic_epochs" if config.critic_epochs else own_schedule
    if own - max(other, 0.0) > OVERFITS:
        return warning(
            "critic",
            f"{what} and {percent(own)} of those of its own: it knows its batch by heart, so use"
            f" larger batches (batch_size), fewer {fit} or a larger value_l2.",
        )
    if other < EXPLAINS_LITTLE:
        return warning(
            "critic",
            f"{what}: give the critics more {fit}, or use larger batches (batch_size).",
        )
    return ok("critic", f"{what}.")


def on_gradient(gradient: Gradient, config: OnPolicyConfig) -> Iterator[Finding]:
    """On the kind of gradient that the algorithm follows."""
    natural = isinstance(config, TrustRegionConfig)
    cosine = gradient.natural if natural else gradient.plain
    whose = f"{'natural gradient' if natural else 'gradient'} of {signal(gradient.name)}"
    if math.isnan(cosine.truth):
        yield ok("gradient", f"The {whose} is zero: nothing to learn from.")
        return
    what = f"One batch's {whose} has a cosine of {cosine.truth:.2f} with the true one"
    if cosine.truth < NOISY:
        unsure = cosine.between.mean < ERRORS * known(cosine.between.error)
        doubt = " (it cannot be told from 0)" if unsure else ""
        yield warning(
            "gradient",
            f"{what}{doubt}: a step along it is mostly noise, so use larger batches (batch_size), a"
            f" smaller {'lam' if gradient.name == RETURN else 'lam_c'} or a better critic.",
        )
    else:
        yield ok("gradient", f"{what}.")
    crossed = gradient.with_reward
    sure = crossed and crossed.between.mean > ERRORS * known(crossed.between.error)
    if crossed and sure and crossed.truth > ALIKE:
        yield ok(
            "gradient",
            f"What raises the return raises {signal(gradient.name)} too (cosine"
            f" {crossed.truth:.2f}): holding the limit costs return.",
        )


def on_change(change: Change, config: OnPolicyConfig) -> Finding:
    fitted, other, measured = change.fitted, change.held_out, change.measured
    what = opening(change.name)
    if not math.isfinite(fitted.mean + other.mean + measured.mean):
        return warning("change", f"{what} has no predicted change: use more --batches.")
    less = "a smaller delta" if isinstance(config, TrustRegionConfig) else "fewer epochs"
    lost = fitted.mean and other.mean / fitted.mean < FITTED
    if lost and is_apart(fitted, other):
        return warning(
            "change",
            f"{what} is predicted to change by {signed(fitted.mean)} on an update's own batch but"
            f" by {signed(other.mean)} on fresh ones: most of the step is fitted noise, so use"
            f" larger batches (batch_size) or {less}.",
        )
    expected, did = (pm(value, signed(value.mean)) for value in (other, measured))
    both = f"{what} is predicted to change by {expected} and changes by {did}"
    if is_apart(measured, other):
        return warning(
            "change",
            f"{both}: the step is too long for its prediction, or a critic misleads it, so use"
            f" {less}, or fit the critics better.",
        )
    if known(measured.error) > abs(other.mean):
        return ok("change", f"{both}, too noisy to be judged: --episodes can be raised.")
    return ok("change", f"{both}.")


def on_kl(trace: Trace, config: OnPolicyConfig) -> Finding:
    if not trace.kl:
        return ok("kl", f"The {trace.step} was skipped: no limit needs it.")
    last, delta = trace.kl[-1], trace.delta
    what = f"The {trace.step} moves {last:.2g} in KL"
    if delta is None:
        if last > KL_LARGE:
            return warning("kl", f"{what}, without a bound: set one, for example delta=0.02.")
        return ok("kl", f"{what}, without a bound.")
    what = f"{what} where {delta:.2g} is allowed"
    if last > KL_EXCESS * delta:
        when = "at the first check" if len(trace.kl) == 1 else f"at check {len(trace.kl)}"
        return warning(
            "kl",
            f"{what}, {when}: have fewer steps between two checks with larger minibatches"
            " (minibatch_size), or a smaller learning_rate.",
        )
    if isinstance(config, TrustRegionConfig) and last == 0:
        return warning("kl", "The line search refused every length, and no step is taken.")
    return ok("kl", f"{what}.")


def on_multiplier(multiplier: Multiplier, level: Level) -> Finding:
    nu, price = multiplier.nu, short(multiplier.price)
    what = f"The multiplier of {signal(multiplier.name)} is {short(nu)}, or {price} return per cost"
    if is_above(level) and nu >= AT_BOUND * multiplier.bound:
        return warning(
            "multiplier",
            f"{what}, and stands at its bound while the cost is above its limit: raise nu_max where"
            " the cost's gradient is clear, else it would only weigh noise more.",
        )
    if is_above(level) and nu == 0:
        return warning("multiplier", f"{what}, although the cost is above its limit.")
    return ok("multiplier", f"{what}.")


def is_above(level: Level) -> bool:
    """Whether a cost is above its limit beyond doubt."""
    assert level.limit is not None
    return level.value.mean - level.limit > ERRORS * known(level.value.error)


def is_apart(one: Estimate, two: Estimate) -> bool:
    """Whether two estimates differ beyond doubt."""
    return abs(one.mean - two.mean) > ERRORS * math.hypot(known(one.error), known(two.error))


def known(error: float) -> float:
    """A standard error; where it is not known, one that leaves everything in doubt."""
    return math.inf if math.isnan(error) else error


def signal(name: str) -> str:
    if name == RETURN:
        return "the reward"
    return "the cost" if name == "cost" else f"cost {name}"


def opening(name: str) -> str:
    """A signal at the beginning of a sentence."""
    return "The return" if name == RETURN else "The cost" if name == "cost" else f"Cost {name}"


def percent(share: float) -> str:
    return "nothing" if share < 0.005 else f"{100 * share:.0f} %"


def short(value: float | None, digits: str = ".3g") -> str:
    """A number of a few digits, without an exponent where it is large."""
    return "-" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:{digits}}"


def signed(value: float) -> str:
    return f"{value:+.0f}" if abs(value) >= 100 else f"{value:+.2g}"


def pm(value: Estimate, mean: str = "") -> str:
    error = "" if math.isnan(value.error) else f" ± {short(value.error, '.2g')}"
    return (mean or short(value.mean)) + error
