"""The learned membership score: what it separates, and the level of a twin test that it decides."""

import numpy as np
import pytest

from lethe.models.likelihood import AnswerTokens
from lethe.scoring.learned import Discriminant, statistics_of
from lethe.statistics.twins import WAYS, score_table, threshold

SECRETS = 10
CANDIDATES = 5


def answers(rng, count, lift=0.0):
    """Answers of eight tokens whose log-probabilities are ``lift`` nats above those of others."""
    made = []
    for _ in range(count):
        expected = rng.normal(-2, 0.5, 8)
        log_probs = np.minimum(expected + rng.normal(lift, 1, 8), -0.001)
        made.append(AnswerTokens(log_probs, expected, np.full(8, 1.0), log_probs > -1))
    return made


def scores(discriminant, tokens):
    return np.array([discriminant.score(answer) for answer in tokens])


def test_members_score_higher_than_rows_that_were_not_learned():
    rng = np.random.default_rng(0)
    discriminant = Discriminant.learned(answers(rng, 60, lift=1.0), answers(rng, 60))

    inside = scores(discriminant, answers(rng, 60, lift=1.0))
    outside = scores(discriminant, answers(rng, 60))

    assert (inside[:, None] > outside).mean() > 0.9


def test_a_statistic_that_never_varies_has_no_weight():
    rng = np.random.default_rng(0)
    discriminant = Discriminant.learned(answers(rng, 20, lift=1.0), answers(rng, 20))

    spread = len(statistics_of(answers(rng, 1)[0])) - 2
    assert discriminant.weights[spread] == pytest.approx(0)


@pytest.mark.seconds
def test_a_twin_test_by_a_learned_score_keeps_its_level_on_models_that_cannot_know():
    """The discriminant is learned anew in each run: whatever it learned, the draw of the true candidate is not in it."""
    rng = np.random.default_rng(1)
    runs = 200
    level = 0.05
    ranks = np.empty((runs, SECRETS), dtype=int)
    for run in range(runs):
        discriminant = Discriminant.learned(answers(rng, 12, lift=1.0), answers(rng, 12))
        of_candidates = scores(discriminant, answers(rng, SECRETS * CANDIDATES))
        of_candidates = of_candidates.reshape(SECRETS, CANDIDATES)
        true = rng.integers(0, CANDIDATES, SECRETS)
        of_true = of_candidates[np.arange(SECRETS), true]
        ranks[run] = 1 + (of_candidates > of_true[:, None]).sum(axis=1)

    rejected = np.zeros(runs, dtype=bool)
    for way in WAYS:
        totals = score_table(CANDIDATES, way)[ranks - 1].sum(axis=1)
        rejected |= totals >= threshold([CANDIDATES] * SECRETS, level / 3, way)
    assert rejected.mean() <= level + 3 * np.sqrt(level * (1 - level) / runs)
