"""Metrics from likelihoods: TOFU's utility, memorisation, membership inference, and each model against Retrain. Missing
values are omitted and counted; they never become zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    utility = model_utility(sets) if sets else None
    for name, term in utility.terms.items() if utility else ():
        split = next(split for split in SPLITS if name.startswith(split))
        terms[split, name.removeprefix(f"{split}_")] = term
    for (split, quantity), term in terms.items():
        rows.add("model", quantity, "given answers", term.value, split=split, missing=term.missing)
        rows.add("model", "without", "given answers", term.missing, item=f"{split}_{quantity}")
    rows.add("model", "model_utility", "given answers", utility.value if utility else None)
    rows.add("model", "model_utility_terms", "given answers", len(utility.terms) if utility else 0)
    for attack in ATTACKS if "heldout" in likelihoods else ():
        _membership_row(
            rows, attack, membership(forget[attack], likelihoods["heldout"][attack], alpha)
        )


def _membership_row(rows: Rows, attack: str, area: Interval | None) -> None:
    """Add the AUC of an attack; without an interval its value is missing."""
    ends = area.bounds() if area else ()
    rows.add(
        "model", "membership", "given answers", area.value if area else None, *ends, item=attack
    )


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
    return {
        "probability": table[
            "choice_probability" if name in AMONG_CHOICES else "probability"
        ].to_numpy(),
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
    own, other = (table["truth_ratio"].dropna() for table in (forget, retrain["forget"]))
    test = forget_quality(own, other) if len(own) and len(other) else None
    p_value, statistic, n = (
        (test.p_value, test.statistic, test.n_first) if test else (None, None, 0)
    )
    rows.add("model", "forget_quality", "given answers", p_value)
    rows.add("model", "forget_ks", "given answers", statistic)
    rows.add("model", "forget_quality_missing", "given answers", len(forget) - n)
    if heldout is None or "heldout" not in retrain:
        return
    # each row's loss under Retrain minus its loss under the model
    by_row = [
        [one[split].set_index("prompt_id")["mia_loss"] for one in (likelihoods, retrain)]
        for split in SIDES
    ]
    members, others = (own - reference for own, reference in by_row)
    _membership_row(rows, "mia_reference", membership(members, others, alpha))
    both = (likelihoods, retrain)
    areas = [
        membership(one["forget"]["mia_min_k"], one["heldout"]["mia_min_k"], alpha) for one in both
    ]
    model, reference = (math.nan if area is None else 1 - area.value for area in areas)
    rows.add(
        "model",
        "privleak",
        "given answers",
        100 * (model / reference - 1) if reference else math.nan,
    )
