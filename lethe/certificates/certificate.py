"""A certificate: one JSON file that accumulates the evidence of independent auditors (docs/certificates.md)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, ValidationError

from lethe.errors import BadFile, BadInput, plural, shortened
from lethe.identity import digest
from lethe.io.files import Json, read_json, restored, write_json
from lethe.statistics.anytime import Counts, log_below, log_e_forgot
from lethe.statistics.bound import in_full, level
from lethe.statistics.checks import SMALLEST_ALPHA

FAMILY = "lethe-certificate/"
SCHEMA = f"{FAMILY}3"
# `lethe.statistics.anytime`, in words; a file by another rule has other e-values.
RULE = (
    "likelihood ratios mixed over Beta(1/2, 1/2) below tau; beside Retrain the mean of these and of both mixtures over the "
    "largest likelihood"
)
CERTIFIED = "certified"
NOT_YET = "not certified yet"
DIFFER = "auditors differ"
# level of the test that all auditors saw one leak rate per question, fixed beforehand
HOMOGENEITY = 0.01
FACTS = ("weights", "tokenizer", "prompts", "scorer", "engine")
CLAIM = ("questions", "tau", "alpha", "coin", "n", "check", "retrain")
TOLERANCE = 1e-6  # of stated numbers
# answers to a question in an audit; beyond, reading a file could take hours and all memory
MOST_DRAWS = 1_000_000
REMEDY = "Ask its author for the file as it was written."
# values for people, which the schema lets anybody leave out; where they stand, they are compared too
MAY_LACK = {"combined", "log_goal", "key", "p_value", "level", "holds"}
# No text and no true or false passes for a number.
Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Text = Annotated[str, Field(strict=True)]
Coin = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
PerQuestion = tuple[Annotated[int, Field(strict=True, ge=0, le=MOST_DRAWS)], ...]
AtLeastOne = tuple[Annotated[int, Field(strict=True, ge=1, le=MOST_DRAWS)], ...]


@dataclass(frozen=True)
class Audit:
    """The draws of one auditor, and the leaks among them.

    Attributes
    ----------
    auditor
        The name of the auditor, which enters the seed.
    draws
        The number of answers to each question.
    seed
        Of all draws; it follows from the claim, the audits before and the name (`Certificate.seed_of`).
    engine
        What drew.
    time
        When the audit ended, for people.
    leaks
        The number of leaking answers to each question.
    after
        The keys of the audits that it continued and that no other of them had continued.
    root
        A commitment to every draw (`lethe.certificates.merkle`); None where the engine draws no single answer again.
    kernels
        What computed the draws: others may give other last bits.
    retrain_draws, retrain_leaks
        The same of Retrain; empty without one.
    """

    auditor: Annotated[str, Field(strict=True, min_length=1)]
    draws: AtLeastOne
    seed: Count
    engine: Text
    time: Text
    leaks: PerQuestion
    after: tuple[Text, ...] = ()
    root: Text | None = None
    kernels: Text | None = None
    retrain_draws: PerQuestion = ()
    retrain_leaks: PerQuestion = ()

    @property
    def key(self) -> str:
        """The hash of the audit, which later audits name."""
        return digest(self.as_dict())

    def as_dict(self) -> dict[str, object]:
        """The entry of the file, without what follows from it."""
        value = asdict(self)
        for name in ("draws", "leaks", "after", "retrain_draws", "retrain_leaks"):
            value[name] = list(value[name])
        return value


@dataclass(frozen=True)
class Check:
    """What a verifier found of an audit, of whose draws some were drawn again.

    Attributes
    ----------
    verifier
        The name of the verifier.
    audit
        The key of the audit.
    coin
        32 bytes in hexadecimals that the author could not foresee; they chose the draws.
    s
        The number of draws to each question that were drawn again.
    mismatches
        The number of them that were not as stated.
    time
        When the check ended, for people.
    kernels
        What drew again.
    """

    verifier: Annotated[str, Field(strict=True, min_length=1)]
    audit: Text
    coin: Coin
    s: AtLeastOne
    mismatches: PerQuestion
    time: Text
    kernels: Text | None = None

    def as_dict(self) -> dict[str, object]:
        """The entry of the file."""
        return asdict(self) | {"s": list(self.s), "mismatches": list(self.mismatches)}


@dataclass(frozen=True)
class Certificate:
    """The claim that every question leaks with probability at most tau, and the evidence so far.

    With a Retrain the claim is that every question leaks at most tau more often than that model.

    Attributes
    ----------
    questions
        The ids of the questions, all different.
    tau
        The tolerance, in (0, 1).
    alpha
        The probability at most that a false claim is ever certified.
    hashes
        Those of the `FACTS`: what the claim is about.
    settings
        How an answer is drawn and scored.
    sources
        The author's model and rows, for people.
    audits
        The evidence, in the order in which the audits were added.
    coin
        Enters the seeds: 32 bytes in hexadecimals from a verifier or a public beacon, so that the author chooses no seed.
    n, check
        The author's draws to a question, and how many of them a verifier draws again; both or none.
    retrain
        The digest of Retrain's weights; None: the claim is about the model alone.
    checks
        What verifiers found.
    """

    questions: Annotated[tuple[Text, ...], Field(min_length=1)]
    tau: Annotated[float, Field(strict=True, gt=0, lt=1)]
    alpha: Annotated[float, Field(strict=True, ge=SMALLEST_ALPHA, le=0.5)]
    hashes: Mapping[str, Text]
    settings: Mapping[str, Json]
    sources: Mapping[str, Text]
    audits: tuple[Audit, ...] = ()
    coin: Coin | None = None
    n: Annotated[int, Field(strict=True, ge=1, lt=2**63)] | None = None
    check: Annotated[int, Field(strict=True, ge=1, lt=2**63)] | None = None
    retrain: Text | None = None
    checks: tuple[Check, ...] = ()

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """(auditors, questions) leaking answers, and answers."""
        shape = (len(self.audits), len(self.questions))
        leaks = np.array([audit.leaks for audit in self.audits], dtype=np.int64)
        draws = np.array([audit.draws for audit in self.audits], dtype=np.int64)
        return leaks.reshape(shape), draws.reshape(shape)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """(questions,) leaking answers, and answers, of all auditors."""
        leaks, draws = self.tables()
        return leaks.sum(axis=0), draws.sum(axis=0)

    def retrain_tables(self) -> tuple[np.ndarray, np.ndarray]:
        """(auditors, questions) leaking answers of Retrain, and its answers; 0 without Retrain."""
        shape = (len(self.audits), len(self.questions))
        leaks = np.zeros(shape, dtype=np.int64)
        draws = np.zeros(shape, dtype=np.int64)
        for place, audit in enumerate(self.audits):
            if audit.retrain_draws:
                leaks[place] = audit.retrain_leaks
                draws[place] = audit.retrain_draws
        return leaks, draws

    def log_e_values(self) -> np.ndarray:
        """(questions,) ln of each question's e-value at the counts of all auditors (`lethe.statistics.anytime`)."""
        leaks, n = self.counts()
        if self.retrain is None:
            return log_below(leaks, n, self.tau)
        of_retrain = [table.sum(axis=0) for table in self.retrain_tables()]
        logs = []
        for x, k, y, m in zip(leaks, n, *of_retrain, strict=True):
            logs.append(self.log_e_of(Counts(int(x), int(k)), Counts(int(y), int(m))))
        return np.array(logs)

    def log_e_of(self, model: Counts, retrain: Counts) -> float:
        """ln of the e-value against "the question leaks at least tau", or at least tau more often than Retrain."""
        beside = [] if self.retrain is None else [retrain]
        return log_e_forgot(model, beside, self.tau)

    def reached(self, log_e: float) -> bool:
        """Whether ln of an e-value certifies."""
        return log_e >= math.log(1 / self.alpha)

    def alone(self, audit: Audit) -> Self:
        """The certificate with this audit as its only evidence."""
        return replace(self, audits=(audit,))

    def homogeneity(self) -> float:
        """The p-value of "each question has one leak rate, whoever draws", valid whenever each auditor stops.

        The likelihood of an auditor's leaks and of all others' under Krichevsky and Trofimov's mixtures, over the largest
        likelihood under one common rate: an e-process (universal inference, Wasserman, Ramdas and Balakrishnan 2020), as
        the mixtures over the true likelihood are a martingale. The average over auditors and questions is an e-value, and 1
        over an e-value is a p-value (Ville).
        """
        from scipy.special import betaln, logsumexp, xlogy

        if len(self.audits) < 2:
            return 1.0

        # (auditors, questions), those of Retrain as further questions
        leaks, draws = self.tables()
        if self.retrain is not None:
            beside_leaks, beside_draws = self.retrain_tables()
            leaks = np.hstack([leaks, beside_leaks])
            draws = np.hstack([draws, beside_draws])
        clean = draws - leaks
        hits = leaks.sum(axis=0)
        n = draws.sum(axis=0)

        # The likelihood of two rates: an auditor's, and that of all others.
        leaks_of_others = hits - leaks
        clean_of_others = n - hits - clean
        log_mixture = betaln(leaks + 0.5, clean + 0.5)
        log_mixture = log_mixture + betaln(leaks_of_others + 0.5, clean_of_others + 0.5)
        log_apart = log_mixture - 2 * betaln(0.5, 0.5)

        # The largest likelihood of one rate.
        share = hits / np.maximum(n, 1)
        log_common = xlogy(hits, share) + xlogy(n - hits, 1 - share)

        log_p_value = math.log(leaks.size) - logsumexp(log_apart - log_common)
        return float(np.exp(min(0.0, log_p_value)))

    @property
    def homogeneous(self) -> bool:
        """Whether nothing refutes that all auditors saw one leak rate, at the level `HOMOGENEITY`."""
        return self.homogeneity() > HOMOGENEITY

    def next_seed(self, auditor: str) -> tuple[int, tuple[str, ...]]:
        """The seed of an auditor who continues this certificate, and the keys of the audits that are continued."""
        continued = {key for audit in self.audits for key in audit.after}
        after = tuple(sorted({audit.key for audit in self.audits} - continued))
        return self.seed_of(auditor, after), after

    def seed_of(self, auditor: str, after: Sequence[str]) -> int:
        """A seed that nobody chooses: it follows from the claim, the audits so far, and the auditor's name."""
        claim = (self.questions, self.tau, self.alpha, sorted(self.hashes.items()))
        fixed = (self.coin, self.n, self.check, self.retrain)
        return int(digest(claim, fixed, sorted(after), auditor)[:15], 16)

    def statement(self) -> str:
        """The claim in one sentence: what leaks at most how often, and how an answer is drawn and scored."""
        engine = self.settings.get("engine", {})
        by = engine.get("engine")
        if "dtype" in engine:
            by = f"{by} in {engine['dtype']}"
        if "endpoint" in engine:
            by = f"{engine.get('served')} at {engine['endpoint']}, as served at each draw,"
        more = ""
        if self.retrain is not None:
            more = f" more than Retrain's (weights {self.retrain[:16]}), both drawn alike"
        return (
            f"Each question's answer, cut after {engine.get('max_new_tokens')} tokens, leaks with probability at most "
            f"{in_full(self.tau)}{more}, if it is drawn by {by} at temperature {engine.get('temperature')}, top-p "
            f"{engine.get('top_p')}, top-k {engine.get('top_k')}, with the prompt {self.settings.get('prompt')}, and scored "
            f"by {self.settings.get('scorer')}."
        )

    def log_e(self) -> float:
        """The logarithm of the claim's e-value: the smallest of the questions', so at most that of one that leaks more."""
        return float(self.log_e_values().min())

    @property
    def verdict(self) -> str:
        """`DIFFER` if the auditors' leak rates do, `CERTIFIED` if the e-value has reached 1 / alpha, else `NOT_YET`."""
        if not self.homogeneous:
            return DIFFER
        return CERTIFIED if self.reached(self.log_e()) else NOT_YET

    def with_audits(self, more: Sequence[Audit]) -> Self:
        """Return the certificate with further audits.

        Raises
        ------
        BadInput
            If two audits have one seed: they drew the same answers, which count once.
        """
        seeds = [audit.seed for audit in (*self.audits, *more)]
        if len(set(seeds)) < len(seeds):
            rule = "auditors who continue one file must have different names (--auditor)"
            raise BadInput(f"Two audits used one seed, so they drew the same answers: {rule}.")
        return replace(self, audits=(*self.audits, *more))

    def sentence(self) -> str:
        """The verdict with the evidence so far."""
        _, n = self.counts()
        answers = plural(int(n.max()), "answer")
        if n.min() < n.max():
            answers = f"{n.min():,} to {answers}"
        questions = plural(len(self.questions), "question")
        auditors = plural(len({audit.auditor for audit in self.audits}), "auditor")
        if self.retrain is not None:
            _, of_retrain = self.retrain_tables()
            answers += f" (and {of_retrain.sum():,} of Retrain in all)"
        by = f"{answers} to each of {questions} by {auditors}"

        if not self.homogeneous:
            return (
                f"Not joined: the auditors' leak rates differ (p = {self.homogeneity():.2g}, whenever they "
                f"stopped), so some of {by} were not drawn as stated. Trust your own draws alone."
            )
        reached = _number(self.log_e())
        goal = _number(math.log(1 / self.alpha))
        evidence = f"{by}: the e-value is {reached}, and {goal} certifies"
        if self.verdict == CERTIFIED:
            return (
                f"Certified {level(self.alpha)} at any stopping time, assuming independent draws of which none was left out, "
                f"in any copy of the file. {evidence}."
            )
        return f"Not certified yet. {evidence}."

    def as_dict(self) -> dict[str, object]:
        """The content of the file."""
        is_joined = self.homogeneous
        claim = {
            "statement": self.statement(),
            "questions": list(self.questions),
            "tau": self.tau,
            "alpha": self.alpha,
            "coin": self.coin,
            "n": self.n,
            "check": self.check,
            "retrain": self.retrain,
        }
        e_process = {
            "rule": RULE,
            "combined": "the product over auditors of each question's e-values; the least over questions",
            "per_question": self._per_question(is_joined),
            "log_e_value": self.log_e() if is_joined else None,
            "log_goal": math.log(1 / self.alpha),
        }
        auditors = []
        for audit in self.audits:
            derived = {"key": audit.key, "log_e_value": self.alone(audit).log_e()}
            auditors.append(audit.as_dict() | derived)
        return {
            "schema": SCHEMA,
            "claim": claim,
            "hashes": dict(self.hashes),
            "settings": dict(self.settings),
            "sources": dict(self.sources),
            "e_process": e_process,
            "homogeneity": {
                "p_value": self.homogeneity(),
                "level": HOMOGENEITY,
                "holds": is_joined,
            },
            "auditors": auditors,
            "checks": [check.as_dict() for check in self.checks],
            "verdict": self.verdict,
        }

    def _per_question(self, is_joined: bool) -> list[dict[str, object]]:
        """The counts of each question, and its e-value where the auditors' draws are joined."""
        leaks, draws = self.counts()
        entries = []
        for place, (name, log_e) in enumerate(
            zip(self.questions, self.log_e_values(), strict=True)
        ):
            entry: dict[str, object] = {
                "id": name,
                "n": int(draws[place]),
                "leaks": int(leaks[place]),
                "log_e_value": float(log_e) if is_joined else None,
            }
            entries.append(entry)
        return entries

    def write(self, path: Path) -> None:
        write_json(path, self.as_dict())


