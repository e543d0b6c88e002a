"""`lethe.audit.swap`: unlearning quality from an adversary's predictions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import Measurement, Place, View

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Result
    from lethe.statistics.bound import Bound
    from lethe.statistics.unlearning_game import Quality

NAME = "swap"  # of the rows of the table of results


@dataclass(frozen=True, repr=False)
class SwapAudit(Measurement):
    """Unlearning quality by the SWAP test.

    Attributes
    ----------
    quality : Quality
        The value, its interval, and the advantage of each attack.
    """

    quality: Quality

    def to_frame(self) -> pd.DataFrame:
        """Return one row per attack: the signed advantages in both halves, the advantage, and its interval."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.by_attack, orient="index")

    @property
    def by_attack(self) -> dict[str, dict[str, float | None]]:
        """The signed advantages in both halves, the advantage, and its interval, by attack."""
        return {name: one.row() for name, one in self.quality.by_attack.items()}

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe audit swap --json`."""
        return {"quality": self.quality.value, "advantage": self.quality.advantage, "by_attack": self.by_attack}

    def rows(self) -> list[Result]:
        """Return the quality and the advantage of each attack as rows of the table of results."""
        from lethe.results.table import Rows

        found, whole = Rows(NAME), self.quality
        facts: dict[str, object] = {"attack": whole.attack, "n_pairs": whole.n_pairs, "n_seeds": whole.n_seeds}
        found.add("audit", "quality", "run", whole.value, *(whole.bounds() or ()), evidence=facts)
        for name, one in whole.by_attack.items():
            facts = {"a_original": one.a_original, "a_swapped": one.a_swapped, "n_seeds": one.n_seeds}
            found.add("audit", "advantage", "run", one.value, *(one.bounds() or ()), item=name, evidence=facts)
        return found.rows

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The ends of an attack's interval."""
        return self.quality.by_attack[row].ends().get(column)

    def views(self) -> list[View]:
        """Each attack with its interval."""
        whole = self.quality
        rows = [
            [name, one.a_original, one.a_swapped, one.value, *(one.bounds() or (None, None))]
            for name, one in whole.by_attack.items()
        ]
        title = f"Unlearning quality {whole.value:.4f} (strongest attack: {whole.attack})"
        return [
            View(title, ["attack", *self.to_frame().columns], rows, [*self._intervals(), self.sentences()[-1]])
        ]

    def _intervals(self) -> list[str]:
        """Return notes on the intervals; with different seeds per attack, some attacks have an interval and some do not."""
        attacks = self.quality.by_attack
        covered = [one for one in attacks.values() if one.ci_low is not None]
        without = [name for name, one in attacks.items() if one.ci_low is None]
        notes = []
        if covered:
            seeds = " or ".join(str(count) for count in sorted({one.n_seeds for one in covered}))
            one = covered[0]
            notes.append(f"Intervals: {one.method} at {one.coverage} over {seeds} seeds; assumes {one.assumes}.")
        if without:
            which = f" for {', '.join(without)}" if covered else ""
            notes.append(f"No intervals{which}: an interval needs several seeds, and a half has a single one.")
        return notes

    def sentences(self) -> list[str]:
        """Return the quality, the coverage of the intervals, and the limit of the quality."""
        one = self.quality
        lines = [f"Unlearning quality {one.value:.4f}; the strongest attack is {one.attack}."]
        if ends := one.bounds():
            low, high = ends
            lines.append(
                f"The quality is between {low.significant()} and {high.significant()} {low.guarantee()} ({low.method})."
            )
        return [
            *lines,
            "The quality is an upper limit for these attacks: a stronger attack can lower the quality.",
        ]


def swap(predictions: Place | pd.DataFrame, *, alpha: float = 0.05) -> SwapAudit:
    """Measure unlearning quality by the SWAP test: 1 minus the largest advantage of any attack.

    Parameters
    ----------
    predictions : path or pandas.DataFrame
        CSV, Parquet or JSON lines with one attack's answer on one point per row: `split` (original or swapped), `member`
        (forget or test: the role of the point in that split), `attack` (a name), `accept` (the probability in [0, 1] that
        the attack answers "forget"), optionally `weight` (sensitivity of the point) and `seed` (one label per model).
    alpha : float
        The interval of each attack covers the advantage with probability 1 - alpha.

    Notes
    -----
    The models of the two halves must be learned and unlearned afresh. Each attack must be fitted once, on points outside
    both sets. The test averages the signed advantages of the halves and then takes the absolute value, so that an
    attack's knowledge of the points themselves cancels.

    Examples
    --------
    >>> import lethe
    >>> import pandas as pd
    >>> rows = [
    ...     {"split": split, "member": member, "attack": "loss", "accept": accept}
    ...     for split, member, accept in [
    ...         ("original", "forget", 0.9),
    ...         ("original", "test", 0.4),
    ...         ("swapped", "forget", 0.5),
    ...         ("swapped", "test", 0.6),
    ...     ]
    ... ]
    >>> found = lethe.audit.swap(pd.DataFrame(rows))
    >>> round(found.quality.value, 6)
    0.8
    """
    from lethe.audits.unlearning_game.swap import audit

    return SwapAudit(
        audit(Path(predictions) if isinstance(predictions, (str, os.PathLike)) else predictions, alpha)
    )
