"""Whether labelled draws can have been chosen at random: two tests whose level holds at any size,
without an asymptotic step.

`uniform_p_value` is about the questions: each label chose one of m questions uniformly.
`blind_p_value` is about the draws within the questions: they were chosen without sight of a 0/1
verdict. A small value refutes the choice; a large one proves nothing, because a person can choose
badly in ways that counts do not show.
"""

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import check
from lethe.statistics.checks import check_count

# Below this p-value a choice is called not random: one false alarm in a million honest label files.
REFUTED = 1e-6
# Symmetric Dirichlet laws, from "nearly all of one question" to "nearly uniform".
CONCENTRATIONS = 4.0 ** np.arange(-4, 6)


def uniform_p_value(counts: ArrayLike) -> float:
    """A p-value of "each draw chose one of the m questions uniformly", from the ``counts`` (m,) of
    draws of each question.

    Under the null a sequence of N draws has probability m^-N. The average over `CONCENTRATIONS` of
    its probability under the Dirichlet-multinomial law is a probability of sequences too, so the
    ratio of the two has mean 1, and reaches 1 / t with probability at most t (Markov's inequality).
    The inverse of the ratio is therefore a p-value at every m and N. It is at most
    `len(CONCENTRATIONS)` times the inverse likelihood ratio of the best law, which for N draws of
    one question nears the exact multinomial p-value m^(1 - N). The ratio is that of Good (1967), "A
    Bayesian significance test for multinomial distributions".

    Choosing a question uniformly and without replacement gives counts that are more even, and no
    small p-value; so do questions whose draws are all labelled, as long as all have equally many
    draws.

    >>> uniform_p_value([200, *[0] * 29]) < 1e-200, uniform_p_value([7, 6, 7])
    (True, 1.0)
    """
    from scipy.special import gammaln, logsumexp

    drawn = np.asarray(counts, dtype=np.float64)
    legal = drawn.ndim == 1 and drawn.size > 0 and bool((drawn >= 0).all())
    check(legal, "counts", counts, "whole numbers of at least 0, one per question")
    m, n = drawn.size, drawn.sum()
    a = CONCENTRATIONS[:, np.newaxis]  # (laws, 1) beside counts (m,)
    of_questions = (gammaln(a + drawn) - gammaln(a)).sum(axis=1)
    together = gammaln(m * CONCENTRATIONS) - gammaln(m * CONCENTRATIONS + n)
    log_mixture = logsumexp(of_questions + together) - np.log(len(CONCENTRATIONS))
    log_ratio = log_mixture + n * np.log(m)
    return float(np.exp(-max(0.0, log_ratio)))


def blind_p_value(called: int, labelled: ArrayLike, verdicts: ArrayLike, n: ArrayLike) -> float:
    """A two-sided p-value of "the labelled draws were chosen without sight of the verdicts".

    Question i has ``n[i]`` draws, ``verdicts[i]`` of them with verdict 1, and ``labelled[i]`` of
    them labelled; over all questions, ``called`` labelled draws have verdict 1. Given these
    numbers, labelled draws that were chosen without sight of the verdicts hold a hypergeometric
    number of verdicts of 1 in each question, and the numbers of two questions are independent. So
    ``called`` is a sum of independent hypergeometric numbers, whose law is the convolution of
    theirs; the p-value is twice its smaller tail. This is Fisher's exact test over several tables
    (Gart 1970, "Point and interval estimation of the common odds ratio in the combination of 2 x 2
    tables with fixed marginals", at a ratio of 1).

    >>> blind_p_value(0, [100], [300], [1000]) < 1e-15, blind_p_value(30, [100], [300], [1000]) > 0.5
    (True, True)
    """
    from scipy.stats import hypergeom

    check_count("labelled", int(np.sum(labelled)))
    law = np.ones(1)
    tables = np.stack(np.broadcast_arrays(np.atleast_1d(labelled), verdicts, n))
    for chosen, ones, draws in tables.T.tolist():
        law = np.convolve(law, hypergeom.pmf(np.arange(chosen + 1), draws, ones, chosen))
    tails = law[: called + 1].sum(), law[called:].sum()
    return float(min(1.0, 2 * min(tails)))
