"""Check the bounds of a statement or a certificate from their witnesses, by whole numbers alone.

This file imports the standard library alone. Whoever trusts nobody can copy it out of the package, read it, and run it:

    python check.py envelope.json certificate.json

A bound is *verified* where the inequality that defines it is proved by sums that whole numbers enclose, rounded outward. What
is missing, of another form, of an unknown method, too large or undecided is *not verified*. The file checks no signature, and
it cannot know whether counts and explored masses are those of the model.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count as counting
from math import ceil, isqrt
from pathlib import Path
from typing import Any

VERIFIED = "verified"
MOST_DRAWS = 1_000_000  # draws, and terms of a sum, above which the check would take minutes
BITS = 160  # after the point of a sum's terms
UNIT = 1 << BITS
Fields = dict[str, object]
Ratios = Iterable[tuple[int, int]]  # of neighbouring terms of a sum, as fractions
HALF_PI = Fraction("3.1415926535897932385") / 2  # above: pi is 3.14159265358979323846...
DECIMAL = re.compile(
    r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,40})?"
)  # an exponent could make numbers of any length
METRIC_OF_SIDE = {"upper": "leak_rate_worst_question_", "lower": "leak_rate_some_question_"}
COMPARATOR_OF_SIDE = {"upper": "<=", "lower": ">"}
WORDS_OF = {
    "upper": ["bounded"],
    "not upper": ["leaks", "open"],
    "lower": ["leaks"],
    "not lower": [],
}
# What a bound is about: whoever reads these keys must not read a witness of something else.
ABOUT = {"quantity": "leak_worst", "covers": "the worst of the prompts", "certain": False}
DRAWS = "independent draws within each prompt"
STARTS = (
    "the computed next-token probabilities are exact up to the allowance; independent Poisson starts at a rate fixed before "
    "they were drawn"
)
BASES = {  # the method of each, and what it assumes
    "sampled": ("Clopper-Pearson", DRAWS),
    "anytime": ("beta-binomial mixture, at every n at once (Howard et al., 2021)", DRAWS),
    "tree": ("answer tree, Poisson sample of the rest", STARTS),
}
OF_TREE = ("rate", "leak", "clean", "factor")  # decimal strings of a witness


class Unverified(ValueError):
    """A claim that does not follow from its witness; the text says why."""


@dataclass(frozen=True)
class Witness:
    """How many of ``n`` answers leaked."""

    count: int
    n: int


def upper_end_holds(witness: Witness, end: Fraction, alpha: Fraction) -> bool:
    """Whether ``end`` is at least the upper end of Clopper and Pearson (1934): P(Binomial(n, end) <= count) <= alpha."""
    if not 0 < end < 1 or witness.count >= witness.n:
        return end >= 1
    leak, clean = end.numerator, end.denominator - end.numerator
    down = ((k * clean, (witness.n - k + 1) * leak) for k in range(witness.count, 0, -1))
    up = (((witness.n - k) * leak, (k + 1) * clean) for k in range(witness.count, witness.n))
    return is_rare(down, up, alpha)


def mean_holds(count: int, mean: Fraction, alpha: Fraction, side: str = "upper") -> bool:
    """Whether ``mean`` is at least Garwood's limit, P(Poisson(mean) <= count) <= alpha, or at most the lower one."""
    if mean <= 0:
        return side == "lower"
    down = ((k * mean.denominator, mean.numerator) for k in range(count, 0, -1))
    up = ((mean.numerator, (k + 1) * mean.denominator) for k in counting(count))
    return is_rare(down, up, alpha) if side == "upper" else is_rare(up, down, alpha)


