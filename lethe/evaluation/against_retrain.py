"""Comparisons with a second model: how well each model can be told apart from Retrain, which never saw the forget set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lethe.evaluation.likelihood_metrics import Membership, membership
from lethe.scoring.tofu import forget_quality
from lethe.statistics.two_sample import KsTest

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows


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
