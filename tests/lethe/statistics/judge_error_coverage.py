"""How often bounds on judged answers miss the truth, with the judge's error included and ignored.

``python -m tests.lethe.statistics.judge_error_coverage`` prints the table, the tests run a small part of it.
"""

import sys
from collections.abc import Iterator

import numpy as np

from lethe.statistics.counts import at_least_once, rate_bounds
from lethe.statistics.judge_error import Calibration, JudgeError
from lethe.statistics.leak_rates import Rate
from tests.lethe.statistics.draws import Shares, as_expected, shares

ERRORS = (0.0, 0.05, 0.2)  # of the judge, on leaks and on clean answers alike
RATES = (0.0, 0.01, 0.1, 0.5, 0.95)
QUESTIONS = np.repeat([0.3, 0.02, 0.0], [2, 8, 10])  # one run's leak probabilities, where many are bounded
KS = (1, 10, 1000)
ROUNDING = 1e-9  # a bound that equals the truth does not miss it


class World:
    """Answers, labels and verdicts at a known leak probability and a known error of the judge.

    A verdict is lost with probability ``lost`` on a leak and half of that on a clean answer.
    """

    def __init__(self, error: float, seed: int, labelled: int = 100, lost: float = 0.0):
        self.error, self.labelled, self.lost = error, labelled, (lost, lost / 2)
        self.rng = np.random.default_rng([seed, round(1000 * error), labelled])

    def calibration(self) -> Calibration:
        leaks_called, leaks_lost = self._judged(self.labelled, 1 - self.error, self.lost[0])
        clean_called, clean_lost = self._judged(self.labelled, self.error, self.lost[1])
        return Calibration(
            self.labelled, int(leaks_called), self.labelled, int(clean_called), int(leaks_lost), int(clean_lost)
        )

    def answers(self, rates: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(answers called a leak, answers without a verdict) of n for each rate."""
        leaks = self.rng.binomial(n, rates)
        called, lost = self._judged(leaks, 1 - self.error, self.lost[0])
        falsely, lost_too = self._judged(n - leaks, self.error, self.lost[1])
        return called + falsely, lost + lost_too

    def _judged(self, answers: np.ndarray | int, called: float, lost: float) -> tuple[np.ndarray, np.ndarray]:
        gone = self.rng.binomial(answers, lost)
        return self.rng.binomial(answers - gone, called), np.asarray(gone)


def _missed(truth: np.ndarray | float, lower: np.ndarray, upper: np.ndarray) -> tuple[bool, bool]:
    return bool((lower > truth + ROUNDING).any()), bool((upper < truth - ROUNDING).any())


def one_question(
    error: float, rate: float, n: int, alpha: float, runs: int, seed: int, labelled: int = 100, lost: float = 0.0
) -> Shares:
    """Share of runs in which (lower, upper) miss the rate: with the judge's error, without it, with its estimate as exact."""
    world = World(error, seed, labelled, lost)

    def run():
        judge, (called, missing) = world.calibration(), world.answers(np.array([rate]), n)
        found = Rate.of(called, n, missing, judge).each(alpha)
        yield "judged", _missed(rate, found.lower, found.upper)
        naive = rate_bounds(called, n, alpha, missing)
        yield "naive", _missed(rate, *naive)
        point = JudgeError((judge.sensitivity,) * 2, (judge.false_positive,) * 2, alpha)
        yield "as measured", _missed(rate, *point.carry(*naive))

    return shares(run, runs)


def many_questions(error: float, n: int, alpha: float, runs: int, seed: int, lost: float = 0.0) -> Shares:
    """The misses of each claim over twenty questions; leak@k misses if its band misses for any k."""
    world, truth = World(error, seed, labelled=400, lost=lost), at_least_once(QUESTIONS, KS)

    def run():
        judge, (called, missing) = world.calibration(), world.answers(QUESTIONS, n)
        rate, plain = (Rate.of(called, n, missing, one) for one in (judge, None))
        fits = rate.fits(alpha).all()
        yield "flagged", (not fits, False)
        if fits:
            pool, worst, mean, naive = (
                rate.average(alpha),
                rate.worst(alpha, KS),
                rate.mean(alpha, KS),
                plain.mean(alpha, KS),
            )
            yield "average", _missed(QUESTIONS.mean(), pool.lower, pool.upper)
            yield "worst, leak@k", _missed(truth.max(axis=0), worst.lower, worst.upper)
            yield "mean, leak@k", _missed(truth.mean(axis=0), mean.lower, mean.upper)
            yield "naive mean", _missed(truth.mean(axis=0), naive.lower, naive.upper)

    return shares(run, runs)


# Not bounds on the truth: the simulation must expose them.
CONTROLS = ("naive", "as measured", "naive mean")


def table(alpha: float, runs: int, seed: int = 1) -> Iterator[tuple[str, Shares]]:
    for error in ERRORS:
        for rate in RATES:
            for labelled in (30, 400):
                title = f"judge errs {error:3.0%}, rate {rate:4.0%}, {labelled} + {labelled} labels"
                yield title, one_question(error, rate, 1024, alpha, runs, seed, labelled)
        lost = f"judge errs {error:3.0%}, rate  10%, a tenth of leaks unjudged"
        yield lost, one_question(error, 0.1, 1024, alpha, runs, seed, lost=0.1)
        yield f"judge errs {error:3.0%}, 20 questions", many_questions(error, 256, alpha, runs, seed)


def main(alpha: float = 0.05, runs: int = 2000) -> int:
    return int(not as_expected(table(alpha, runs), alpha, runs, CONTROLS))


if __name__ == "__main__":
    sys.exit(main())
