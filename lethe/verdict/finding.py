"""A finding: what the results of a run say of one model, as a word with its sentence. It is itself a row.

The stage `compare` writes the findings of all models, and nothing decides them again: page, terminal, MLflow, gate, `lethe
eval` and the summary of seeds read these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from lethe.io.files import Json, restored
from lethe.results.table import Result, result
from lethe.statistics.bound import Bound, Interval

QUANTITY = "finding"
BASIS = "compared"
# What is asked of a model; a comparison of two models has a key of its own (`lethe.verdict.claims`).
FORGETTING = "forgetting"
UTILITY = "utility"
LEAKAGE = "leakage"
TRACE = "trace"
EXTRACTION = "extraction"
EXTRACTION_NEAR = "extraction_near"


@dataclass(frozen=True)
class Finding:
    """One row of the stage `compare`.

    ``claim`` names what is asked, such as `FORGETTING`, or the key of a comparison of two models. ``outcome`` is the word.
    ``alpha`` is the level at which the claim was tested: a word that claims something, or the interval, is false with at most
    this probability. *open* and *none* claim nothing and have the level too. None where the claim has no level.
    ``interval`` is of the model, and ``reference`` of what it is compared with. ``details`` has what else the readers of
    this claim show, as plain JSON values.
    """

    model: str
    claim: str
    outcome: str
    sentence: str = ""
    alpha: float | None = None
    interval: Interval | None = None
    reference: Interval | None = None
    details: Mapping[str, Json] = field(default_factory=dict)

    def row(self) -> Result:
        """The finding as a row of results; the ends of the interval are the ends of the row."""
        estimate: float | None = None
        lower: Bound | None = None
        upper: Bound | None = None
        if self.interval is not None:
            estimate = self.interval.value
            lower, upper = self.interval.bounds()
        evidence: dict[str, Json] = {
            "sentence": self.sentence,
            "alpha": self.alpha,
            "interval": _plain(self.interval),
            "reference": _plain(self.reference),
            "details": dict(self.details),
        }
        return result(
            self.model,
            "model",
            QUANTITY,
            BASIS,
            estimate,
            lower,
            upper,
            item=self.claim,
            evidence=evidence,
            text=self.outcome,
        )

    @classmethod
    def of(cls, row: Result) -> Finding:
        """The finding that `row` wrote."""
        facts = row.facts
        return cls(
            model=row.model,
            claim=str(row.item),
            outcome=str(row.text),
            sentence=facts["sentence"],
            alpha=facts["alpha"],
            interval=_interval(facts["interval"]),
            reference=_interval(facts["reference"]),
            details=facts["details"],
        )


@dataclass(frozen=True)
class Findings:
    """The findings of a run, in the order in which they were written."""

    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Result]) -> Findings:
        """The findings among the rows of the stage `compare`."""
        found = []
        for row in rows:
            if row.quantity == QUANTITY:
                found.append(Finding.of(row))
        return cls(tuple(found))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def about(self, model: str, claim: str) -> Finding | None:
        """What was found of a model; None where nothing was."""
        for finding in self.findings:
            if finding.model == model and finding.claim == claim:
                return finding
        return None

    def asked(self, *claims: str) -> list[Finding]:
        """What was found of all models on these claims."""
        return [finding for finding in self.findings if finding.claim in claims]


def _plain(interval: Interval | None) -> Json:
    if interval is None:
        return None
    return asdict(interval)


def _interval(record: Json) -> Interval | None:
    if record is None:
        return None
    return restored(Interval, record)
