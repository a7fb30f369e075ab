"""Optuna: pip install 'cupola[tune]'. It proposes settings, and tells which fields mattered.

Its study lives in memory and is made anew from our trials for every question. So a proposal follows
from the trials before it and its own number alone, however often the search was interrupted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from cupola.errors import CupolaError
from cupola.sweeps.cells import Fields
from cupola.tuning.space import Choice, Range, Space
from cupola.tuning.trials import Trial, ranked

FEWEST = 8
"""Trials that importances need."""
CANDIDATES = 96
"""That are compared for a proposal. Optuna's 24 look less closely: a training costs much more."""
TOP = 0.25
"""The share of the trials that is compared with all of them."""


def load() -> Any:
    """The package, or a sentence."""
    try:
        import optuna
    except ImportError:
        raise CupolaError("tuning needs the package optuna: pip install 'cupola[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def propose(space: Space, trials: Sequence[Trial], number: int) -> Fields:
    """The values of trial ``number``, given those before it; some of them may not have ended.

    The first ten are random. The later ones are of the multivariate tree-structured Parzen
    estimator, which puts feasible trials before others, and those in the order of the sums of
    their violations.
    """
    optuna = load()
    seed = int(np.random.SeedSequence([number]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(
        seed=seed, multivariate=True, constant_liar=True, n_ei_candidates=CANDIDATES
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    domains = distributions(optuna, space)
    beyond = max((excess(trial) for trial in trials), default=0.0)
    for trial in trials:
        study.add_trial(told(optuna, space, domains, trial, beyond))
    asked = study.ask(fixed_distributions=domains).params
    return {field: external(found, asked[field]) for field, found in space.items()}


def distributions(optuna: Any, space: Space) -> dict[str, Any]:
    kinds = optuna.distributions
    found = {}
    for field, one in space.items():
        if isinstance(one, Choice):
            found[field] = kinds.CategoricalDistribution(range(len(one.options)))
        elif one.whole:
            found[field] = kinds.IntDistribution(one.low, one.high, log=one.log)
        else:
            found[field] = kinds.FloatDistribution(one.low, one.high, log=one.log)
    return found


def internal(found: Range | Choice, value: Any) -> Any:
    """Optuna takes no lists for choices: their numbers."""
    return found.index(value) if isinstance(found, Choice) else value


def external(found: Range | Choice, value: Any) -> Any:
    return found.options[value] if isinstance(found, Choice) else value


def excess(trial: Trial) -> float:
    """The sum of a finished trial's violations."""
    outcome = trial.outcome
    if outcome is None or outcome.state != "finished":
        return 0.0
    return sum(max(0.0, one) for one in outcome.excesses.values())


def told(optuna: Any, space: Space, domains: dict[str, Any], trial: Trial, beyond: float) -> Any:
    """A trial as Optuna knows it.

    One that was pruned is further from feasible than those that finished, whose violations are at
    most ``beyond``, the earlier the further: it has not learned enough to have costs. One that
    failed is further than any other.
    """
    states, outcome = optuna.trial.TrialState, trial.outcome
    params = {field: internal(found, trial.values[field]) for field, found in space.items()}
    about: dict[str, Any] = {"params": params, "distributions": domains}
    if outcome is None:
        return optuna.trial.create_trial(state=states.RUNNING, **about)
    if outcome.state == "failed":
        return optuna.trial.create_trial(value=0.0, constraints={"failed": math.inf}, **about)
    constraints = outcome.excesses
    if outcome.state == "pruned":
        reached = outcome.levels[-1].iteration if outcome.levels else 0
        constraints = {"pruned": beyond + 1 / (1 + reached)}
    return optuna.trial.create_trial(value=outcome.mean_return, constraints=constraints, **about)


def importances(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """How much each field decides whether a trial is among the best quarter; the sum is 1.

    By PED-ANOVA on the ranks of the trials, so that limits count as they do in the search. Nothing
    while the trials are few.
    """
    order = ranked(trials)
    if len(order) < FEWEST:
        return {}
    optuna = load()
    domains = distributions(optuna, space)
    study = optuna.create_study(direction="minimize")
    for place, trial in enumerate(order):
        params = {field: internal(found, trial.values[field]) for field, found in space.items()}
        study.add_trial(
            optuna.trial.create_trial(value=float(place), params=params, distributions=domains)
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=TOP)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental parts
        found = optuna.importance.get_param_importances(
            study, evaluator=evaluator, params=list(space)
        )
    return {field: float(share) for field, share in sorted(found.items(), key=lambda i: -i[1])}
