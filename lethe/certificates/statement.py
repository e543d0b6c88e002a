"""A statement about a model that other tools read: in-toto Statement v1 with the predicate of an evaluation's result.

The predicate is that of in-toto/attestation, pull request 575, revision 0c70fc3. What Lethe adds stands in two objects named
``lethe``; an addition must not change what other keys mean, so the name of a metric says its side and its confidence.
Numbers are decimal strings, and ends are rounded outward.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from lethe.certificates.draws import MEDIA_TYPE, Draws
from lethe.certificates.envelope import canonical
from lethe.errors import BadFile, BadInput
from lethe.io.files import Json, read_json
from lethe.models.listing import Listing
from lethe.results.ends import Ends
from lethe.results.table import Result
from lethe.statistics.answer_tree import Rounding, leak_interval
from lethe.statistics.bound import (
    Assumes,
    Bound,
    Covers,
    Side,
    coverage,
    exact,
    rounded,
    significant,
)
from lethe.statistics.leak_trees import AnswerTree, Certificates

STATEMENT = "https://in-toto.io/Statement/v1"
# The project's own until the draft is merged, then the draft's.
PREDICATE = "https://lethe.example/attestation/eval-result/v0.1"
CLAIM_SCHEMA = "lethe-claim/1"
SERVED_SCHEMA = "lethe-served/1"
DIGITS = 6  # decimals of an end
BOUNDED = "bounded"
LEAKS = "leaks"
OPEN = "open"
METHOD = "Clopper-Pearson"
BONFERRONI = ", Bonferroni"
WITNESS_DIGITS = 30  # decimals of a mass or a rate, outward: doubles have fewer that count
RANK_OF_SIDE = {"upper": "worst", "lower": "some"}
COMPARATOR_OF_SIDE = {"upper": "<=", "lower": ">"}
SAMPLED = "sampled"
ANYTIME = "anytime"
TREE = "tree"


@dataclass(frozen=True)
class CertifiedEnd:
    """An end of the leak probability of the worst question beside a threshold, with the witness from which it follows.

    ``basis`` is a key of `lethe.certificates.check.BASES`. The ``witness`` of answers has ``count`` leaks among ``n``: with
    the missing ones for an upper end, without them for a lower end. That of a tree has ``count`` leaks of the sampled rest
    and decimal strings. The level is shared by ``questions`` questions (Bonferroni), which an upper end needs not, as every
    question must pass. ``estimate`` is the share of leaks among the judged answers; None where there is none.
    """

    word: str
    bound: Bound
    threshold: Decimal
    witness: Mapping[str, Json]
    basis: str = SAMPLED
    questions: int = 1
    estimate: float | None = None

    @property
    def end(self) -> Decimal:
        return rounded(self.bound.value, DIGITS, self.bound.side)

    @property
    def passed(self) -> bool:
        """Whether the rounded end satisfies the threshold."""
        if self.bound.side == "upper":
            return self.end <= self.threshold
        return self.end > self.threshold

    @property
    def metric(self) -> str:
        """The name of the quantity, which says basis, side and confidence: other ends have other names."""
        side = self.bound.side
        kind = "" if self.basis == SAMPLED else f"{self.basis}_"
        return f"leak_rate_{RANK_OF_SIDE[side]}_question_{kind}{side}_{coverage(self.bound.alpha)}"

    def as_json(self) -> dict[str, Json]:
        bound = self.bound
        witness = dict(self.witness)
        if self.questions > 1:
            witness["questions"] = self.questions
        added = {
            "word": self.word,
            "quantity": "leak_worst",
            "basis": self.basis,
            "side": bound.side,
            "bound": f"{self.end:f}",
            "alpha": f"{significant(bound.alpha, 3, 'upper'):f}",
            "confidence": coverage(bound.alpha),
            "covers": str(bound.covers),
            "assumes": str(bound.assumes),
            "method": bound.method,
            "certain": False,
            "witness": witness,
        }
        if self.estimate is not None:
            added["estimate"] = f"{rounded(self.estimate, DIGITS):f}"
        return {
            "metric": self.metric,
            "comparator": COMPARATOR_OF_SIDE[bound.side],
            "threshold": f"{self.threshold:f}",
            "passed": self.passed,
            "lethe": added,
        }


def claims_of(
    rows: Sequence[Result], threshold: float, trees: Certificates | None = None
) -> list[CertifiedEnd]:
    """What is claimed of the worst question, first by the fixed number of answers, then at any time, then by the answer
    trees: the upper end; and where a question is proved to leak more than the threshold, the largest lower end.

    Claims at any time, and of the ``trees``, are made where all these questions have such ends. Each claim holds by itself.
    Raises `BadInput` where the rows have no counts of sampled answers with both ends.
    """
    drawn = leak_rows(rows)
    items = [str(row.item) for row in drawn]
    claims = _counted(drawn, threshold, SAMPLED)
    at_any_time = counts_of_basis(rows, ANYTIME)
    if all(item in at_any_time for item in items):
        claims += _counted([at_any_time[item] for item in items], threshold, ANYTIME)
    if trees is not None:
        tree_of_item = {tree.id: tree for tree in trees.trees if tree.rho}
        if all(item in tree_of_item for item in items):
            of_items = [tree_of_item[item] for item in items]
            claims += _explored(of_items, trees.rounding, threshold)
    return claims


def _counted(drawn: Sequence[Result], threshold: float, basis: str) -> list[CertifiedEnd]:
    """The claims by counts of answers."""
    worst = max(drawn, key=lambda row: row.upper or 0.0)
    upper = worst.upper_bound
    assert upper is not None
    served, _, _ = str(worst.assumes).rpartition(str(Assumes.DRAWS))
    assumes = f"{served}{Assumes.DRAWS_WITHIN}"
    upper = replace(upper, covers=Covers.WORST_PROMPT, assumes=assumes)
    shown = exact(threshold)
    facts = worst.facts
    witness = {"count": facts["leaks"] + facts["missing"], "n": facts["n"]}
    at_most = CertifiedEnd(OPEN, upper, shown, witness, basis, estimate=worst.estimate)

    m = len(drawn)
    items = [str(row.item) for row in drawn]
    lowers = Ends.of_rows(drawn, items).lower(upper.alpha / m)
    highest = int(lowers.argmax())
    facts = drawn[highest].facts
    at_least = _at_least(at_most, float(lowers[highest]), m)
    witness = {"count": facts["leaks"], "n": facts["n"]}
    at_least = replace(at_least, witness=witness, estimate=drawn[highest].estimate)
    return _worded(at_most, at_least)


def _explored(
    trees: Sequence[AnswerTree], rounding: Rounding, threshold: float
) -> list[CertifiedEnd]:
    """The claims by the explored masses of answer trees, and a sample of the rest."""
    worst = max(trees, key=lambda tree: tree.upper)
    upper = worst.bounds["upper"]
    upper = replace(upper, covers=Covers.WORST_PROMPT)
    shown = exact(threshold)
    at_most = CertifiedEnd(OPEN, upper, shown, _tree_witness(worst, rounding, "upper"), TREE)

    m = len(trees)
    lowers = []
    for tree in trees:
        ends = leak_interval(tree.masses, tree.remainder, upper.alpha / m, rounding)
        lowers.append(ends.lower_sampled)
    highest = max(range(m), key=lambda place: lowers[place])
    at_least = _at_least(at_most, lowers[highest], m)
    witness = _tree_witness(trees[highest], rounding, "lower")
    return _worded(at_most, replace(at_least, witness=witness))


def _tree_witness(tree: AnswerTree, rounding: Rounding, side: Side) -> dict[str, Json]:
    """What an end of a tree follows from, each number rounded so that the end can only be wider."""
    inward: Side = "lower" if side == "upper" else "upper"
    if side == "upper":
        leak = rounding.most(tree.masses.leak_by_length)
    else:
        leak = rounding.least(tree.masses.leak_by_length)
    clean = rounding.least(tree.masses.clean_by_length)
    return {
        "count": tree.sampled_leaks,
        "rate": f"{rounded(tree.rho, WITNESS_DIGITS, inward):f}",
        "leak": f"{rounded(leak, WITNESS_DIGITS, side):f}",
        "clean": f"{rounded(clean, WITNESS_DIGITS, 'lower'):f}",
        "factor": f"{rounded(rounding.factor, WITNESS_DIGITS, 'upper'):f}",
    }


def _at_least(at_most: CertifiedEnd, value: float, m: int) -> CertifiedEnd:
    """The claim on some of ``m`` questions, at the level of the claim on all."""
    method = at_most.bound.method
    if m > 1:
        method += BONFERRONI
    lower = replace(at_most.bound, value=value, side="lower", method=method)
    return replace(at_most, word=LEAKS, bound=lower, questions=m)


def _worded(at_most: CertifiedEnd, at_least: CertifiedEnd) -> list[CertifiedEnd]:
    if at_least.passed:
        return [replace(at_most, word=LEAKS), at_least]
    if at_most.passed:
        return [replace(at_most, word=BOUNDED)]
    return [at_most]


def counts_of_basis(rows: Sequence[Result], basis: str) -> dict[str, Result]:
    """The rows of leaks of one basis with counts and ends of fixed prompts, by question."""
    rows_of_item = {}
    for row in rows:
        is_of_forget = row.scope == "question" and row.split in (None, "forget")
        if not is_of_forget or row.quantity != "leak" or row.basis != basis:
            continue
        has_counts = row.upper is not None and "leaks" in row.facts
        is_fixed = str(row.covers) == str(Covers.ONE_PROMPT)
        if has_counts and is_fixed and _assumes_draws(row):
            rows_of_item[str(row.item)] = row
    return rows_of_item


def leak_rows(rows: Sequence[Result]) -> list[Result]:
    """The forget questions' rows of sampled leaks, each with its counts. Raises `BadInput` where one has none."""
    drawn = []
    for row in rows:
        is_of_forget = row.scope == "question" and row.split in (None, "forget")
        if is_of_forget and row.quantity == "leak" and row.basis == SAMPLED:
            drawn.append(row)
    if not drawn:
        problem = "the run has no counts of leaking answers"
        raise BadInput(f"lethe attest: {problem}. Score the answers with a scorer of 0 and 1.")
    for row in drawn:
        has_counts = row.upper is not None and "leaks" in row.facts and row.method == METHOD
        if not has_counts:
            problem = f"question {row.item!r} has no bound by counts of sampled answers"
            raise BadInput(f"lethe attest: {problem}. Leave it out of the forget set.")
        if str(row.covers) != str(Covers.ONE_PROMPT) or not _assumes_draws(row):
            problem = (
                f"the bound of question {row.item!r} is on {row.covers}, assuming {row.assumes}"
            )
            raise BadInput(f"lethe attest: {problem}. Attest a run of fixed prompts.")
    return drawn


