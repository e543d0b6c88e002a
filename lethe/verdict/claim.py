"""A claim of the page: one comparison, made for several models. The stage `compare` writes a finding for each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from lethe.statistics.bound import Interval
from lethe.verdict.finding import Finding

Outcome = Literal["holds", "the opposite holds", "did not show"]


@dataclass(frozen=True)
class ModelOutcome:
    """What came out for one model; ``interval`` is the model's, ``reference`` that of the model it is compared with."""

    subject: str
    verdict: Outcome
    sentence: str
    interval: Interval | None = None
    reference: Interval | None = None


@dataclass(frozen=True)
class Claim:
    """A comparison: its ``key`` among the findings, its title, what was measured, and a row for each model."""

    key: str
    title: str
    measured: str
    rows: list[ModelOutcome]

    @property
    def summary(self) -> str:
        """In how many models the claim came out how."""
        counts = Counter(row.verdict for row in self.rows)
        parts = []
        for outcome in get_args(Outcome):
            if counts[outcome]:
                parts.append(f"{outcome} in {counts[outcome]} of {len(self.rows)}")
        return "; ".join(parts) + "."

    def as_json(self) -> dict[str, object]:
        """The claim as the summary of a run has it."""
        rows = []
        for row in self.rows:
            told = {"subject": row.subject, "verdict": row.verdict, "sentence": row.sentence}
            rows.append(told)
        return {
            "title": self.title,
            "measured": self.measured,
            "rows": rows,
            "summary": self.summary,
        }


@dataclass(frozen=True)
class Claims:
    """All claims of a run. The intervals behind them hold together with probability 1 - ``alpha``.

    There are ``comparisons`` of two intervals, each of the alpha ``level``.
    """

    claims: list[Claim]
    alpha: float
    comparisons: int
    level: float

    def findings(self) -> list[Finding]:
        """A finding for each row of each claim."""
        found = []
        for claim in self.claims:
            details = {"title": claim.title, "measured": claim.measured, "alpha": self.alpha}
            details |= {"comparisons": self.comparisons}
            for row in claim.rows:
                alpha = None
                if row.interval is not None:
                    alpha = self.level
                finding = Finding(
                    row.subject,
                    claim.key,
                    row.verdict,
                    row.sentence,
                    alpha,
                    row.interval,
                    row.reference,
                    details,
                )
                found.append(finding)
        return found

    @classmethod
    def of(cls, findings: Iterable[Finding], alpha: float) -> Claims:
        """The claims among the findings of a run, in their order; ``alpha`` is that of the run."""
        rows_of_claim: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.outcome in get_args(Outcome):
                rows_of_claim.setdefault(finding.claim, []).append(finding)

        claims = []
        comparisons = 0
        level = alpha
        for key, found in rows_of_claim.items():
            details = found[0].details
            comparisons = details["comparisons"]
            rows = []
            for finding in found:
                level = finding.alpha or level
                rows.append(_row(finding))
            claims.append(Claim(key, details["title"], details["measured"], rows))
        return cls(claims, alpha, comparisons, level)


def _row(finding: Finding) -> ModelOutcome:
    outcome: Outcome = "did not show"
    for known in get_args(Outcome):
        if finding.outcome == known:
            outcome = known
    return ModelOutcome(
        finding.model, outcome, finding.sentence, finding.interval, finding.reference
    )
