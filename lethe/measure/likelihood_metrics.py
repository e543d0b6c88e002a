"""Metrics from likelihoods: TOFU's utility, memorisation, membership inference, and each model against Retrain. Missing
values are omitted and counted; they never become zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.artifacts import GREEDY
from lethe.scoring.tofu import (
    AMONG_CHOICES,
    UTILITY_SETS,
    Term,
    forget_quality,
    forget_truth,
    mean_term,
    model_utility,
)
from lethe.statistics.bound import Interval
from lethe.statistics.two_sample import auc_interval

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows

    Tables = Mapping[str, pd.DataFrame]

FORGET = ("probability", "extraction_strength", "exact_memorisation")
SPLITS = ("forget", *UTILITY_SETS)

ATTACKS = ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus")


def likelihood_metrics(rows: Rows, likelihoods: Tables, scores: Tables, alpha: float) -> None:
    """Add the rows of one model from likelihoods and text scores of its answers.

    Model utility (TOFU, Maini et al. 2024) is over the sets for which the data has all three terms.
    ``model_utility_terms`` is the number of terms, nine for TOFU. Membership inference compares the forget set with the
    held-out set, if there is one.
    """
    forget = likelihoods["forget"]
    terms_of_split: dict[str, dict[str, Term]] = {"forget": {}}
    for name in FORGET:
        terms_of_split["forget"][name] = mean_term(forget[name])
    terms_of_split["forget"]["truth_ratio"] = forget_truth(forget["truth_ratio"])
    sets = {}
    for name in UTILITY_SETS:
        columns = _utility_columns(name, likelihoods, scores)
        if columns and all(np.isfinite(values).any() for values in columns.values()):
            sets[name] = columns
    value = None
    n_terms = 0
    if sets:
        utility = model_utility(sets)
        value = utility.value
        n_terms = len(utility.terms)
        for name, term in utility.terms.items():
            split = _split_of(name)
            quantity = name.removeprefix(f"{split}_")
            terms_of_split.setdefault(split, {})[quantity] = term

    add = partial(rows.add, "model", basis="given answers")
    for split, terms in terms_of_split.items():
        for quantity, term in terms.items():
            add(quantity, estimate=term.value, split=split, missing=term.missing)
            add("without", estimate=term.missing, item=f"{split}_{quantity}")
    add("model_utility", estimate=value)
    add("model_utility_terms", estimate=n_terms)
    if "heldout" in likelihoods:
        for attack in ATTACKS:
            area = membership(forget[attack], likelihoods["heldout"][attack], alpha)
            _membership_row(rows, attack, area)


def _split_of(term: str) -> str:
    """The split with whose name the name of a term begins."""
    for split in SPLITS:
        if term.startswith(split):
            return split
    raise ValueError(f"the term {term!r} is of no split")


def _membership_row(rows: Rows, attack: str, area: Interval | None) -> None:
    """Add the AUC of an attack; without an interval its value is missing."""
    add = partial(rows.add, "model", "membership", "given answers", item=attack)
    if area is None:
        add(None)
    else:
        add(area.value, *area.bounds())


def membership(members: pd.Series, nonmembers: pd.Series, alpha: float) -> Interval | None:
    """The AUC of an attack over the rows with a score; None if either side has no scores."""
    first = members.dropna().to_numpy()
    second = nonmembers.dropna().to_numpy()
    if not len(first) or not len(second):
        return None
    return auc_interval(first, second, alpha)


def _utility_columns(name: str, likelihoods: Tables, scores: Tables) -> dict[str, np.ndarray]:
    """Probability, ROUGE-L recall of the greedy answer and truth ratio of one set; empty if the data lacks the set."""
    if name not in likelihoods or "rouge_l" not in scores.get(name, ()):
        return {}
    table = likelihoods[name]
    texts = scores[name]
    greedy = texts[texts["sample"] == GREEDY].set_index("prompt_id")["rouge_l"]
    probability = "probability"
    if name in AMONG_CHOICES:
        probability = "choice_probability"
    return {
        "probability": table[probability].to_numpy(),
        "rouge": greedy.reindex(table["prompt_id"]).to_numpy(dtype=np.float64),
        "truth_ratio": table["truth_ratio"].to_numpy(),
    }


def against_retrain(rows: Rows, likelihoods: Tables, retrain: Tables, alpha: float) -> None:
    """Add the rows that compare one model's likelihood measures with Retrain's.

    ``forget_quality`` is the p-value of the KS test on the truth ratios of the forget set (TOFU). ``mia_reference`` is the
    attack that scores a row by its loss relative to Retrain's (Carlini et al., 2021, with Retrain as the reference model).
    ``privleak`` is (AUC / AUC of Retrain - 1) x 100 of the min-k% attack, where the AUC measures how well the attack
    separates held-out rows from forget rows (MUSE, Shi et al., 2024). The value is -100 where the model remembers every
    row, and 0 where the model is like Retrain.
    """
    forget = likelihoods["forget"]
    ratios = forget["truth_ratio"].dropna()
    ratios_of_retrain = retrain["forget"]["truth_ratio"].dropna()
    p_value = None
    statistic = None
    n = 0
    if len(ratios) and len(ratios_of_retrain):
        test = forget_quality(ratios, ratios_of_retrain)
        p_value = test.p_value
        statistic = test.statistic
        n = test.n_first
    rows.add("model", "forget_quality", "given answers", p_value)
    rows.add("model", "forget_ks", "given answers", statistic)
    rows.add("model", "forget_quality_missing", "given answers", len(forget) - n)
    if "heldout" not in likelihoods or "heldout" not in retrain:
        return

    members = _relative_losses(likelihoods, retrain, "forget")
    others = _relative_losses(likelihoods, retrain, "heldout")
    _membership_row(rows, "mia_reference", membership(members, others, alpha))
    of_model = _separated(likelihoods, alpha)
    of_retrain = _separated(retrain, alpha)
    privleak = math.nan
    if of_retrain:
        privleak = 100 * (of_model / of_retrain - 1)
    rows.add("model", "privleak", "given answers", privleak)


def _relative_losses(likelihoods: Tables, retrain: Tables, split: str) -> pd.Series:
    """The loss of each row of a split minus its loss under Retrain, by id."""
    losses = likelihoods[split].set_index("prompt_id")["mia_loss"]
    losses_of_retrain = retrain[split].set_index("prompt_id")["mia_loss"]
    return losses - losses_of_retrain


def _separated(tables: Tables, alpha: float) -> float:
    """The AUC with which the min-k% attack separates held-out rows from forget rows; NaN without scores."""
    members = tables["forget"]["mia_min_k"]
    others = tables["heldout"]["mia_min_k"]
    area = membership(members, others, alpha)
    if area is None:
        return math.nan
    return 1 - area.value
