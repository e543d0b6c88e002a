"""A certificate: one JSON file that accumulates the evidence of independent auditors (docs/certificates.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lethe.errors import BadFile, BadInput, plural, shortened
from lethe.io.cache import digest
from lethe.io.json_files import read_json, write_json
from lethe.statistics.bound import level
from lethe.statistics.checks import SMALLEST_ALPHA
from lethe.statistics.sequential import RULE, log_e_value

SCHEMA = "lethe-certificate/2"
CERTIFIED, NOT_YET, DIFFER = "certified", "not certified yet", "auditors differ"
DRAWN = ("engine", "temperature", "top_p", "top_k", "max_new_tokens")  # the settings that the statement names
HOMOGENEITY = 0.01  # level of the test that all auditors saw one leak rate per question, fixed beforehand
FACTS = ("weights", "tokenizer", "prompts", "scorer", "engine")
TOLERANCE = 1e-6  # of stated e-values
REMEDY = "Ask its author for the file as it was written."


@dataclass(frozen=True)
class Audit:
    """The draws of one auditor: per question the number of answers (``draws``) and the ``leaks`` among them.

    ``after`` are the keys of the audits that it continued and that no other of them had continued.
    """

    auditor: str
    draws: tuple[int, ...]
    seed: int
    engine: str
    time: str
    leaks: tuple[int, ...]
    after: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The hash of the audit, which later audits name."""
        return digest(self.as_dict())

    def as_dict(self) -> dict[str, object]:
        """The entry of ``auditors``."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Certificate:
    """A claim, its subject, and the evidence so far.

    The claim is that every one of ``questions`` leaks with probability at most ``tau``. ``hashes`` has one key per fact in
    `FACTS`. ``settings`` describes how answers are drawn and scored. ``sources`` names the author's model and rows.
    """

    questions: tuple[str, ...]
    tau: float
    alpha: float
    hashes: Mapping[str, str]
    settings: Mapping[str, object]
    sources: Mapping[str, str]
    audits: tuple[Audit, ...] = ()

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """(auditors, questions) leaking answers, and answers."""
        shape = (-1, len(self.questions))
        leaks, draws = ([getattr(audit, name) for audit in self.audits] for name in ("leaks", "draws"))
        return np.array(leaks, dtype=np.int64).reshape(shape), np.array(draws, dtype=np.int64).reshape(shape)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """The leaking answers and the answers per question, over all auditors."""
        leaks, draws = self.tables()
        return leaks.sum(axis=0), draws.sum(axis=0)

    def log_e_values(self) -> np.ndarray:
        """The logarithm of each question's e-value."""
        return log_e_value(*self.counts(), self.tau)

    def alone(self, audit: Audit) -> Certificate:
        """The certificate with the evidence of one audit."""
        return replace(self, audits=(audit,))

    def homogeneity(self) -> float:
        """The p-value of "each question has one leak rate, whoever draws".

        Fisher's exact test of each auditor against all others in each question, Bonferroni over both.
        """
        from scipy.stats import fisher_exact

        leaks, draws = self.tables()
        if len(leaks) < 2:
            return 1.0
        others, rest = leaks.sum(axis=0) - leaks, draws.sum(axis=0) - draws
        tables = np.stack([leaks, draws - leaks, others, rest - others], axis=-1).reshape(-1, 4)
        kinds, counts = np.unique(tables, axis=0, return_counts=True)
        least = min(float(fisher_exact(kind.reshape(2, 2))[1]) for kind in kinds)
        return min(1.0, least * int(counts.sum()))

    @property
    def homogeneous(self) -> bool:
        """Whether the evidence of all auditors may be joined."""
        return self.homogeneity() > HOMOGENEITY

    def next_seed(self, auditor: str) -> tuple[int, tuple[str, ...]]:
        """The seed of an auditor who continues this certificate, and the keys of the audits that are continued."""
        continued = {key for audit in self.audits for key in audit.after}
        after = tuple(sorted({audit.key for audit in self.audits} - continued))
        return self.seed_of(auditor, after), after

    def seed_of(self, auditor: str, after: Sequence[str]) -> int:
        """A seed that nobody chooses: it follows from the claim, the audits so far, and the auditor's name."""
        claim = (self.questions, self.tau, self.alpha, sorted(self.hashes.items()))
        return int(digest(claim, sorted(after), auditor)[:15], 16)

    def statement(self) -> str:
        """The claim with the conditions under which it holds."""
        engine: Any = self.settings.get("engine", {})
        tokens, temperature, top_p, top_k = (engine.get(name) for name in DRAWN[-1:] + DRAWN[1:-1])
        return (
            f"Each question's answer, cut after {tokens} tokens, leaks with probability at most {self.tau:g}, if it is drawn "
            f"by {engine.get('engine')} at temperature {temperature}, top-p {top_p}, top-k {top_k}, with the prompt "
            f"{self.settings.get('prompt')}, and scored by {self.settings.get('scorer')}."
        )

    def log_e(self) -> float:
        """The logarithm of the e-value of the claim: the smallest of the questions' e-values.

        If some question leaks with probability at least tau, the smallest e-value is at most the e-value of that question,
        so the smallest is an e-value too.
        """
        return float(self.log_e_values().min())

    @property
    def verdict(self) -> str:
        """`DIFFER` if the auditors' leak rates do, `CERTIFIED` if the e-value has reached 1 / alpha, else `NOT_YET`."""
        if not self.homogeneous:
            return DIFFER
        return CERTIFIED if self.log_e() >= math.log(1 / self.alpha) else NOT_YET

    def with_audits(self, more: Sequence[Audit]) -> Certificate:
        """Return the certificate with further audits; every audit must have its own seed."""
        seeds = [audit.seed for audit in (*self.audits, *more)]
        if len(set(seeds)) < len(seeds):
            raise BadInput(
                "Two audits used one seed, so they drew the same answers: auditors who continue one file must have different "
                "names (--auditor)."
            )
        return replace(self, audits=(*self.audits, *more))

    def sentence(self) -> str:
        """The verdict and its guarantee in words."""
        _, n = self.counts()
        auditors = len({audit.auditor for audit in self.audits})
        answers = (
            f"{n.min():,} to {plural(int(n.max()), 'answer')}"
            if n.min() < n.max()
            else plural(int(n[0]), "answer")
        )
        by = f"{answers} to each of {plural(len(self.questions), 'question')} by {plural(auditors, 'auditor')}"
        if not self.homogeneous:
            return (
                f"Not joined: the auditors' leak rates differ (p = {self.homogeneity():.2g}, Fisher's exact test, "
                f"Bonferroni), so some of {by} were not drawn as stated. Trust your own draws alone."
            )
        evidence = (
            f"{by}: the e-value is {_number(self.log_e())}, and {_number(math.log(1 / self.alpha))} certifies"
        )
        if self.verdict == CERTIFIED:
            return (
                f"Certified {level(self.alpha)} at any stopping time, assuming independent draws of which none was left out, "
                f"in any copy of the file. {evidence}."
            )
        return f"Not certified yet. {evidence}."

    def as_dict(self) -> dict[str, object]:
        """The file's content."""
        leaks, n = self.counts()
        joined = self.homogeneous
        return {
            "schema": SCHEMA,
            "claim": {
                "statement": self.statement(),
                "questions": list(self.questions),
                "tau": self.tau,
                "alpha": self.alpha,
            },
            "hashes": dict(self.hashes),
            "settings": dict(self.settings),
            "sources": dict(self.sources),
            "e_process": {
                "rule": RULE,
                "combined": "the product over auditors of each question's e-values; the least over questions",
                "per_question": [
                    {"id": name, "n": int(n), "leaks": int(hit), "log_e_value": float(log) if joined else None}
                    for name, n, hit, log in zip(self.questions, n, leaks, self.log_e_values(), strict=True)
                ],
                "log_e_value": self.log_e() if joined else None,
                "log_goal": math.log(1 / self.alpha),
            },
            "homogeneity": {"p_value": self.homogeneity(), "level": HOMOGENEITY, "holds": joined},
            "auditors": [
                audit.as_dict() | {"key": audit.key, "log_e_value": self.alone(audit).log_e()}
                for audit in self.audits
            ],
            "verdict": self.verdict,
        }

    def write(self, path: Path) -> None:
        """Write the file."""
        write_json(path, self.as_dict())


