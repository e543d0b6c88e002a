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
SIDES = ("forget", "heldout")
ATTACKS = ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus")


def likelihood_metrics(rows: Rows, likelihoods: Tables, scores: Tables, alpha: float) -> None:
    """Add the rows of one model from likelihoods and text scores of its answers.

    Model utility (TOFU, Maini et al. 2024) is over the sets for which the data has all three terms.
    ``model_utility_terms`` is the number of terms, nine for TOFU. Membership inference compares the forget set with the
    held-out set, if there is one.
    """
    forget = likelihoods["forget"]
    terms = {("forget", name): mean_term(forget[name]) for name in FORGET}
    terms["forget", "truth_ratio"] = forget_truth(forget["truth_ratio"])
    sets = {}
    for name in UTILITY_SETS:
        columns = _utility_columns(name, likelihoods, scores)
        if columns and all(np.isfinite(values).any() for values in columns.values()):
            sets[name] = columns
    value = None
    n_terms = 0
    if sets:
        utility = model_utility(sets)
        value, n_terms = utility.value, len(utility.terms)
        for name, term in utility.terms.items():
            split = next(split for split in SPLITS if name.startswith(split))
            terms[split, name.removeprefix(f"{split}_")] = term
    add = partial(rows.add, "model")
    for (split, quantity), term in terms.items():
        add(quantity, "given answers", term.value, split=split, missing=term.missing)
        add("without", "given answers", term.missing, item=f"{split}_{quantity}")
    add("model_utility", "given answers", value)
    add("model_utility_terms", "given answers", n_terms)
    if "heldout" in likelihoods:
        for attack in ATTACKS:
            area = membership(forget[attack], likelihoods["heldout"][attack], alpha)
            _membership_row(rows, attack, area)


def _membership_row(rows: Rows, attack: str, area: Interval | None) -> None:
    """Add the AUC of an attack; without an interval its value is missing."""
    add = partial(rows.add, "model", "membership", "given answers", item=attack)
    if area is None:
        add(None)
    else:
        add(area.value, *area.bounds())


def membership(members: pd.Series, nonmembers: pd.Series, alpha: float) -> Interval | None:
    """The AUC of an attack over the rows with a score; None if either side has no scores."""
    first, second = members.dropna().to_numpy(), nonmembers.dropna().to_numpy()
    return auc_interval(first, second, alpha) if len(first) and len(second) else None


def _utility_columns(name: str, likelihoods: Tables, scores: Tables) -> dict[str, np.ndarray]:
    """Probability, ROUGE-L recall of the greedy answer and truth ratio of one set; empty if the data lacks the set."""
    if name not in likelihoods or "rouge_l" not in scores.get(name, ()):
        return {}
    table, texts = likelihoods[name], scores[name]
    greedy = texts[texts["sample"] == GREEDY].set_index("prompt_id")["rouge_l"]
    probability = "choice_probability" if name in AMONG_CHOICES else "probability"
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
    forget, heldout = likelihoods["forget"], likelihoods.get("heldout")
    ratios = forget["truth_ratio"].dropna()
    ratios_of_retrain = retrain["forget"]["truth_ratio"].dropna()
    p_value = statistic = None
    n = 0
    if len(ratios) and len(ratios_of_retrain):
        test = forget_quality(ratios, ratios_of_retrain)
        p_value, statistic, n = test.p_value, test.statistic, test.n_first
    rows.add("model", "forget_quality", "given answers", p_value)
    rows.add("model", "forget_ks", "given answers", statistic)
    rows.add("model", "forget_quality_missing", "given answers", len(forget) - n)
    if heldout is None or "heldout" not in retrain:
        return
    members, others = (_relative_losses(likelihoods, retrain, split) for split in SIDES)
    _membership_row(rows, "mia_reference", membership(members, others, alpha))
    of_model, of_retrain = (_separated(tables, alpha) for tables in (likelihoods, retrain))
    privleak = 100 * (of_model / of_retrain - 1) if of_retrain else math.nan
    rows.add("model", "privleak", "given answers", privleak)


def _relative_losses(likelihoods: Tables, retrain: Tables, split: str) -> pd.Series:
    """The loss of each row of a split minus its loss under Retrain, by id."""
    losses = likelihoods[split].set_index("prompt_id")["mia_loss"]
    losses_of_retrain = retrain[split].set_index("prompt_id")["mia_loss"]
    return losses - losses_of_retrain


def _separated(tables: Tables, alpha: float) -> float:
    """The AUC with which the min-k% attack separates held-out rows from forget rows; NaN without scores."""
    area = membership(tables["forget"]["mia_min_k"], tables["heldout"]["mia_min_k"], alpha)
    return math.nan if area is None else 1 - area.value
