"""Whether the first and the last answers to the same questions come from one distribution: permutation tests."""

from collections.abc import Callable, Sequence

import numpy as np

LEVEL = 1e-4  # at which a change is believed: an honest server is refused once in 10,000 at most
SHUFFLES = 30_000  # the fewest that reach the level, where none is as far apart
AT_ONCE = 200
# Shuffles as far apart as the answers, of each statistic, after which no more can bring the level.
ENOUGH = 10
STATISTICS = 3
FEWEST = 4  # answers of a question
MOST_AT_AN_END = 200  # answers of a question
MOST = 4_000  # answers of all questions; more say little more and cost in proportion


def p_value_of_no_change(answers: Sequence[Sequence[str]], seed: int = 0) -> float | None:
    """The p-value of "the answers to each question are exchangeable in time"; None where no question has `FEWEST` answers.

    ``answers`` are those of each question, in time. Lengths, first words and whole texts of the first and the last answers
    are compared, and permuted within each question; Bonferroni over the three statistics. Shuffles end early once each
    statistic has `ENOUGH` as far apart, or after `SHUFFLES` (Besag and Clifford, "Sequential Monte Carlo p-values",
    Biometrika 78, 1991): whether the p-value is at most `LEVEL` does not depend on an early end.
    """
    asked = [texts for texts in answers if len(texts) >= FEWEST]
    if not asked:
        return None
    most = _most_at_an_end(len(asked))
    coded = [_coded(texts, most) for texts in asked]

    masks = []
    seen = np.zeros(STATISTICS)
    for codes in coded:
        n_ends = codes.shape[1]
        is_first = np.arange(n_ends) < n_ends // 2
        masks.append(np.tile(is_first, (AT_ONCE, 1)))
        seen += apart(codes, is_first[None])[0]

    def shuffled(generator: np.random.Generator) -> np.ndarray:
        distances = np.zeros((AT_ONCE, STATISTICS))
        for codes, mask in zip(coded, masks, strict=True):
            distances += apart(codes, generator.permuted(mask, axis=1))
        return distances

    p_values = _p_values(shuffled, seen - 1e-9, seed)
    return min(1.0, STATISTICS * float(p_values.min()))


def p_value_of_one_mean(values: Sequence[Sequence[float]], seed: int = 0) -> float | None:
    """The p-value of "the numbers of each question are exchangeable in time"; None where no question has `FEWEST` of them.

    ``values`` are those of each question, in time, such as the log-probability that a server states of one token. The
    distance between the means of the first and the last half, summed over the questions, is compared with `SHUFFLES` of
    permutations within each question (Chauvin et al., "Log Probability Tracking of LLM APIs", arXiv 2512.03816).

    >>> p_value_of_one_mean([[-0.5] * 40]), p_value_of_one_mean([[-0.5] * 20 + [-0.51] * 20]) < 1e-3
    (1.0, True)
    """
    asked = [np.array(numbers, dtype=np.float64) for numbers in values if len(numbers) >= FEWEST]
    if not asked:
        return None
    most = _most_at_an_end(len(asked))
    repeated = []  # (shuffles, numbers) of each question
    seen = np.zeros(1)
    for numbers in asked:
        if len(numbers) > 2 * most:
            numbers = np.concatenate([numbers[:most], numbers[-most:]])
        repeated.append(np.tile(numbers, (AT_ONCE, 1)))
        seen += _distance(numbers[None])

    def shuffled(generator: np.random.Generator) -> np.ndarray:
        distances = np.zeros((AT_ONCE, 1))
        for rows in repeated:
            distances[:, 0] += _distance(generator.permuted(rows, axis=1))
        return distances

    return float(_p_values(shuffled, seen - 1e-12, seed)[0])


def _most_at_an_end(n_questions: int) -> int:
    """How many of the first, and of the last, answers to each question are compared."""
    fair_share = MOST // (2 * n_questions)
    return max(FEWEST // 2, min(MOST_AT_AN_END, fair_share))


def _p_values(
    shuffled: Callable[[np.random.Generator], np.ndarray], seen: np.ndarray, seed: int
) -> np.ndarray:
    """(statistics,) the shares of shuffles that are as far apart as what was seen, which counts as one of them.

    ``shuffled`` draws (`AT_ONCE`, statistics) distances.
    """
    generator = np.random.default_rng(seed)
    above = np.zeros(len(seen))
    done = 0
    while done < SHUFFLES and above.min() < ENOUGH:
        above += (shuffled(generator) >= seen).sum(axis=0)
        done += AT_ONCE
    return (1 + above) / (1 + done)


def _distance(rows: np.ndarray) -> np.ndarray:
    """(shuffles,) the distance between the means of the first and the last half of each row."""
    half = rows.shape[1] // 2
    first = rows[:, :half].mean(axis=1)
    last = rows[:, -half:].mean(axis=1)
    return np.asarray(np.abs(first - last))


def _coded(texts: Sequence[str], most: int) -> np.ndarray:
    """(3, answers): ranks of the lengths, then numbers of the first words and of the texts, of the first and last answers."""
    half = min(len(texts) // 2, most)
    ends = [*texts[:half], *texts[-half:]]

    lengths = np.array([len(text) for text in ends])
    ranks = np.searchsorted(np.sort(lengths), lengths)

    first_words = []
    for text in ends:
        words = text.split(maxsplit=1)
        first_words.append(words[0] if words else "")
    _, number_of_word = np.unique(first_words, return_inverse=True)
    _, number_of_text = np.unique(ends, return_inverse=True)
    return np.stack([ranks, number_of_word, number_of_text])


def apart(codes: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """(shuffles, 3) how far the two halves of a question's answers are apart under each shuffle.

    ``codes`` (3, answers) are ranks, and numbers of words and of texts; ``is_first`` (shuffles, answers) says which answers
    are of the first half. By the mean rank, and by the counts f of all a of a word or a text: the sum of (2 f - a)^2 / a.
    """
    n = codes.shape[1]
    half = n // 2
    ranks = codes[0] / n
    of_first = is_first @ ranks
    statistics = [np.abs(2 * of_first - ranks.sum()) / half]

    for numbers in codes[1:]:
        order = np.argsort(numbers, kind="stable")
        begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        counts = np.diff(begins, append=n)
        firsts = np.add.reduceat(is_first[:, order], begins, axis=1, dtype=np.float32)
        distances = (2 * firsts - counts) ** 2
        statistics.append(distances @ (1 / counts))
    return np.stack(statistics, axis=1)
