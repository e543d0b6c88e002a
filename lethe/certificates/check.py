"""Check the bounds of a statement or a certificate from their witnesses, by whole numbers alone.

It imports the standard library alone: copy it out of the package, read it, and run `python check.py FILE...`. A bound is
*verified* where the inequality that defines it is proved by sums that whole numbers enclose, rounded outward. What is
missing, of another form, of an unknown method, too large or undecided is *not verified*. The file checks no signature, and
cannot know whether counts and masses are those of the model, nor whether auditors differ beyond what a certificate says.
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
BROKEN = Exception  # whatever a broken file makes Python raise: nothing of it is verified
Ratios = Iterable[tuple[int, int]]  # of neighbouring terms of a sum, as fractions
HALF_PI = Fraction("3.1415926535897932385") / 2  # above: pi is 3.14159265358979323846...
DECIMAL = re.compile(r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,40})?")  # an exponent could be of any size
SERVED = re.compile(r"^as served between [0-9TZ:+.-]+ and [0-9TZ:+.-]+, ")  # before what it assumes
METRIC_OF_SIDE = {"upper": "leak_rate_worst_question_", "lower": "leak_rate_some_question_"}
COMPARATOR_OF_SIDE = {"upper": "<=", "lower": ">"}
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


@dataclass(frozen=True)
class Witness:
    """How many of ``n`` answers leaked."""

    count: int
    n: int

    def __post_init__(self) -> None:
        if {type(self.count), type(self.n)} != {int} or not 0 <= self.count <= self.n <= MOST_DRAWS:
            raise ValueError(f"no whole numbers with 0 <= count <= n <= {MOST_DRAWS:,}")

    def slope(self, p: Fraction) -> Fraction:
        """The derivative of ln p^count (1 - p)^(n - count)."""
        return (self.count / p if self.count else 0) - (self.n - self.count) / (1 - p)

    def mixture_ratio(self, p: Fraction) -> Fraction:
        """At most the likelihood mixed over Beta(1/2, 1/2) over that at ``p``: by answers (j + 1/2) / ((i + 1) p)."""
        value, exponent = UNIT, -BITS
        for i in range(self.n):
            j, share = (i, p) if i < self.count else (i - self.count, 1 - p)
            value = value * (2 * j + 1) * share.denominator // (2 * (i + 1) * share.numerator)
            shift = value.bit_length() - 2 * BITS
            value = value >> shift if shift > 0 else value << -shift
            exponent += shift
        return value * Fraction(2) ** exponent


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
        is_short = over < under and term * over < (goal - total) * (under - over)  # as ratios fall
        if total >= goal or not term or is_short or number > MOST_DRAWS:
            break
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
    asin = asin_of_root(end, above=1) if 2 * a <= b else HALF_PI - asin_of_root(1 - end, above=0)
    needed = asin * (2 * witness.count + 1) / (alpha * root)
    series = ((2 * a * (witness.n + j), b * (2 * witness.count + 1 + 2 * j)) for j in counting(1))
    return reaches(series, (needed - 1) * UNIT)


def e_beyond(model: Witness, retrain: Witness, tau: Fraction) -> Fraction:
    """At most the e-value against "p >= q + tau": both mixtures over the largest likelihood (Wasserman et al. 2020).

    Unless the shares are such, that has p = q + tau, where ln is concave: it rises by at most slope times width above a q.
    """
    p, q = (Fraction(drawn.count, max(drawn.n, 1)) for drawn in (model, retrain))
    if p - q >= tau:
        return Fraction(0)
    q, width = Fraction(0), 1 - tau
    for _ in range(BITS):
        width /= 2
        if model.slope(q + width + tau) + retrain.slope(q + width) > 0:
            q += width
    rise = width * (model.slope(q + tau) + retrain.slope(q))  # exp(t) <= 1 / (1 - t)
    return min(1 - rise, Fraction(1)) * model.mixture_ratio(q + tau) * retrain.mixture_ratio(q)


def asin_of_root(square: Fraction, above: int) -> Fraction:
    """A bound of asin(s) = s (1 + s^2 / 6 + ...), s^2 up to 1/2; the rest is at most twice the last term."""
    a, b = square.numerator, square.denominator
    root = isqrt((a << 2 * BITS) // b) + above
    power = total = UNIT
    for j in range(1, 2 * BITS):
        power = power * (2 * j - 1) * a // (2 * j * b) + above
        total += power // (2 * j + 1) + above
    return Fraction((total + 2 * power * above) * root, UNIT * UNIT)


def end_holds(side: str, basis: str, stated: Any, end: Fraction, alpha: Fraction) -> bool:
    """Whether an end of that side and basis is proved by what is stated as its witness."""
    witness = Witness(stated.get("count"), MOST_DRAWS if basis == "tree" else stated.get("n"))
    if basis == "tree":
        return tree_end_holds(side, witness.count, stated, end, alpha)
    if side == "lower":  # 1 - the upper end of the answers that did not leak
        witness, end = Witness(witness.n - witness.count, witness.n), 1 - end
    holds = anytime_upper_holds if basis == "anytime" else upper_end_holds
    return holds(witness, end, alpha)


def tree_end_holds(side: str, count: int, stated: Any, end: Fraction, alpha: Fraction) -> bool:
    """Whether ``count`` sampled leaks of the rest prove an end, beside the masses that leak and that are clean."""
    rate, leak, clean, factor = (_decimal(stated, n) for n in ("rate", "leak", "clean", "factor"))
    if rate == 0 or factor < 1 or leak / factor + clean > 1 + Fraction(1, 10**6):  # sums of floats
        raise ValueError("the rate must be above 0, the factor at least 1, the masses at most 1")
    rest = (end - leak) * rate  # whose probabilities may be wrong by the factor
    if side == "lower":
        return end <= 1 - clean and mean_holds(count, rest * factor, alpha, side)
    return end >= 1 - clean or mean_holds(count, rest / factor, alpha)


def check_claim(claim: Any) -> None:
    """Raise an error unless the claim's bound follows from its witness, and its word from its bound."""
    added = claim["lethe"]
    side, basis = str(added.get("side")), str(added.get("basis"))
    if claim["comparator"] != COMPARATOR_OF_SIDE[side] or basis not in BASES:
        raise ValueError("no check of this comparator, side and basis exists")
    end, alpha = _decimal(added, "bound"), _decimal(added, "alpha")
    questions = added["witness"].get("questions", 1)  # that share the level (Bonferroni)
    is_level = 0 < alpha <= Fraction(1, 2) and _decimal(added, "confidence") == 1 - alpha
    if not is_level or type(questions) is not int or questions < 1:
        raise ValueError("the level is no alpha of at most 0.5 that whole questions share")
    method, assumes = BASES[basis]
    if questions > 1:
        method += ", Bonferroni"
    kind = "" if basis == "sampled" else f"{basis}_"
    metric = f"{METRIC_OF_SIDE[side]}{kind}{side}_{added['confidence']}"
    needed = {**ABOUT, "method": method, "assumes": assumes, "metric": metric}
    assumed = SERVED.sub("", str(added.get("assumes")), count=1)
    stated = {**added, "assumes": assumed, "metric": claim["metric"]}
    for name, value in needed.items():
        if stated.get(name) != value or type(stated[name]) is not type(value):
            raise ValueError(f"{name} is not {value!r}")
    if end > 1 or not end_holds(side, basis, added["witness"], end, alpha / questions):
        raise ValueError("the bound is tighter than its witness allows")
    threshold = _decimal(claim, "threshold")
    passed = end <= threshold if side == "upper" else end > threshold
    words = {"upper": ["bounded"], "lower": ["leaks"]} if passed else {"upper": ["leaks", "open"]}
    if claim.get("passed") is not passed or added.get("word") not in words.get(side, []):
        raise ValueError("'passed' or the word does not follow from bound and threshold")