def read_certificate(path: Path) -> Certificate:
    """Read a certificate, and check that its e-values are those of its counts."""
    value = read_json(path)
    if not isinstance(value, dict) or not str(value.get("schema", "")).startswith("lethe-certificate/"):
        raise BadFile(path, "is not a certificate of `lethe certify`")
    if value["schema"] != SCHEMA:
        raise BadFile(
            path,
            f"has the schema {shortened(value['schema'])}; this release of Lethe reads {SCHEMA!r}",
            "Its statement names no tokens, temperature or prompt: certify again with `lethe certify`."
            if value["schema"] == "lethe-certificate/1"
            else "Verify with the release that wrote the file, or certify again with `lethe certify`.",
        )
    try:
        found = _parsed(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadFile(
            path, f"is a broken certificate ({type(error).__name__}: {str(error)[:80]})", REMEDY
        ) from None
    given = value.get("e_process")
    stated: dict[str, Any] = given if isinstance(given, dict) else {}
    rows = stated.get("per_question")
    if (
        not isinstance(rows, list)
        or len(rows) != len(found.questions)
        or not all(isinstance(row, dict) for row in rows)
    ):
        raise BadFile(path, "does not state one e-value per question", REMEDY)
    if stated.get("rule") != RULE:
        raise BadFile(path, f"has the betting rule {shortened(stated.get('rule'))}; this version uses {RULE!r}")
    if value["claim"].get("statement") != found.statement():
        raise BadFile(path, "the statement does not name its own settings", REMEDY)
    _check_order(found, path)
    leaks, counts = found.counts()
    joined = found.homogeneous
    expected = [*zip(found.questions, found.log_e_values().tolist(), leaks.tolist(), counts.tolist(), strict=True)]
    for row, (name, log, hits, n) in zip(rows, expected, strict=True):
        if (
            row.get("id") != name
            or not _close(row.get("log_e_value"), log, joined)
            or (row.get("n"), row.get("leaks")) != (n, hits)
            or any(isinstance(row[key], bool) for key in ("n", "leaks"))
        ):
            raise BadFile(
                path,
                f"question {shortened(name)}: the stated e-value or counts do not match those of its auditors",
                REMEDY,
            )
    if not _close(stated.get("log_e_value"), found.log_e(), joined) or value.get("verdict") != found.verdict:
        raise BadFile(path, "the stated e-value or verdict does not match the counts of its auditors", REMEDY)
    return found


def _check_order(found: Certificate, path: Path) -> None:
    """Check that each seed follows from the audits that its auditor continued."""
    earlier: set[str] = set()
    for audit in found.audits:
        if not set(audit.after) <= earlier or audit.seed != found.seed_of(audit.auditor, audit.after):
            raise BadFile(
                path,
                f"the seed of auditor {shortened(audit.auditor)} does not follow from the audits before it, so it was chosen",
                REMEDY,
            )
        earlier.add(audit.key)


def merged(found: Certificate, other: Certificate, path: Path) -> Certificate:
    """Return ``found`` with the audits that only ``other`` has; both must make the same claim about the same model."""
    for name in ("questions", "tau", "alpha", "hashes", "settings"):
        if getattr(found, name) != getattr(other, name):
            raise BadInput(
                f"{path}: {name!r} differs from the first certificate, so the evidence cannot be combined."
            )
    return found.with_audits([audit for audit in other.audits if audit not in found.audits])


def check_facts(found: Certificate, hashes: Mapping[str, str], path: Path) -> None:
    """Compare the hashes of the facts with those of a certificate."""
    changed = [name for name in FACTS if found.hashes.get(name) != hashes[name]]
    if changed:
        raise BadInput(
            f"{path}: the hash of {' and of '.join(changed)} differs from the certificate. Verify with the same model, rows, "
            "scorer, settings and release of Lethe, or write a new certificate."
        )


def _parsed(value: Mapping[str, Any]) -> Certificate:
    claim = value["claim"]
    questions = tuple(_text(name) for name in claim["questions"])
    if not questions or len(set(questions)) < len(questions):
        raise ValueError("questions must be a list of different ids")
    tau, alpha = _number_of(claim["tau"]), _number_of(claim["alpha"])
    if not 0 < tau < 1 or not SMALLEST_ALPHA <= alpha <= 0.5:
        raise ValueError("tau and alpha must lie in (0, 1) and (0, 0.5]")
    audits = tuple(_audit(one, len(questions)) for one in value["auditors"])
    hashes = {name: _text(value["hashes"][name]) for name in FACTS}
    if not audits or not all(isinstance(value[key], dict) for key in ("settings", "sources")):
        raise ValueError("auditors, settings and sources must be present")
    if not isinstance(value["settings"].get("engine"), dict):
        raise ValueError("settings must name the engine and its settings")
    sources = {key: _text(name) for key, name in value["sources"].items()}
    empty = Certificate(questions, tau, alpha, hashes, value["settings"], sources)
    return empty.with_audits(audits)


def _audit(value: Mapping[str, Any], questions: int) -> Audit:
    leaks, draws = (tuple(_count(one) for one in value[name]) for name in ("leaks", "draws"))
    if not len(leaks) == len(draws) == questions or min(draws) < 1 or (np.array(leaks) > draws).any():
        raise ValueError(
            "an auditor's draws and leaks must be one count per question, the leaks at most the draws"
        )
    auditor, engine, time = (_text(value[key]) for key in ("auditor", "engine", "time"))
    if not auditor:
        raise ValueError("an auditor must have a name")
    after = tuple(_text(one) for one in value["after"])
    return Audit(auditor, draws, _count(value["seed"]), engine, time, leaks, after)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {shortened(value, 40)}, expected a text")
    return value


def _number_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"got {shortened(value, 40)}, expected a number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise TypeError(f"got {shortened(value, 40)}, expected a whole number of at least 0")
    return value


def _close(stated: Any, value: float, joined: bool) -> bool:
    if not joined:
        return stated is None
    number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
    # A larger integer than any float cannot be compared.
    return number and abs(stated) < 2**63 and math.isclose(stated, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _number(log: float) -> str:
    return f"{math.exp(log):.4g}" if abs(log) < 700 else f"10^{log / math.log(10):.1f}"