def _assumes_draws(row: Result) -> bool:
    """Whether a row assumes independent draws alone; of a server, at the times at which it was asked."""
    times, _, draws = str(row.assumes).rpartition(", ")
    return draws == str(Assumes.DRAWS) and (not times or times.startswith("as served between "))


@dataclass(frozen=True)
class Served:
    """A served model, whose weights no digest names: the record of its server, to which a salted hash commits.

    Whoever has ``content``, the bytes of the file beside the statement, can check what the hash stands for; without the
    salt nobody can guess it.
    """

    content: bytes

    @classmethod
    def of(cls, record: Mapping[str, Json], salt: str) -> Served:
        return cls(canonical({"schema": SERVED_SCHEMA, "salt": salt, "served": dict(record)}))

    @property
    def digest(self) -> str:
        """What `sha256sum` prints for the file."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class About:
    """What a statement is about besides its claims: who evaluated when, what drew and scored the answers."""

    evaluator: str
    assurance: str
    evaluated_at: datetime
    model: str
    of: Listing | Served
    data: str
    data_sha256: str
    access: str
    scorer: str
    engine: Mapping[str, Json]
    not_covered: Sequence[str]
    version: str


def statement(
    about: About, claims: Sequence[CertifiedEnd], draws: Draws, draws_name: str
) -> dict[str, Json]:
    """The statement; ``draws_name`` is the file of the draws beside it."""
    subject, identity = _identified(about)
    evidence = {
        "name": draws_name,
        "mediaType": MEDIA_TYPE,
        "digest": {"sha256": hashlib.sha256(draws.content).hexdigest()},
        "annotations": {"root": draws.root, "size": draws.size},
    }
    predicate = {
        "evaluator": {"id": about.evaluator},
        "evaluatedAt": about.evaluated_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "suite": {"name": about.data, "version": about.data_sha256[:12]},
        "claims": [claim.as_json() for claim in claims],
        "sampleSize": draws.size,
        **identity,
        "dataset": {"name": about.data, "digest": {"sha256": about.data_sha256}},
        "assuranceLevel": about.assurance,
        "evidence": [evidence],
        "harness": {"name": "lethe", "version": about.version},
        "lethe": _added(about),
    }
    return {
        "_type": STATEMENT,
        "subject": subject,
        "predicateType": PREDICATE,
        "predicate": predicate,
    }


def _identified(about: About) -> tuple[list[Json], dict[str, Json]]:
    """(the subjects, the keys of the predicate that identify the model)."""
    if isinstance(about.of, Served):
        digest = about.of.digest
        subject = [{"name": f"{about.model}.served.json", "digest": {"sha256": digest}}]
        commitments = {"model": {"alg": "sha256", "value": digest}}
        return subject, {"commitments": commitments, "subjectProfile": "receipt"}

    listing = about.of
    subject = [{"name": f"{about.model}.sha256sums", "digest": {"sha256": listing.digest}}]
    if listing.weights is not None:
        name, sha256 = listing.weights
        subject.append({"name": f"{about.model}/{name}", "digest": {"sha256": sha256}})
    model = {
        "name": about.model,
        "digest": {"dirHash": listing.digest},
        "annotations": {"files": sorted(listing.sha256_of_file, key=str.encode)},
    }
    return subject, {"model": model, "subjectProfile": "public-model"}


def _added(about: About) -> dict[str, Json]:
    added: dict[str, Json] = {
        "schema": CLAIM_SCHEMA,
        "access": about.access,
        "engine": dict(about.engine),
        "scorer": about.scorer,
        "notCovered": list(about.not_covered),
    }
    if isinstance(about.of, Listing) and about.of.base is not None:
        added["base"] = {"dirHash": about.of.base.digest}
    return added


def is_statement(value: Json) -> bool:
    """Whether a JSON value is a statement of in-toto."""
    return isinstance(value, dict) and value.get("_type") == STATEMENT


def read_statement(path: Path) -> dict[str, Json]:
    """Read an unsigned statement. Raises `BadFile` for another file."""
    return checked(read_json(path), path)


def checked(value: Json, path: Path) -> dict[str, Json]:
    """The value if it is a statement with the predicate of `lethe attest`; else `BadFile`."""
    if not is_statement(value):
        raise BadFile(path, f"is no statement of the type {STATEMENT}")
    kind = value.get("predicateType")
    if kind != PREDICATE:
        raise BadFile(path, f"has the predicate {kind!r}; this release reads {PREDICATE!r}")
    if not isinstance(value.get("predicate"), dict):
        raise BadFile(path, "has a `predicate` that is no JSON object")
    statement: dict[str, Json] = value
    return statement
