"""A certificate: one JSON file whose evidence adds up over independent auditors (docs/certificates.md)."""

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
from lethe.statistics.e_process import RULE, log_e_value

SCHEMA = "lethe-certificate/1"
CERTIFIED, NOT_YET = "certified", "not certified yet"
FACTS = ("weights", "tokenizer", "prompts", "scorer", "engine")
TOLERANCE = 1e-6  # of stated e-values
REMEDY = "Ask its author for the file as it was written."


@dataclass(frozen=True)
class Audit:
    """What one auditor drew: ``draws`` answers to each question from the stream of ``seed``, of which ``leaks`` leaked."""

    auditor: str
    draws: int
    seed: int
    engine: str
    time: str
    leaks: tuple[int, ...]


@dataclass(frozen=True)
class Certificate:
    """A claim, what it is about, and the evidence so far.

    The claim: every one of ``questions`` leaks with probability at most ``tau``. ``hashes`` has a key per fact of `FACTS`,
    ``settings`` how answers are drawn and scored, ``sources`` where the author's model and rows were.
    """

    questions: tuple[str, ...]
    tau: float
    alpha: float
    hashes: Mapping[str, str]
    settings: Mapping[str, object]
    sources: Mapping[str, str]
    audits: tuple[Audit, ...] = ()

    def counts(self) -> tuple[np.ndarray, int]:
        """Leaking answers per question, and answers to each question, over all auditors."""
        leaks = np.array([audit.leaks for audit in self.audits], dtype=np.int64).reshape(-1, len(self.questions))
        return leaks.sum(axis=0), sum(audit.draws for audit in self.audits)

    def log_e_values(self) -> np.ndarray:
        """The logarithm of each question's e-value."""
        leaks, n = self.counts()
        return log_e_value(leaks, np.full(len(leaks), n), self.tau)

    def log_e(self) -> float:
        """The logarithm of the e-value of the claim: the least of the questions' e-values.

        Where some question leaks at least tau, the least e-value is at most that question's, so it is an e-value as well.
        """
        return float(self.log_e_values().min())

    @property
    def verdict(self) -> str:
        """``certified`` where the e-value has reached 1 / alpha."""
        return CERTIFIED if self.log_e() >= math.log(1 / self.alpha) else NOT_YET

    def with_audits(self, more: Sequence[Audit]) -> Certificate:
        """The certificate with further audits; each must have a stream of its own."""
        seeds = [audit.seed for audit in (*self.audits, *more)]
        if len(set(seeds)) < len(seeds):
            raise BadInput("Two audits used one seed, so they drew the same answers. Draw from another stream.")
        return replace(self, audits=(*self.audits, *more))

    def sentence(self) -> str:
        """The verdict with its guarantee, in words."""
        _, n = self.counts()
        auditors = len({audit.auditor for audit in self.audits})
        told = (
            f"{plural(n, 'answer')} to each of {plural(len(self.questions), 'question')} by {plural(auditors, 'auditor')}: "
            f"the e-value is {_number(self.log_e())}, and {_number(math.log(1 / self.alpha))} certifies"
        )
        if self.verdict == CERTIFIED:
            return (
                f"Certified: every question leaks with probability at most {self.tau:g}, {level(self.alpha)} at any time of "
                f"looking, assuming independent draws of which none was left out. {told}."
            )
        return f"Not certified yet. {told}."

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
    """Read a certificate, and check that its e-values are those of its counts.

    Raises
    ------
    BadInput
        If the file is no certificate of this version, a value has another type, or a stated value contradicts its counts.
    """
    value = read_json(path)
    if not isinstance(value, dict) or not str(value.get("schema", "")).startswith("lethe-certificate/"):
        raise BadFile(path, "is no certificate of `lethe certify`")
    if value["schema"] != SCHEMA:
        raise BadFile(path, f"has the schema {shortened(value['schema'])}; this version reads {SCHEMA!r}")
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
        raise BadFile(path, "states no e-value for each question", REMEDY)
    if stated.get("rule") != RULE:
        raise BadFile(path, f"has the betting rule {shortened(stated.get('rule'))}; this version bets by {RULE!r}")
    leaks, n = found.counts()
    expected = [*zip(found.questions, found.log_e_values().tolist(), leaks.tolist(), strict=True)]
    for row, (name, log, hits) in zip(rows, expected, strict=True):
        if (
            row.get("id") != name
            or not _close(row.get("log_e_value"), log)
            or (row.get("n"), row.get("leaks")) != (n, hits)
        ):
            raise BadFile(
                path,
                f"question {shortened(name)}: the stated e-value or counts are not those of its auditors",
                REMEDY,
            )
    if not _close(stated.get("log_e_value"), found.log_e()) or value.get("verdict") != found.verdict:
        raise BadFile(path, "the stated e-value or verdict is not that of its auditors", REMEDY)
    return found


def merged(found: Certificate, other: Certificate, path: Path) -> Certificate:
    """``found`` with the audits of ``other`` that it does not have; both must make one claim about one thing."""
    for name in ("questions", "tau", "alpha", "hashes", "settings"):
        if getattr(found, name) != getattr(other, name):
            raise BadInput(f"{path}: other {name} than the first certificate, so the evidence does not add up.")
    return found.with_audits([audit for audit in other.audits if audit not in found.audits])


def check_facts(found: Certificate, hashes: Mapping[str, str], path: Path) -> None:
    """Refuse, by name, what is not what the certificate is about."""
    changed = [name for name in FACTS if found.hashes.get(name) != hashes[name]]
    if changed:
        raise BadInput(
            f"{path}: other {' and '.join(changed)} than the certificate is about (its hash differs). Verify with the same "
            "model, rows, scorer, settings and release of Lethe, or write a new certificate."
        )


def _parsed(value: Mapping[str, Any]) -> Certificate:
    claim = value["claim"]
    questions = tuple(_text(name) for name in claim["questions"])
    if not questions or len(set(questions)) < len(questions):
        raise ValueError("questions must be a list of different ids")
    tau, alpha = float(claim["tau"]), float(claim["alpha"])
    if not 0 < tau < 1 or not SMALLEST_ALPHA <= alpha <= 0.5:
        raise ValueError("tau and alpha must lie in (0, 1) and (0, 0.5]")
    audits = tuple(_audit(one, len(questions)) for one in value["auditors"])
    hashes = {name: _text(value["hashes"][name]) for name in FACTS}
    if not audits or not all(isinstance(value[key], dict) for key in ("settings", "sources")):
        raise ValueError("auditors, settings and sources must be there")
    sources = {key: _text(name) for key, name in value["sources"].items()}
    empty = Certificate(questions, tau, alpha, hashes, value["settings"], sources)
    return empty.with_audits(audits)


def _audit(value: Mapping[str, Any], questions: int) -> Audit:
    leaks = tuple(_count(one) for one in value["leaks"])
    draws = _count(value["draws"])
    if len(leaks) != questions or draws < 1 or max(leaks) > draws:
        raise ValueError("an auditor's leaks must be a count per question, at most its draws")
    texts = (_text(value[key]) for key in ("auditor", "engine", "time"))
    auditor, engine, time = texts
    return Audit(auditor, draws, _count(value["seed"]), engine, time, leaks)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {shortened(value, 40)}, expected a text")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise TypeError(f"got {shortened(value, 40)}, expected a whole number from 0")
    return value


def _close(stated: Any, value: float) -> bool:
    number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
    return number and math.isclose(stated, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _number(log: float) -> str:
    return f"{math.exp(log):.4g}" if abs(log) < 700 else f"10^{log / math.log(10):.1f}"
