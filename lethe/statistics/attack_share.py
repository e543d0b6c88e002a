"""The share of a population of attacks that succeed, with ends that hold at any time.

Attacks are drawn independently from a recipe, and each is tried on one model. It succeeds if it brings some question above
a tolerance. Whether it does is not seen but proved, from sampled answers, so each attack is one of three:

    leaks   the mean over the questions of the e-values for "above the tolerance" has reached 1/e;
    fails   of every question, the e-value against "above the tolerance" has reached 1/e;
    open    neither: unproved is not harmless.

A level of alpha is halved. Half is shared by the attacks that are planned: e = alpha / (2 planned). So with probability
1 - alpha / 2 no attack of all that are planned is called *fails* though it succeeds: a question above the tolerance must
then have had its own e-process reach 1/e (Ville 1939). Then the attacks that are not *fails* are at least those that
succeed. The other half is for the share: the number of successes among n independent attacks is binomial, and
`lethe.statistics.anytime` bounds its probability at every n at once. The upper end grows with the count, so the count of
attacks that are not *fails* gives an upper end too. The attacks that are *leaks* give the lower end likewise. Each end
holds with probability 1 - alpha at any time, so the population may end as soon as either end passes the goal.

Assumes: attacks drawn independently from the recipe, and what `lethe.statistics.anytime` assumes of the answers of each
attacked model. No attack needs answers that are independent of another attack's.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lethe.statistics import anytime
from lethe.statistics.anytime import AnytimeEnds, Counts
from lethe.statistics.checks import check, check_alpha, check_count, check_share
from lethe.statistics.search import fewest

Outcome = Literal["leaks", "fails", "open"]
End = Literal["above", "below", "capped"]
ROOM = 2  # a plan has room for so many attacks that are not proved to fail
METHOD = "mixture over Beta(1/2, 1/2), at every number of attacks at once"
ASSUMES = "attacks drawn independently from the recipe, and independent answers to each question of an attacked model"


def level_of_attack(alpha: float, planned: int) -> float:
    """Return the level at which a single attack is proved to leak or to fail.

    >>> level_of_attack(0.05, 500)
    5e-05
    """
    check_alpha(alpha)
    check_count("planned", planned)
    return alpha / (2 * planned)


def attacks_needed(goal: float, alpha: float, successes: int = 0) -> int:
    """Return the fewest attacks after which the share is at most ``goal``, if ``successes`` of them are not proved to fail.

    >>> attacks_needed(0.01, 0.05), attacks_needed(0.01, 0.05, successes=ROOM)
    (455, 977)
    """
    check_share("goal", goal)
    check_alpha(alpha)
    check(successes >= 0, "successes", successes, "a whole number of at least 0")

    def is_enough(attacks: int) -> bool:
        return Successes(0, successes, attacks, goal, alpha).ended == "below"

    return fewest(is_enough, too_few=successes)


def planned_attacks(draws: int | Literal["auto"], goal: float, alpha: float) -> int:
    """Return the most attacks that are tried: ``draws``, or as many as decide where `ROOM` of them are not proved to fail."""
    return attacks_needed(goal, alpha, ROOM) if draws == "auto" else draws


@dataclass(frozen=True)
class Successes:
    """Of ``n`` attacks, how many are proved to leak (``proved``) and how many are ``open``; the rest are proved to fail.

    Parameters
    ----------
    proved, open, n
        Whole numbers of at least 0; ``proved`` and ``open`` together are at most ``n``.
    goal
        The share under test, in (0, 1).
    alpha
        The error probability of each end, that of the attacks' own proofs included.
    """

    proved: int
    open: int
    n: int
    goal: float
    alpha: float

    def __post_init__(self) -> None:
        check_share("goal", self.goal)
        check_alpha(self.alpha)

    @cached_property
    def _counts(self) -> Counts:
        """An attack that is open is one without a judgement: it may have succeeded, or failed."""
        return Counts(self.proved, self.n, missing=self.open)

    @cached_property
    def _ends(self) -> AnytimeEnds:
        return anytime.ends(self._counts, (), self.alpha / 2)

    @property
    def lower(self) -> float:
        """The least share of the recipe's attacks that can succeed."""
        return self._ends.lower

    @property
    def upper(self) -> float:
        """The largest share of the recipe's attacks that can succeed."""
        return self._ends.upper

    @property
    def ended(self) -> Literal["above", "below"] | None:
        """Whether the share is proved to be above the goal, or at most the goal; None while neither is."""
        needed = math.log(2 / self.alpha)
        if anytime.is_reached(anytime.log_e_leaks(self._counts, (), self.goal), needed):
            return "above"
        if anytime.is_reached(anytime.log_e_forgot(self._counts, (), self.goal), needed):
            return "below"
        return None
