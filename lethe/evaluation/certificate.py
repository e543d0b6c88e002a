"""A certificate: one JSON file that accumulates the evidence of independent auditors (docs/certificates.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lethe.errors import BadFile, BadInput, plural, shortened
from lethe.io.json_files import read_json, write_json
from lethe.statistics.bound import level
from lethe.statistics.checks import SMALLEST_ALPHA
from lethe.statistics.sequential import RULE, log_e_value

SCHEMA = "lethe-certificate/1"
CERTIFIED, NOT_YET = "certified", "not certified yet"
FACTS = ("weights", "tokenizer", "prompts", "scorer", "engine")
TOLERANCE = 1e-6  # of stated e-values
REMEDY = "Ask its author for the file as it was written."


@dataclass(frozen=True)
class Audit:
    """The draws of one auditor: ``draws`` answers to each question with ``seed``, and the ``leaks`` per question."""

    auditor: str
    draws: int
    seed: int
    engine: str
    time: str
    leaks: tuple[int, ...]


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

    def counts(self) -> tuple[np.ndarray, int]:
        """The leaking answers per question and the number of answers to each question, over all auditors."""
        leaks = np.array([audit.leaks for audit in self.audits], dtype=np.int64).reshape(-1, len(self.questions))
        return leaks.sum(axis=0), sum(audit.draws for audit in self.audits)

    def log_e_values(self) -> np.ndarray:
        """The logarithm of each question's e-value."""
        leaks, n = self.counts()
        return log_e_value(leaks, np.full(len(leaks), n), self.tau)

    def log_e(self) -> float:
        """The logarithm of the e-value of the claim: the smallest of the questions' e-values.

        If some question leaks with probability at least tau, the smallest e-value is at most the e-value of that question,
        so the smallest is an e-value too.
        """
        return float(self.log_e_values().min())

    @property
    def verdict(self) -> str:
        """`CERTIFIED` if the e-value has reached 1 / alpha, else `NOT_YET`."""
        return CERTIFIED if self.log_e() >= math.log(1 / self.alpha) else NOT_YET

    def with_audits(self, more: Sequence[Audit]) -> Certificate:
        """Return the certificate with further audits; every audit must have its own seed."""
        seeds = [audit.seed for audit in (*self.audits, *more)]
        if len(set(seeds)) < len(seeds):
            raise BadInput("Two audits used one seed, so they drew the same answers. Draw from another stream.")
        return replace(self, audits=(*self.audits, *more))

    def sentence(self) -> str:
        """The verdict and its guarantee in words."""
        _, n = self.counts()
        auditors = len({audit.auditor for audit in self.audits})
        evidence = (
            f"{plural(n, 'answer')} to each of {plural(len(self.questions), 'question')} by {plural(auditors, 'auditor')}: "
            f"the e-value is {_number(self.log_e())}, and {_number(math.log(1 / self.alpha))} certifies"
        )
        if self.verdict == CERTIFIED:
            return (
                f"Certified: every question leaks with probability at most {self.tau:g}, {level(self.alpha)} at any stopping "
                f"time, assuming independent draws of which none was left out. {evidence}."
            )
        return f"Not certified yet. {evidence}."

    def as_dict(self) -> dict[str, object]:
        """The file's content."""
        leaks, n = self.counts()
        logs = self.log_e_values()
        return {
            "schema": SCHEMA,
            "claim": {
                "statement": "each question's answer leaks with probability at most tau",
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
                    {"id": name, "n": n, "leaks": int(hit), "log_e_value": float(log)}
                    for name, hit, log in zip(self.questions, leaks, logs, strict=True)
                ],
                "log_e_value": self.log_e(),
                "log_goal": math.log(1 / self.alpha),
            },
            "auditors": [asdict(audit) | {"leaks": list(audit.leaks)} for audit in self.audits],
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
            "Verify with the release that wrote the file, or write a new certificate with `lethe certify`.",
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
    leaks, n = found.counts()
    expected = [*zip(found.questions, found.log_e_values().tolist(), leaks.tolist(), strict=True)]
    for row, (name, log, hits) in zip(rows, expected, strict=True):
        if (
            row.get("id") != name
            or not _close(row.get("log_e_value"), log)
            or (row.get("n"), row.get("leaks")) != (n, hits)
            or any(isinstance(row[key], bool) for key in ("n", "leaks"))
        ):
            raise BadFile(
                path,
                f"question {shortened(name)}: the stated e-value or counts do not match those of its auditors",
                REMEDY,
            )
    if not _close(stated.get("log_e_value"), found.log_e()) or value.get("verdict") != found.verdict:
        raise BadFile(path, "the stated e-value or verdict does not match the counts of its auditors", REMEDY)
    return found


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
    sources = {key: _text(name) for key, name in value["sources"].items()}
    empty = Certificate(questions, tau, alpha, hashes, value["settings"], sources)
    return empty.with_audits(audits)


def _audit(value: Mapping[str, Any], questions: int) -> Audit:
    leaks = tuple(_count(one) for one in value["leaks"])
    draws = _count(value["draws"])
    if len(leaks) != questions or draws < 1 or max(leaks) > draws:
        raise ValueError("an auditor's leaks must be one count per question, each at most the auditor's draws")
    auditor, engine, time = (_text(value[key]) for key in ("auditor", "engine", "time"))
    if not auditor:
        raise ValueError("an auditor must have a name")
    return Audit(auditor, draws, _count(value["seed"]), engine, time, leaks)


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


def _close(stated: Any, value: float) -> bool:
    number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
    # A larger integer than any float cannot be compared.
    return number and abs(stated) < 2**63 and math.isclose(stated, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _number(log: float) -> str:
    return f"{math.exp(log):.4g}" if abs(log) < 700 else f"10^{log / math.log(10):.1f}"
