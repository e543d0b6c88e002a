"""Metrics from likelihoods: TOFU's utility, memorisation, membership inference, and each model against Retrain.

Missing values are omitted and counted; they never become zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.artifacts import GREEDY
from lethe.scoring.tofu import (
    AMONG_CHOICES,
    UTILITY_SETS,
    Term,
    Utility,
    forget_quality,
    forget_truth,
    mean_term,
    model_utility,
)
from lethe.statistics.two_sample import AucInterval, KsTest, auc_interval

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows

FORGET = ("probability", "extraction_strength", "exact_memorisation")
SPLITS = ("forget", *UTILITY_SETS)
ATTACKS = ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus")


@dataclass(frozen=True)
class Membership:
    """An attack's area under the curve with its interval; None where a side has no scores."""

    attack: str
    interval: AucInterval | None

    def to_rows(self, rows: Rows) -> None:
        """Add the row; without an interval its value is missing."""
        found = self.interval
        low, high = found.bounds() if found else (None, None)
        rows.add(
            "model", "membership", "given answers", found.value if found else None, low, high, item=self.attack
        )


@dataclass(frozen=True)
class LikelihoodMeasures:
    """The measures of one model from the likelihoods of given answers; ``terms`` is by flat key."""

    terms: Mapping[str, Term]
    utility: Utility | None
    attacks: tuple[Membership, ...]

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of all terms and attacks."""
        for name, term in self.terms.items():
            split, quantity = next(
                (split, name.removeprefix(f"{split}_")) for split in SPLITS if name.startswith(split)
            )
            rows.add("model", quantity, "given answers", term.value, split=split, missing=term.missing)
            rows.add("model", "without", "given answers", term.missing, item=name)
        rows.add("model", "model_utility", "given answers", self.utility.value if self.utility else None)
        terms = len(self.utility.terms) if self.utility else 0
        rows.add("model", "model_utility_terms", "given answers", terms)
        for attack in self.attacks:
            attack.to_rows(rows)


def likelihood_metrics(
    likelihoods: Mapping[str, pd.DataFrame], scores: Mapping[str, pd.DataFrame], alpha: float
) -> LikelihoodMeasures:
    """Compute the measures of one model from likelihoods and text scores of its answers.

    Notes
    -----
    Model utility (TOFU, Maini et al. 2024) is over the sets for which the data has all three terms.
    ``model_utility_terms`` is the number of terms, nine for TOFU. Membership inference compares the forget set with the
    held-out set, if there is one.
    """
    forget = likelihoods["forget"]
    terms = {f"forget_{name}": mean_term(forget[name]) for name in FORGET}
    terms["forget_truth_ratio"] = forget_truth(forget["truth_ratio"])
    sets = {}
    for name in UTILITY_SETS:
        columns = _utility_columns(name, likelihoods, scores)
        if columns and all(np.isfinite(values).any() for values in columns.values()):
            sets[name] = columns
    utility = model_utility(sets) if sets else None
    terms |= utility.terms if utility else {}
    heldout = likelihoods.get("heldout")
    attacks = (
        ()
        if heldout is None
        else tuple(Membership(attack, membership(forget[attack], heldout[attack], alpha)) for attack in ATTACKS)
    )
    return LikelihoodMeasures(terms, utility, attacks)


def membership(members: pd.Series, nonmembers: pd.Series, alpha: float) -> AucInterval | None:
    """The AUC of an attack over the rows with a score; None if either side has no scores."""
    first, second = members.dropna().to_numpy(), nonmembers.dropna().to_numpy()
    return auc_interval(first, second, alpha) if len(first) and len(second) else None


def _utility_columns(
    name: str, likelihoods: Mapping[str, pd.DataFrame], scores: Mapping[str, pd.DataFrame]
) -> dict[str, np.ndarray]:
    """Probability, ROUGE-L recall of the greedy answer and truth ratio of one set; empty if the data lacks the set."""
    if name not in likelihoods or "rouge_l" not in scores.get(name, ()):
        return {}
    table, texts = likelihoods[name], scores[name]
    greedy = texts[texts["sample"] == GREEDY].set_index("prompt_id")["rouge_l"]
    return {
        "probability": table["choice_probability" if name in AMONG_CHOICES else "probability"].to_numpy(),
        "rouge": greedy.reindex(table["prompt_id"]).to_numpy(dtype=np.float64),
        "truth_ratio": table["truth_ratio"].to_numpy(),
    }


@dataclass(frozen=True)
class AgainstRetrain:
    """The comparison of one model with Retrain; see `against_retrain`. ``reference`` is None without held-out rows."""

    forget: KsTest | None
    missing: int
    reference: Membership | None = None
    privleak: float = math.nan

    def to_rows(self, rows: Rows) -> None:
        """Add the rows of the comparison."""
        test = self.forget
        rows.add("model", "forget_quality", "given answers", test.p_value if test else None)
        rows.add("model", "forget_ks", "given answers", test.statistic if test else None)
        rows.add("model", "forget_quality_missing", "given answers", self.missing)
        if self.reference:
            self.reference.to_rows(rows)
            rows.add("model", "privleak", "given answers", self.privleak)


def against_retrain(
    likelihoods: Mapping[str, pd.DataFrame], retrain: Mapping[str, pd.DataFrame], alpha: float
) -> AgainstRetrain:
    """Compare one model's likelihood measures with Retrain's.

    Notes
    -----
    ``forget_quality`` is the p-value of the KS test on the truth ratios of the forget set (TOFU). ``mia_reference`` is the
    attack that scores a row by its loss relative to Retrain's (Carlini et al., 2021, with Retrain as the reference model).
    ``privleak`` is (AUC / AUC of Retrain - 1) x 100 of the min-k% attack, where the AUC measures how well the attack
    separates held-out rows from forget rows (MUSE, Shi et al., 2024). The value is -100 where the model remembers every
    row, and 0 where the model is like Retrain.
    """
    forget, heldout = likelihoods["forget"], likelihoods.get("heldout")
    own, other = (table["truth_ratio"].dropna() for table in (forget, retrain["forget"]))
    test = forget_quality(own, other) if len(own) and len(other) else None
    missing = len(forget) - (test.n_first if test else 0)
    if heldout is None or "heldout" not in retrain:
        return AgainstRetrain(test, missing)
    gains = [_gain(table, retrain[split]) for split, table in (("forget", forget), ("heldout", heldout))]
    reference = Membership("mia_reference", membership(gains[0], gains[1], alpha))
    return AgainstRetrain(test, missing, reference, _privleak(likelihoods, retrain, alpha))


def _gain(table: pd.DataFrame, reference: pd.DataFrame) -> pd.Series:
    """Each row's loss under the reference model minus its loss under the model."""
    return table.set_index("prompt_id")["mia_loss"] - reference.set_index("prompt_id")["mia_loss"]


def _privleak(likelihoods: Mapping[str, pd.DataFrame], retrain: Mapping[str, pd.DataFrame], alpha: float) -> float:
    own, other = (
        membership(tables["forget"]["mia_min_k"], tables["heldout"]["mia_min_k"], alpha)
        for tables in (likelihoods, retrain)
    )
    if own is None or other is None or other.value == 1:
        return math.nan
    model, reference = 1 - own.value, 1 - other.value
    return 100 * (model / reference - 1)