def read_certificate(path: Path) -> Certificate:
    """Read a certificate, and check that what it states follows from its counts.

    Raises `BadFile` for another file, another schema or rule, a seed that was chosen, and a number that does not follow.
    """
    value = read_json(path)
    refused = partial(BadFile, path)
    _check_schema(value, refused)
    try:
        rule = value["e_process"].get("rule")
        if rule != RULE:
            problem = f"has the betting rule {shortened(rule)}; this release uses {RULE!r}"
            raise refused(problem, "Certify again.")
        certificate = _parsed(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        problem = f"{place}: got {shortened(first['input'])}; {first['msg']}"
        raise refused(f"is a broken certificate ({problem})", REMEDY) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"is a broken certificate ({type(error).__name__}: {str(error)[:80]})"
        raise refused(problem, REMEDY) from None
    _check_seeds(certificate, refused)
    derived = certificate.as_dict()
    for part in ("claim", "e_process", "homogeneity", "auditors", "checks", "verdict"):
        wrong = _difference(value.get(part), derived[part], part)
        if wrong:
            problem = f"{wrong} does not follow from its settings and the counts of its auditors"
            raise refused(problem, REMEDY)
    return certificate


def _check_schema(value: Json, refused: Callable[..., BadFile]) -> None:
    is_certificate = isinstance(value, dict) and str(value.get("schema", "")).startswith(FAMILY)
    if not is_certificate:
        raise refused("is not a certificate of `lethe certify`")
    schema = value["schema"]
    if schema == SCHEMA:
        return
    remedy = "Verify with the release that wrote the file, or certify again with `lethe certify`."
    if schema in (f"{FAMILY}1", f"{FAMILY}2"):
        remedy = "Its e-values are of an older rule: certify again with `lethe certify`."
    problem = f"has the schema {shortened(schema)}; this release of Lethe reads {SCHEMA!r}"
    raise refused(problem, remedy)


def _check_seeds(certificate: Certificate, refused: Callable[..., BadFile]) -> None:
    """Refuse a seed that does not follow from the audits that its auditor continued."""
    earlier: set[str] = set()
    for audit in certificate.audits:
        seed = certificate.seed_of(audit.auditor, audit.after)
        if not set(audit.after) <= earlier or audit.seed != seed:
            auditor = shortened(audit.auditor)
            problem = "does not follow from the audits before it, so it was chosen"
            raise refused(f"the seed of auditor {auditor} {problem}", REMEDY)
        earlier.add(audit.key)


def merged(first: Certificate, other: Certificate, path: Path) -> Certificate:
    """Return ``first`` with the audits and checks that only ``other`` has.

    Raises
    ------
    BadFile
        If ``other``, which was read from ``path``, makes another claim or is about another model.
    BadInput
        If two audits have one seed.
    """
    for name in (*CLAIM, "hashes", "settings"):
        if getattr(first, name) != getattr(other, name):
            problem = (
                f"{name!r} differs from the first certificate, so the evidence cannot be combined"
            )
            raise BadFile(path, problem)
    grown = first.with_audits([audit for audit in other.audits if audit not in first.audits])
    more = [check for check in other.checks if check not in first.checks]
    return replace(grown, checks=(*first.checks, *more))


def check_facts(certificate: Certificate, hashes: Mapping[str, str], path: Path) -> None:
    """Compare the hashes of the facts with those of a certificate; raises `BadFile` where one differs."""
    changed = [name for name in FACTS if certificate.hashes.get(name) != hashes[name]]
    if changed:
        same = "Verify with the same model, rows, scorer, settings and release of Lethe, or write a new certificate."
        raise BadFile(
            path, f"the hash of {' and of '.join(changed)} differs from the certificate", same
        )


def _parsed(value: Mapping[str, Json]) -> Certificate:
    """The certificate of a file. Raises `ValidationError` or `ValueError` for one that is broken."""
    parts = {name: value[name] for name in ("hashes", "settings", "sources")}
    claimed = {**value["claim"], **parts, "audits": value["auditors"], "checks": value["checks"]}
    certificate = restored(Certificate, claimed)

    # What no type says.
    m = len(certificate.questions)
    if len(set(certificate.questions)) < m:
        raise ValueError("the questions' ids must differ")
    lacking = [name for name in FACTS if name not in certificate.hashes]
    if lacking:
        raise ValueError(f"hashes lacks {', '.join(lacking)}")
    if not certificate.audits:
        raise ValueError("auditors must not be empty")
    if not isinstance(certificate.settings.get("engine"), dict):
        raise ValueError("settings must name the engine and its settings")
    if (certificate.n is None) != (certificate.check is None):
        raise ValueError("n and check must both be stated, or none of them")

    # The counts of each audit and check.
    for audit in certificate.audits:
        _check_counts(audit.leaks, audit.draws, m)
        beside = 0 if certificate.retrain is None else m
        _check_counts(audit.retrain_leaks, audit.retrain_draws, beside)
    draws_of = {audit.key: audit.draws for audit in certificate.audits}
    for check in certificate.checks:
        if check.audit not in draws_of:
            raise ValueError("a check must be of an audit in the file")
        _check_counts(check.s, draws_of[check.audit], m)
        _check_counts(check.mismatches, check.s, m)
    return replace(certificate, audits=()).with_audits(certificate.audits)


def _check_counts(counts: Sequence[int], most: Sequence[int], m: int) -> None:
    """Refuse counts that are not one for each of ``m`` questions, or that are more than ``most``."""
    if not len(counts) == len(most) == m:
        raise ValueError("counts must be one for each question")
    if any(count > limit for count, limit in zip(counts, most, strict=True)):
        raise ValueError("leaks must be at most the draws, and what was checked too")


def _difference(stated: Json, derived: Json, place: str) -> str:
    """The first place where a stated value is not the derived one; empty where there is none."""
    if isinstance(derived, dict):
        if not isinstance(stated, dict):
            return place
        may_lack = MAY_LACK | ({"log_e_value"} if "auditor" in derived else set())
        for key, value in derived.items():
            if key in may_lack and key not in stated:
                continue
            wrong = _difference(stated.get(key), value, f"{place}.{key}")
            if wrong:
                return wrong
        unknown = [key for key in stated if key not in derived]
        return f"{place}.{unknown[0]}" if unknown else ""
    if isinstance(derived, list) and isinstance(stated, list) and len(stated) == len(derived):
        for number, (value_stated, value) in enumerate(zip(stated, derived, strict=True), start=1):
            wrong = _difference(value_stated, value, f"{place}.{number}")
            if wrong:
                return wrong
        return ""
    return "" if _equal(stated, derived) else place


def _equal(stated: Json, derived: Json) -> bool:
    """Whether a stated value is the derived one; of two numbers, up to `TOLERANCE`."""
    if not isinstance(derived, float):
        return type(stated) is type(derived) and bool(stated == derived)
    if isinstance(stated, bool) or not isinstance(stated, (int, float)):
        return False
    if not abs(stated) < 2**63:  # a larger integer than any float cannot be compared
        return False
    return math.isclose(stated, derived, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _number(log: float) -> str:
    """A number in words, from its logarithm; as a power of ten where a float cannot hold it."""
    if abs(log) < 700:
        return f"{math.exp(log):.4g}"
    return f"10^{log / math.log(10):.1f}"