def _decimal(fields: Any, name: str) -> Fraction:
    value = fields.get(name)
    if not isinstance(value, str) or not DECIMAL.fullmatch(value):
        raise ValueError(f"{name} is no decimal string")
    return Fraction(value)


def once(pairs: list[tuple[str, Any]]) -> Any:
    """A JSON object without a key that stands twice: of two values other tools may read the other one."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice in an object")
    return dict(pairs)


def check_statement(value: Any) -> list[str]:
    """For each claim of a statement, or of an envelope whose signature is not checked, `VERIFIED` or why it is not."""
    if "payload" in value:
        content = base64.b64decode(str(value["payload"]), validate=True)
        value = json.loads(content, object_pairs_hook=once)
    claims = value["predicate"]["claims"]
    if not isinstance(claims, list) or not claims:
        raise ValueError("the statement has no claims")
    found, proved = [], set()
    for claim in claims:
        try:
            check_claim(claim)
            added = claim["lethe"]
            proved.add((added["side"], added["word"], Fraction(claim["threshold"])))
            found.append(VERIFIED)
        except BROKEN as error:
            found.append(f"not verified: {error}")
    for side, word, threshold in proved:
        if (side, word) == ("upper", "leaks") and ("lower", "leaks", threshold) not in proved:
            return ["not verified: no claim proves the word leaks"] * len(claims)
    return found


def check_certificate(value: Any) -> list[str]:
    """For each question whether the e-value of all auditors' counts has reached 1 / alpha against the claim's tau."""
    claim, found = value["claim"], []
    tau, alpha = (Fraction(f"{claim[name]!r}") for name in ("tau", "alpha"))  # of a text: not read
    is_joined = value["verdict"] == "certified" and value["homogeneity"]["holds"] is True
    if not is_joined or not 0 < tau < 1 or not 0 < alpha <= 0.5:
        raise ValueError("the certificate certifies nothing, or at a false tau or alpha")
    lists = claim["questions"], [int(audit["seed"]) for audit in value["auditors"]]
    if any(type(ids) is not list or len(set(ids)) < max(len(ids), 1) for ids in lists):
        raise ValueError("questions and seeds must be lists in which nothing stands twice")
    for place in range(len(claim["questions"])):
        model = _joined(value["auditors"], "", place)
        level = alpha
        if claim["retrain"] is not None:  # the mean of two e-values must reach 1 / alpha
            beyond = e_beyond(model, _joined(value["auditors"], "retrain_", place), tau)
            level = 1 / max(2 / alpha - beyond, Fraction(1, UNIT))
        is_proved = anytime_upper_holds(model, tau, level)
        found.append(VERIFIED if is_proved else "not verified: the e-value is too small")
    return found


def _joined(audits: Any, of: str, place: int) -> Witness:
    """The counts of all auditors; an audit without draws of Retrain has empty lists of them."""
    drawn = [audit for audit in audits if not of or audit[f"{of}draws"]]
    counts = [Witness(audit[f"{of}leaks"][place], audit[f"{of}draws"][place]) for audit in drawn]
    return Witness(sum(witness.count for witness in counts), sum(witness.n for witness in counts))


def main(files: list[str]) -> int:
    """Print a line for each claim; the exit status is 0 only where every claim of every file is verified."""
    unverified = not files
    for file in files:
        try:
            value = json.loads(Path(file).read_bytes(), object_pairs_hook=once)
            is_certificate = value.get("schema") == "lethe-certificate/3"
            found = check_certificate(value) if is_certificate else check_statement(value)
        except BROKEN as error:
            found = [f"not verified: {type(error).__name__}: {error}"]
        for number, result in enumerate(found, start=1):
            print(f"{file}, claim {number}: {result}")
        unverified = unverified or set(found) != {VERIFIED}
    return int(unverified)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
