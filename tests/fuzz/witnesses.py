"""Random claims for the checker of statements, which must verify no end that whole numbers prove too tight.

Nothing but `lethe.certificates.check` and the integers of the standard library is needed. The judge of a case computes the
tail of a binomial distribution as a whole number, of a Poisson distribution from enclosures of e^mean, and the e-value at any
time by the recurrences of the incomplete Beta function. The checker sums other series. A case whose enclosures do not
decide is counted as undecided. Of every eighth claim a field is broken: such a claim must be not verified.
"""

import random
import time
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import comb, isqrt

from lethe.certificates import check

MOST = 60  # answers of a witness
MILLION = 10**6
BITS = 640  # of the judge's enclosures
UNIT = 1 << BITS
RATES = (1, 10, 1000)
AT_THE_EDGE = 0.002  # share of cases with ends within a thousandth of 0 and 1, whose sums have up to a million terms
IMPOSSIBLE = 0.1  # share of cases whose masses may be more than 1 in all
BROKEN = (None, "nine", -1, 1.5, True, [], {}, "1e9", "0.5 ", "nan")
SIDES = ("upper", "lower")
BASES = ("sampled", "anytime", "tree")


@dataclass(frozen=True)
class Case:
    """An end in millionths of a witness, at a level in millionths; ``leak`` and ``clean`` are masses in millionths."""

    basis: str
    side: str
    count: int
    n: int
    end: int
    alpha: int
    questions: int
    rate: int
    leak: int
    clean: int

    def as_claim(self) -> dict[str, object]:
        alpha = decimal(self.alpha)
        confidence = decimal(MILLION - self.alpha)
        is_tree = self.basis == "tree"
        witness: dict[str, object] = {"count": self.count}
        if is_tree:
            witness |= {"rate": str(self.rate), "leak": decimal(self.leak)}
            witness |= {"clean": decimal(self.clean), "factor": "1"}
        else:
            witness["n"] = self.n
        method, assumes = check.BASES[self.basis]
        if self.questions > 1:
            witness["questions"] = self.questions
            method += ", Bonferroni"
        kind = "" if self.basis == "sampled" else f"{self.basis}_"
        is_upper = self.side == "upper"
        threshold = self.end if is_upper else self.end - 1  # so that the claim passes
        added = {
            "word": "bounded" if is_upper else "leaks",
            "basis": self.basis,
            "side": self.side,
            "bound": decimal(self.end),
            "alpha": alpha,
            "confidence": confidence,
            "assumes": assumes,
            "method": method,
            "witness": witness,
            **check.ABOUT,
        }
        return {
            "metric": f"{check.METRIC_OF_SIDE[self.side]}{kind}{self.side}_{confidence}",
            "comparator": check.COMPARATOR_OF_SIDE[self.side],
            "threshold": decimal(threshold),
            "passed": True,
            "lethe": added,
        }


def decimal(millionths: int) -> str:
    return f"{millionths // MILLION}.{millionths % MILLION:06d}"