def is_rare(down: Ratios, up: Ratios, level: Fraction) -> bool:
    """Whether the terms beyond one of a distribution, and that term, are proved to be at most ``level`` of all.

    Falling ratios ``down`` lead to the end of the tail, and ``up`` to the other end; sums are in units of that term.
    """
    term = tail = UNIT
    for over, under in down:
        term = -(-term * over // under)
        tail += term
        if term.bit_length() > BITS * BITS:
            return False
        if 2 * over <= under and term < 1 << BITS // 4:  # the rest is at most this term
            tail += term
            break
    return reaches(up, tail * (1 - level) / level)


def reaches(ratios: Ratios, needed: Fraction) -> bool:
    """Whether r1 + r1 r2 + ..., with falling ratios, is proved to be at least a number, in units of 2^-BITS."""
    term, total, goal = UNIT, 0, ceil(needed)
    for number, (over, under) in enumerate(ratios):
        if total >= goal or not term or number > MOST_DRAWS:
            break
        if over < under and term * over < (goal - total) * (under - over):
            break  # ratios fall, so the rest is too small
        term = term * over // under
        total += term
    return total >= goal


def anytime_upper_holds(witness: Witness, end: Fraction, alpha: Fraction) -> bool:
    """Whether ``end`` is at least the upper end at any time: the e-value against "p >= end" has reached 1 / alpha.

    The e-value is the likelihood ratio mixed over Beta(1/2, 1/2) below the end (Howard et al. 2021): as a series
    sqrt(end (1 - end)) / a (1 + r1 + r1 r2 + ...) / (2 asin sqrt end), a = count + 1/2, r_j = end (n + j) / (a + j).
    """
    if not 0 < end < 1:
        return end >= 1
    a, b = end.numerator, end.denominator
    root = Fraction(isqrt(a * (b - a) << 2 * BITS), b << BITS)
    if 2 * a > b:
        asin = HALF_PI - asin_of_root(1 - end, above=0)
    else:
        asin = asin_of_root(end, above=1)
    needed = asin * (2 * witness.count + 1) / (alpha * root)
    series = ((2 * a * (witness.n + j), b * (2 * witness.count + 1 + 2 * j)) for j in counting(1))
    return reaches(series, (needed - 1) * UNIT)


def asin_of_root(square: Fraction, above: int) -> Fraction:
    """A bound of asin(s) = s (1 + s^2 / 6 + ...), s^2 up to 1/2; the rest is at most twice the last term."""
    a, b = square.numerator, square.denominator
    root = isqrt((a << 2 * BITS) // b) + above
    power = total = UNIT
    for j in range(1, 2 * BITS):
        power = power * (2 * j - 1) * a // (2 * j * b) + above
        total += power // (2 * j + 1) + above
    return Fraction((total + 2 * power * above) * root, UNIT * UNIT)


def end_holds(side: str, basis: str, stated: Fields, end: Fraction, alpha: Fraction) -> bool:
    """Whether an end of that side and basis is proved by what is stated as its witness."""
    count = _whole(stated, "count")
    n = MOST_DRAWS if basis == "tree" else _whole(stated, "n")
    if not 0 <= count <= n or not 1 <= n <= MOST_DRAWS:
        raise Unverified(f"the witness must have 0 <= count <= n and n from 1 to {MOST_DRAWS:,}")
    if basis == "tree":
        return tree_end_holds(side, count, stated, end, alpha)
    if side == "lower":  # 1 - the upper end of the answers that did not leak
        count, end = n - count, 1 - end
    holds = anytime_upper_holds if basis == "anytime" else upper_end_holds
    return holds(Witness(count, n), end, alpha)


def tree_end_holds(side: str, count: int, stated: Fields, end: Fraction, alpha: Fraction) -> bool:
    """Whether ``count`` sampled leaks of the rest prove an end, beside the masses that leak and that are clean."""
    rate, leak, clean, factor = (_decimal(stated, name) for name in OF_TREE)
    if rate == 0 or factor < 1:
        raise Unverified("the witness must have a rate above 0, and a factor of at least 1")
    rest = (end - leak) * rate  # whose probabilities may be wrong by the factor
    if side == "lower":
        return mean_holds(count, rest * factor, alpha, side)
    return end >= 1 - clean or mean_holds(count, rest / factor, alpha)


def check_claim(claim: object) -> None:
    """Raise `Unverified` unless the claim's bound follows from its witness, and its word from its bound."""
    fields = _object(claim, "the claim")
    added = _object(fields.get("lethe"), "the claim's key lethe")
    side, basis = str(added.get("side")), str(added.get("basis"))
    if side not in COMPARATOR_OF_SIDE or basis not in BASES:
        raise Unverified("no check of this side and basis exists")
    end, alpha = _decimal(added, "bound"), _decimal(added, "alpha")
    if not 0 < alpha <= Fraction(1, 2) or _decimal(added, "confidence") != 1 - alpha:
        raise Unverified("the confidence is not 1 - alpha, with alpha above 0 and at most 0.5")
    stated = _object(added.get("witness"), "the witness")
    questions = _whole({"questions": 1, **stated}, "questions")  # that share the level (Bonferroni)
    method, assumes = BASES[basis]
    if questions > 1:
        method += ", Bonferroni"
    kind = "" if basis == "sampled" else f"{basis}_"
    metric = f"{METRIC_OF_SIDE[side]}{kind}{side}_{added['confidence']}"
    _check_stated(fields, {"metric": metric, "comparator": COMPARATOR_OF_SIDE[side]})
    _check_stated(added, {**ABOUT, "method": method, "assumes": assumes})
    if questions < 1 or not end_holds(side, basis, stated, end, alpha / questions):
        raise Unverified("the bound is tighter than its witness allows")
    threshold = _decimal(fields, "threshold")
    passed = end <= threshold if side == "upper" else end > threshold
    stands = added.get("word") in WORDS_OF[side if passed else f"not {side}"]
    if fields.get("passed") is not passed or not stands:
        raise Unverified("'passed' or the word does not follow from bound and threshold")


def _check_stated(fields: Fields, stated: Fields) -> None:
    for name, value in stated.items():
        if fields.get(name) != value:
            raise Unverified(f"{name} is not {value!r}")


def _object(value: object, name: str) -> Fields:
    if not isinstance(value, dict):
        raise Unverified(f"{name} is no JSON object")
    return value


def _whole(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise Unverified(f"{name} is no whole number")
    return value


def _decimal(fields: Fields, name: str) -> Fraction:
    value = fields.get(name)
    if not isinstance(value, str) or not DECIMAL.fullmatch(value):
        raise Unverified(f"{name} is no decimal string")
    return Fraction(value)


def read(content: bytes) -> Any:
    """JSON without a key that stands twice in an object: of two values other tools may read the other one."""

    def fields_of(pairs: list[tuple[str, object]]) -> Fields:
        if len(dict(pairs)) < len(pairs):
            raise Unverified("a key stands twice in an object")
        return dict(pairs)

    return json.loads(content, object_pairs_hook=fields_of)


def check_statement(value: object) -> list[str]:
    """For each claim of a statement, or of an envelope whose signature is not checked, `VERIFIED` or why it is not."""
    fields = _object(value, "the file")
    if "payload" in fields:
        content = base64.b64decode(str(fields["payload"]), validate=True)
        fields = _object(read(content), "the payload")
    claims = _object(fields.get("predicate"), "the predicate").get("claims")
    if not isinstance(claims, list) or not claims:
        raise Unverified("the statement has no claims")
    found = []
    proved = set()
    for claim in claims:
        try:
            check_claim(claim)
        except Unverified as error:
            found.append(f"not verified: {error}")
        else:
            found.append(VERIFIED)
            added = claim["lethe"]
            proved.add((added["side"], added["word"], Fraction(claim["threshold"])))
    for side, word, threshold in proved:
        if (side, word) == ("upper", "leaks") and ("lower", "leaks", threshold) not in proved:
            return ["not verified: no claim proves the word leaks"] * len(claims)
    return found


def check_certificate(value: Any) -> list[str]:
    """For each question whether the e-value of all auditors' counts has reached 1 / alpha against the claim's tau."""
    claim = value["claim"]
    tau, alpha = (Fraction(repr(float(claim[name]))) for name in ("tau", "alpha"))
    if value["verdict"] != "certified" or not claim["questions"] or not 0 < alpha <= 0.5:
        raise Unverified("the certificate certifies nothing, or at a false alpha")
    if claim["retrain"] is not None:
        raise Unverified("no check of a certificate beside Retrain exists")
    found = []
    for place in range(len(claim["questions"])):
        count = sum(audit["leaks"][place] for audit in value["auditors"])
        n = sum(audit["draws"][place] for audit in value["auditors"])
        is_proved = end_holds("upper", "anytime", {"count": count, "n": n}, tau, alpha)
        found.append(VERIFIED if is_proved else "not verified: the e-value is too small")
    return found


def main(files: list[str]) -> int:
    """Print a line for each claim; the exit status is 0 only where every claim of every file is verified."""
    unverified = not files
    for file in files:
        try:
            value = read(Path(file).read_bytes())
            is_certificate = (
                isinstance(value, dict) and value.get("schema") == "lethe-certificate/3"
            )
            found = check_certificate(value) if is_certificate else check_statement(value)
        except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
            found = [f"not verified: {type(error).__name__}: {error}"]
        for number, result in enumerate(found, start=1):
            print(f"{file}, claim {number}: {result}")
        unverified = unverified or set(found) != {VERIFIED}
    return int(unverified)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
