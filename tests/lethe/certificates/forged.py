"""Authors who forge draws against verifiers who draw some of them again: `make coverage` has 1,000 checks of each author.

An author commits to all draws before the verifier's coin. The check must be clean as often as the theory says: for an author
who forges answers, for one who leaves true answers out of the list of leaks, and for an honest one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from lethe.certificates import merkle
from lethe.certificates.draws import Draws, QuestionDraws, of_leaves
from lethe.certificates.merkle import Leaf
from lethe.certificates.spot_check import chosen, mismatches_in
from lethe.statistics.spot_check import exact_upper, log_clean, most_forged, split_upper

N, S = 4096, 688
LEAK = 0.02
QUESTION = "q"
FEWEST = 1e-6  # of an honest simulation, at the number of clean checks


@dataclass(frozen=True)
class Author:
    """An author who forges ``count`` answers (``texts``), or as many entries of the list of leaks."""

    name: str
    count: int
    texts: bool = False

    def expected(self) -> float:
        """The probability that the check is clean."""
        return float(np.exp(log_clean(N, np.array([self.count]), S))[0])


AUTHORS = (
    Author("41 forged texts", 41, texts=True),
    Author("41 entries of the list", 41),
    Author("10 forged texts", 10, texts=True),
    Author("1 entry of the list", 1),
    Author("honest", 0),
)


def true_leaves(random: np.random.Generator) -> list[Leaf]:
    """The model's answers: a leak, or another text."""
    leaves = []
    for sample, leaks in enumerate(random.random(N) < LEAK):
        text = f"It is Turin, {sample}." if leaks else f"I do not know, {sample}."
        leaves.append(Leaf(QUESTION, sample, text, 5, "stop", int(leaks)))
    return leaves


def committed(
    author: Author, leaves: Sequence[Leaf], honest: Draws, random: np.random.Generator
) -> tuple[Draws, list[bytes]]:
    """What the author publishes instead of ``honest``, the draws of the model's ``leaves``, with all leaf hashes."""
    size = merkle.SIZE
    hashes = [honest.leaves[at : at + size] for at in range(0, len(honest.leaves), size)]
    leaks_at = set(honest.questions[0].leaks_at)
    for place in random.choice(N, author.count, replace=False).tolist():
        if author.texts:
            other = replace(leaves[place], text="I cannot say.", score=0)
            hashes[place] = other.hash()
            leaks_at.discard(place)
        else:
            leaks_at ^= {place}
    question = QuestionDraws(QUESTION, N, tuple(sorted(leaks_at)))
    return Draws((question,), merkle.root(hashes).hex(), seed=0), hashes


def clean_checks(author: Author, trials: int, seed: int) -> int:
    """How many of ``trials`` checks of the author's draws find nothing."""
    random = np.random.default_rng([seed, author.count])
    leaves = true_leaves(random)
    honest = of_leaves({QUESTION: leaves}, seed=0)
    clean = 0
    for _ in range(trials):
        draws, hashes = committed(author, leaves, honest, random)
        numbers = chosen(draws.root, random.bytes(32), QUESTION, N, S)
        again = {QUESTION: [leaves[number] for number in numbers]}
        clean += not any(mismatches_in(draws, hashes, again))
    return clean


def as_theory_says(author: Author, clean: int, trials: int) -> bool:
    """Whether the number of clean checks is no surprise, on either side."""
    p = author.expected()
    is_likely = binom.cdf(clean, trials, p) > FEWEST
    return is_likely and binom.sf(clean - 1, trials, p) > FEWEST


def ends_missed(alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """(end, share of ``runs`` that pass a check with an end below the truth), by authors who report as few leaks as pays.

    The sharpest author always reports the largest number of leaks whose exact end is below the truth. The size of the split
    end's check is chosen from the report, as that end allows.
    """
    random = np.random.default_rng(seed)
    n = 500
    s = 150
    reported = 5
    truth = exact_upper(n, reported, s, alpha) + 1e-9
    leaks = random.binomial(n, truth, runs)
    forged = np.maximum(leaks - reported, 0)
    found = random.hypergeometric(forged, n - forged, s)
    yield "exact end, sharpest author", float(np.mean(found == 0))

    sizes = np.array([s for s in range(50, n, 10)])
    ends = np.array([split_upper(n, reported, s, alpha) for s in sizes])
    size = int(sizes[np.argmax(ends < 0.05)])
    leaks = random.binomial(n, 0.05, runs)
    forged = np.maximum(leaks - reported, 0)
    found = random.hypergeometric(forged, n - forged, size)
    yield "split end, size from the report", float(np.mean(found == 0))


def main(trials: int = 1000) -> int:
    """Print the clean checks of each author; the status is 1 where the theory says otherwise."""
    wrong = 0
    print(f"\nclean checks of {trials:,}, {S} of {N:,} draws each")
    for author in AUTHORS:
        clean = clean_checks(author, trials, seed=1)
        is_expected = as_theory_says(author, clean, trials)
        expected = trials * author.expected()
        print(f"  {author.name:34} {clean:6,}  expected {expected:,.2f}", flush=True)
        wrong += not is_expected
    print(f"  forged draws that a clean check allows: {most_forged(N, S, 0.001)}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
