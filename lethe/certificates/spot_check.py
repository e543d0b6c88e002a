"""A check of an author's draws by a few of them: the verifier's coin chooses samples, which are drawn again and compared.

The author commits to all draws by the root of a tree (`lethe.certificates.draws`) before the verifier draws the coin. The
choice depends on root and coin, so an author who does not know the coin cannot keep forged draws out of it.
"""

import hashlib
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lethe.certificates.certificate import Audit, Certificate, Check
from lethe.certificates.draws import Draws
from lethe.certificates.merkle import Leaf
from lethe.errors import plural
from lethe.io.files import Json
from lethe.statistics.anytime import is_reached, log_below
from lethe.statistics.bound import in_full, level, rounded
from lethe.statistics.spot_check import exact_upper, most_forged, passes

SCHEMA = "lethe-check/1"
COIN_BYTES = 32
WORD = 8  # bytes of a random number
FORGED_SHARE = 0.1  # of alpha, for the forged draws that all checks together miss
CLEAN = "as stated"
REFUTED = "not as stated"
DIGITS = 4  # decimals of an end in a sentence


def fresh_coin() -> bytes:
    """Return bytes that nobody could foresee, which choose the draws of a check."""
    return secrets.token_bytes(COIN_BYTES)


def chosen(
    root: str,
    coin: bytes,
    question: str,
    n: int,
    s: int,
) -> list[int]:
    """The ``s`` distinct sample numbers below ``n`` of a question that the coin chooses, uniformly, sorted.

    >>> chosen("00" * 32, bytes(32), "q", 10, 10)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    numbers: dict[int, None] = {}
    largest = 2**64 // n * n
    words = _words(bytes.fromhex(root) + coin + hashlib.sha256(question.encode()).digest())
    while len(numbers) < min(s, n):
        word = next(words)
        if word < largest:  # or the small numbers would be likelier
            numbers[word % n] = None
    return sorted(numbers)


def _words(key: bytes) -> Iterator[int]:
    """Random numbers of 64 bits: the SHA-256 of the key and a counter, four at a time."""
    counter = 0
    while True:
        block = hashlib.sha256(SCHEMA.encode() + key + counter.to_bytes(WORD, "big")).digest()
        for start in range(0, len(block), WORD):
            yield int.from_bytes(block[start : start + WORD], "big")
        counter += 1


def mismatches_in(
    draws: Draws, hashes: Sequence[bytes], leaves_of: Mapping[str, Sequence[Leaf]]
) -> tuple[int, ...]:
    """How many of the leaves of each question, drawn again, are not those of the tree, or not as the list of leaks says.

    ``hashes`` are all leaf hashes of the tree, in its order. Their root is that of the draws, so equal hashes need no path.
    """
    mismatches = []
    first = 0
    for question in draws.questions:
        leaks_at = set(question.leaks_at)
        wrong = 0
        for leaf in leaves_of[question.id]:
            is_stated = hashes[first + leaf.sample] == leaf.hash()
            has_leaked = leaf.sample in leaks_at
            wrong += not is_stated or has_leaked != bool(leaf.score)
        mismatches.append(wrong)
        first += question.n
    return tuple(mismatches)


@dataclass(frozen=True)
class SpotCheck:
    """What the ``checks`` of a certificate's audits prove of the ``claim``, even if the authors forged answers.

    Where the claim fixes the draws to a question and the size of a check, the first check decides by the exact end of
    `lethe.statistics.spot_check`. Else every draw that may be forged counts as a leak of the e-value. The audits enter in the
    order of the file, up to the last that was checked. Those before it without a check may be forged as a whole: whoever
    chose among all audits would choose those with the fewest leaks. The number of a check is its place in the file: whoever
    checks until a check certifies must not get a first check each time.
    """

    claim: Certificate
    checks: tuple[Check, ...]
    before: int = 0  # checks that the file had before these

    @cached_property
    def audits(self) -> tuple[Audit, ...]:
        """The audit of each check."""
        audit_of = {audit.key: audit for audit in self.claim.audits}
        return tuple(audit_of[check.audit] for check in self.checks)

    @property
    def verdict(self) -> str:
        """Other kernels draw a few other answers; on the audit's kernels a draw that is not as stated refutes the file."""
        for check, audit in zip(self.checks, self.audits, strict=True):
            if any(check.mismatches) and check.kernels == audit.kernels:
                return REFUTED
        return CLEAN

    @cached_property
    def entered(self) -> tuple[Audit, ...]:
        """The audits of the file up to the last that was checked."""
        places_of_checked = []
        for place, audit in enumerate(self.claim.audits):
            if audit in self.audits:
                places_of_checked.append(place)
        return self.claim.audits[: max(places_of_checked) + 1]

    @property
    def is_exact(self) -> bool:
        """Whether the first check is the claim's, of the first audit on the kernels that drew: known before the coin."""
        check = self.checks[0]
        audit = self.audits[0]
        m = len(self.claim.questions)
        is_first = audit.key == self.claim.audits[0].key
        is_fixed = self.claim.n is not None and audit.draws == (self.claim.n,) * m
        return (
            is_first
            and is_fixed
            and check.s == (self.claim.check,) * m
            and check.kernels == audit.kernels
        )

    @property
    def beta(self) -> float:
        """The largest probability that of an audit more draws are forged than `forged`, whose check is as it is."""
        if self.is_exact:
            return 0.0
        return math.fsum(self.share(number) for number in self._numbers)

    @property
    def _numbers(self) -> range:
        """The number of each check."""
        return range(self.before + 1, self.before + len(self.checks) + 1)

    def share(self, number: int) -> float:
        """The probability that the check ``number`` of the file, from 1, misses more forged draws than it excludes.

        The shares of any number of checks add up to at most `FORGED_SHARE` of alpha (the sum of 1 / (j (j + 1)) is 1), so
        whoever repeats checks until one certifies is wrong with probability at most alpha.
        """
        return self.claim.alpha * FORGED_SHARE / (number * (number + 1))

    @cached_property
    def forged(self) -> dict[str, tuple[int, ...]]:
        """By the key of each audit that enters: the largest number of forged draws of a question that no check excludes."""
        limits_of: dict[str, tuple[int, ...]] = {}
        for number, check, audit in zip(self._numbers, self.checks, self.audits, strict=True):
            share = self.share(number)
            limits = []
            for n, s, found in zip(audit.draws, check.s, check.mismatches, strict=True):
                limits.append(most_forged(n, s, share, found))
            before = limits_of.get(audit.key, tuple(limits))
            limits_of[audit.key] = tuple(map(min, before, limits))
        for audit in self.entered:
            limits_of.setdefault(audit.key, audit.draws)
        return limits_of

    def log_e(self) -> float:
        """The logarithm of the claim's e-value, every forged draw that is not excluded counted as a leak."""
        m = len(self.claim.questions)
        leaks = np.zeros(m, dtype=np.int64)
        draws = np.zeros(m, dtype=np.int64)
        for audit in self.entered:
            may_leak = np.array(audit.leaks) + np.array(self.forged[audit.key])
            leaks += np.minimum(may_leak, audit.draws)
            draws += np.array(audit.draws)
        return float(log_below(leaks, draws, self.claim.tau).min())

    @property
    def log_goal(self) -> float:
        """The e-value certifies at what all checks leave of the level, the same goal however many there are."""
        left = self.claim.alpha * (1 - FORGED_SHARE)
        return math.log(1 / left)

    @property
    def certified(self) -> bool:
        if self.verdict == REFUTED:
            return False
        if not self.is_exact:
            return is_reached(self.log_e(), self.log_goal)
        audit = self.audits[0]
        s = self.checks[0].s[0]
        n = audit.draws[0]
        return passes(self.claim.tau, n, max(audit.leaks), s) <= self.claim.alpha

    def upper(self) -> float | None:
        """The exact end of the worst question's leak probability, at alpha; None where the claim fixes no check."""
        if not self.is_exact or self.verdict == REFUTED:
            return None
        audit = self.audits[0]
        s = self.checks[0].s[0]
        return exact_upper(audit.draws[0], max(audit.leaks), s, self.claim.alpha)

    def sentences(self) -> list[str]:
        """What was drawn again, whether it is as stated, and what follows."""
        lines = []
        for check, audit in zip(self.checks, self.audits, strict=True):
            lines.append(self._checked(check, audit))
        if self.verdict == REFUTED:
            return lines
        upper = self.upper()
        most = max(max(limits) for limits in self.forged.values())
        if upper is not None:
            lines.append(f"{self._leaks_at_most(upper)}.{self._of_seeds()}")
            if not self.certified:
                lines.append(f"So this check does not certify {in_full(self.claim.tau)}.")
        elif self.certified:
            counted = f"up to {most:,} forged answers to a question count as leaks"
            lines.append(f"{self._leaks_at_most(self.claim.tau)}: {counted}.{self._of_seeds()}")
        else:
            lines.append(
                f"The check alone certifies nothing yet: with {most:,} answers to a question that may be forged, ln e is "
                f"{self.log_e():.3g}, and {self.log_goal:.3g} certifies. More answers, or a larger check, would decide."
            )
        return lines

    def _checked(self, check: Check, audit: Audit) -> str:
        questions = plural(len(check.s), "question")
        answers = plural(sum(check.s), "answer")
        by = f"by {check.verifier}'s coin {check.coin[:16]}..."
        checked = (
            f"Checked: {answers} to {questions} of {audit.auditor}, chosen {by}, were drawn again"
        )
        wrong = sum(check.mismatches)
        if not wrong:
            return f"{checked} and are as stated."
        if check.kernels == audit.kernels:
            return f"{checked}; {wrong:,} are not as stated."
        return f"{checked} on other kernels; {wrong:,} differ, and count as forged."

    def _leaks_at_most(self, end: float) -> str:
        share = rounded(end, DIGITS, "upper")
        with_probability = level(self.claim.alpha)
        return (
            "Even if the author forged answers, each question leaks with probability at most "
            f"{share}, {with_probability}"
        )

    def _of_seeds(self) -> str:
        if self.claim.coin is not None:
            return (
                f" The coin {self.claim.coin[:16]}... of the claim is in the seed: this assumes that model, questions, claim "
                "and the auditor's name were fixed before this coin was known."
            )
        return (
            " This assumes that the author tried a single seed: no coin of a verifier is in it, and another name or claim "
            "gives another seed."
        )

    def as_json(self) -> dict[str, Json]:
        """The last check, and what all of them prove."""
        check = self.checks[-1]
        audit = self.audits[-1]
        return {
            "auditor": audit.auditor,
            **check.as_dict(),
            "forged_at_most": list(self.forged[audit.key]),
            "beta": self.beta,
            "log_e_value": self.log_e(),
            "log_goal": self.log_goal,
            "exact": self.is_exact,
            "upper": self.upper(),
            "certified": self.certified,
            "verdict": self.verdict,
        }


def size_of(draws: Sequence[int], s: int) -> tuple[int, ...]:
    """How many draws of each question a check of ``s`` repeats: all where there are fewer."""
    return tuple(min(s, n) for n in draws)
