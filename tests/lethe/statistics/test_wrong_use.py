"""What is out of range is refused in a sentence that names the argument and what it was: the calls are in cases.yaml."""

import importlib
from functools import partial

import numpy as np
import pytest

from lethe.errors import BadValue
from lethe.statistics import many_prompts
from lethe.statistics.answer_tree import Masses, Remainder, against_retrain, leak_interval
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.mean_difference import difference, mean_of_differences
from lethe.statistics.one_run.audit import audit, audit_runs, log_p_value
from lethe.statistics.one_run.channel import gaussian
from lethe.statistics.one_run.counts import Counts, release
from lethe.statistics.sequential import SequentialTest, StoppedSamples
from tests.cases import cases
from tests.lethe.statistics.epsilon_star.coverage import LOWER

GOOD = Calibration(leaks=200, leaks_called=190, clean=300, clean_called=15)
RUN, NOTHING = Counts(10, 5, 0), (Masses((), ()), Remainder())


def bound(**changes):
    given = {"value": 0.5, "side": "upper", "alpha": 0.05, "covers": Covers.ONE_PROMPT}
    return Bound(**given | changes, assumes=Assumes.DRAWS, method="Clopper-Pearson", n=100)


def rated(claim, leaks, n, missing=0, alpha=0.05, ks=(1,)):
    return claim(Rate.of(leaks, n, missing), alpha, ks)


def audited(delta=None, curve=False):
    if curve:
        return audit_runs([RUN], gaussian().channel(1.0), delta=0, alpha=0.05, curve=True)
    return audit(RUN, gaussian(), delta=delta)


# Calls with arguments that YAML cannot write; all other names are those of `lethe.statistics`.
OWN = {
    "bound": bound,
    "calibrated": Calibration.of,
    "released": lambda **one: release(
        **{"bits": [0, 1, 0], "guesses": [0, 1, 1], "scores": [1.0, 2.0, 3.0], "r": 2} | one
    ),
    "exceeding": lambda leaks, n, tau: share_exceeding(Rate.of(leaks, n), tau, 0.05, "upper"),
    "apart": lambda a, b, *more: difference(np.array(a), np.array(b), *more),
    "on_average": lambda a, b, *more: mean_of_differences([*map(np.array, a)], [*map(np.array, b)], *more),
    "unseen": partial(leak_interval, *NOTHING),
    "beside_retrain": lambda questions, factor: against_retrain(np.zeros(1), [NOTHING] * questions, factor, 0.01),
    "updated": lambda scores: SequentialTest(0.1, 0.2, 0.05, 10).update(np.array(scores)),
    "stopped": lambda scores: StoppedSamples([np.array(scores)]),
    "audited": audited,
    "beyond": partial(log_p_value, "exact", RUN, gaussian(), 101.0, 0.0),
    **{f"rate_{name}": partial(rated, getattr(Rate, name)) for name in ("each", "worst", "mean")},
    **{
        f"judged_{name}": lambda called, alpha=0.05, name=name: getattr(Rate.of(called, 9, judge=GOOD), name)(
            alpha
        )
        for name in ("each", "worst", "average", "mean")
    },
    **{
        f"{name}_interval": getattr(many_prompts, f"{name}_interval")
        for name in ("share", "mean", "within_variance")
    },
    **LOWER,
}


@cases
def test_what_is_out_of_range_is_named(functions, given, named):
    for name in functions.split():
        module, _, own = name.rpartition(".")
        function = OWN.get(name) or getattr(importlib.import_module(f"lethe.statistics.{module}"), own)
        with pytest.raises(BadValue, match=named):
            function(**given) if isinstance(given, dict) else function(*given)