def case_of(chance: random.Random) -> Case:
    """A witness with an end near the true one, where a fault would show."""
    basis = chance.choice(BASES)
    side = chance.choice(SIDES)
    n = chance.randint(1, MOST)
    count = chance.randint(0, n)
    rate = chance.choice(RATES)
    leak = chance.randrange(MILLION // 2)
    clean = chance.randrange(MILLION - leak)
    if chance.random() < IMPOSSIBLE:
        clean = chance.randrange(MILLION)
    if basis == "tree":
        spread = isqrt(count + 1) * MILLION // rate
        middle = leak + count * MILLION // rate
    else:
        spread = isqrt((count + 1) * (n - count + 1) * MILLION**2 // n**3)
        middle = count * MILLION // n
    away = chance.randint(-1000, 5000) * spread // 1000
    end = middle + away if side == "upper" else middle - away
    edge = 1 if chance.random() < AT_THE_EDGE else 1000
    return Case(
        basis=basis,
        side=side,
        count=count,
        n=n,
        end=min(max(end, edge), MILLION - edge),
        alpha=chance.randrange(1, MILLION // 2),
        questions=chance.choice((1, 1, 2, 30)),
        rate=rate,
        leak=leak,
        clean=clean,
    )


def is_false(case: Case) -> bool | None:
    """Whether whole numbers prove that the end is too tight; None where the enclosures do not decide."""
    if case.basis == "tree":
        return tree_is_false(case)
    count, end = case.count, case.end
    if case.side == "lower":
        count = case.n - count
        end = MILLION - end
    goal = case.alpha, MILLION * case.questions
    if case.basis == "anytime":
        return anytime_is_false(count, case.n, end, *goal)
    return binomial_is_false(count, case.n, end, *goal)


def binomial_is_false(count: int, n: int, end: int, over: int, under: int) -> bool:
    """Whether P(Binomial(n, end) <= count) > over / under."""
    tail = 0
    for k in range(count + 1):
        tail += comb(n, k) * end**k * (MILLION - end) ** (n - k)
    return tail * under > over * MILLION**n


def tree_is_false(case: Case) -> bool | None:
    """Whether a tail of a Poisson distribution with the mean of the rest exceeds the level, or the masses are impossible."""
    if case.leak + case.clean > MILLION + 1:  # by more than the rounding of their sums
        return True
    if case.side == "lower" and case.end > MILLION - case.clean:
        return True
    if case.side == "upper" and case.end >= MILLION - case.clean:
        return False
    mean = Fraction((case.end - case.leak) * case.rate, MILLION)
    if mean <= 0:
        return case.side == "upper"
    low, high = exponential(mean)
    term = Fraction(UNIT)
    below = term if case.count or case.side == "upper" else Fraction(0)
    last = case.count if case.side == "upper" else case.count - 1
    for k in range(1, last + 1):
        term = term * mean / k
        below += term
    level = Fraction(case.alpha, MILLION * case.questions)
    # tails in units of e^mean: those up to the count, or all others
    limits = (
        (level * high, level * low)
        if case.side == "upper"
        else ((1 - level) * low, (1 - level) * high)
    )
    if case.side == "upper":
        return True if below > limits[0] else False if below <= limits[1] else None
    return True if below < limits[0] else False if below >= limits[1] else None


def exponential(mean: Fraction) -> tuple[int, int]:
    """Both ends of e^mean in units of 2^-BITS."""
    low = high = term_low = term_high = UNIT
    k = 0
    while term_high > 1 or k < 2 * mean:
        k += 1
        term_low = term_low * mean.numerator // (mean.denominator * k)
        term_high = -(-term_high * mean.numerator // (mean.denominator * k))
        low += term_low
        high += term_high
    return low, high + 2 * term_high  # the ratio of further terms is below 1/2


def anytime_is_false(count: int, n: int, end: int, over: int, under: int) -> bool | None:
    """Whether the e-value against "p >= end" is below under / over.

    With A = 2 asin sqrt c and S = sqrt(c (1 - c)), the integral of p^(a-1) (1-p)^(b-1) up to c is P A + Q S: P = 1 and Q = 0
    at a = b = 1/2, and a step of a (of b) multiplies by a (by b), takes away (adds) c^a (1-c)^b, and divides by a + b. The
    e-value is the integral over A and over the likelihood.
    """
    share = UNIT * end // MILLION
    rest = UNIT * (MILLION - end) // MILLION
    of_arc = UNIT
    of_root = 0
    likelihood = UNIT
    a = b = 1  # halves
    for step in range(n):
        power = likelihood
        if step < n - count:
            of_arc = of_arc * b // (a + b)
            of_root = (of_root * b + 2 * power) // (a + b)
            likelihood = likelihood * rest >> BITS
            b += 2
        else:
            of_arc = of_arc * a // (a + b)
            of_root = (of_root * a - 2 * power) // (a + b)
            likelihood = likelihood * share >> BITS
            a += 2
    root = isqrt(share * rest)
    arc = arc_of(share, rest)
    value = of_arc + of_root * root // arc
    room = 64 * (n + BITS)  # units that the roundings of all steps may have cost, tenfold and more
    if (value + room) * over < (likelihood - room) * under:
        return True
    return False if (value - room) * over >= (likelihood + room) * under else None


def arc_of(share: int, rest: int) -> int:
    """2 asin sqrt c in units, by the series of asin below 1/2 and of the rest above."""
    if share > rest:
        return PI - arc_of(rest, share)
    power = total = UNIT
    for j in range(1, 2 * BITS):
        power = (power * share >> BITS) * (2 * j - 1) // (2 * j)
        if not power:
            break
        total += power // (2 * j + 1)
    return 2 * (isqrt(share << BITS) * total >> BITS)


def machin() -> int:
    """Pi in units (Machin 1706: 16 arctan 1/5 - 4 arctan 1/239)."""
    total = 0
    for times, by in ((16, 5), (-4, 239)):
        power = UNIT // by
        for j in range(BITS):
            total += times * (-1) ** j * power // (2 * j + 1)
            power //= by * by
    return total


PI = machin()


def said_of(claim: dict[str, object]) -> bool:
    try:
        check.check_claim(claim)
    except check.BROKEN:
        return False
    return True


def broken(claim: dict[str, object], chance: random.Random) -> dict[str, object]:
    """The claim with another value of one of its keys, at any depth."""
    added = dict(claim["lethe"])  # type: ignore[call-overload]
    added["witness"] = dict(added["witness"])
    whole = claim | {"lethe": added}
    place = chance.choice((whole, added, added["witness"]))
    name = chance.choice(sorted(place))
    values = [value for value in BROKEN if value != place[name]]
    place[name] = chance.choice(values)
    return whole


def outcome(seed: int, number: int) -> str:
    """What became of a case, in a word; "falsehood" is a fault of the checker."""
    chance = random.Random(f"{seed} {number}")
    case = case_of(chance)
    claim = case.as_claim()
    if number % 8 == 7:
        return "falsehood" if said_of(broken(claim, chance)) else "broken, not verified"
    is_verified = said_of(claim)
    judged = is_false(case)
    if judged is None:
        return "undecided"
    if judged:
        return "falsehood" if is_verified else "false, not verified"
    return "true, verified" if is_verified else "true, not verified"


def run(first: int, cases: int, seed: int, minutes: float, only: int | None) -> int:
    """Try cases until all are tried or the minutes are over; print how many came out how, and return the exit status."""
    numbers = range(first, first + cases) if only is None else range(only, only + 1)
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    for number in numbers:
        said = outcome(seed, number)
        outcomes[said] += 1
        if said == "falsehood":
            print(f"case {number} of seed {seed}: verified, though false")
        if time.monotonic() - began > 60 * minutes:
            break
    tried = sum(outcomes.values())
    seconds = time.monotonic() - began
    print(
        f"{tried:,} witnesses in {seconds:.0f} s ({tried / max(seconds, 1e-9):,.0f} a second), seed {seed}:"
    )
    for said, count in sorted(outcomes.items()):
        print(f"  {said}: {count:,}")
    print(f"  falsehoods accepted: {outcomes['falsehood']:,}")
    return int(outcomes["falsehood"] > 0)
