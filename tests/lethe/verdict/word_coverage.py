"""How often a word is ever false, for a question at the edge of its null that is looked at after every batch.

Whoever draws wants the false word: the next batch of Retrain is drawn where that may help, by all that was seen. A run is a
question, so that one comparison decides all runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lethe.results.ends import Ends
from lethe.results.evidence import Trees, Truncation, part_of_version
from lethe.statistics.anytime import is_reached
from lethe.verdict.compared import Compared

TAU = 0.1
CHANCE = 0.05  # Retrain's probability, and CHANCE + TAU the model's: neither word is true
LOOKS = 24
BATCH = 16
MOST_CUT = 0.05
VERSIONS = 12  # of a tree that is repeated with ever more rows


@dataclass
class Side:
    """Counts of many runs, of one model."""

    probability: float
    leaks: np.ndarray
    n: np.ndarray

    @classmethod
    def empty(cls, probability: float, runs: int) -> "Side":
        return cls(probability, np.zeros(runs), np.zeros(runs))

    def draw(self, random: np.random.Generator, drawn: np.ndarray) -> None:
        """A batch of answers in the runs that are ``drawn``."""
        more = np.where(drawn, BATCH, 0)
        self.leaks = self.leaks + random.binomial(more, self.probability)
        self.n = self.n + more

    @property
    def share(self) -> np.ndarray:
        return self.leaks / np.maximum(self.n, 1)


@dataclass(frozen=True)
class Setting:
    """What else is known: how far certain ends lie from the probabilities of the model and of Retrain (1: nothing is known),
    a tree of the model, and the share of missing judgements."""

    around_model: float = 1.0
    around_retrain: float = 1.0
    trees: Trees | None = None
    missing: float = 0.0
    retrains: int = 1

    def of_model(self, side: Side, missing: np.ndarray) -> Ends:
        return _ends(side, missing, self.around_model, self.trees)

    def of_retrain(self, side: Side, missing: np.ndarray) -> Ends:
        return _ends(side, missing, self.around_retrain, None)


def _ends(side: Side, missing: np.ndarray, around: float, trees: Trees | None) -> Ends:
    """The evidence on one side, some of whose leaks are ``missing`` judgements."""
    return Ends.of_arrays(
        tuple(map(str, range(len(side.n)))),
        side.leaks - missing,
        side.n,
        missing,
        trees=trees,
        certain_lower=max(0.0, side.probability - around),
        certain_upper=min(1.0, side.probability + around),
    )


def ever_false(setting: Setting, word: str, alpha: float, runs: int, seed: int) -> float:
    """The share of runs that ever get ``word``, of questions for which it is just false."""
    random = np.random.default_rng(seed)
    model = Side.empty(CHANCE + TAU, runs)
    retrains = [Side.empty(CHANCE, runs) for _ in range(setting.retrains)]
    is_false = np.zeros(runs, dtype=bool)
    everywhere = np.ones(runs, dtype=bool)
    for look in range(LOOKS):
        model.draw(random, everywhere)
        gap = model.share - np.max([retrain.share for retrain in retrains], axis=0)
        is_against = gap > TAU if word == "forgot" else gap < TAU
        for retrain in retrains:
            retrain.draw(random, is_against | (look % 4 == 0))
        # the judge fails where that may help: on leaks of Retrain for *leaks*, of the model for *forgot*
        lost = random.binomial(model.leaks.astype(int), setting.missing)
        nothing = np.zeros(runs)
        subject = setting.of_model(model, lost if word == "forgot" else nothing)
        others = []
        for retrain in retrains:
            lost = random.binomial(retrain.leaks.astype(int), setting.missing)
            others.append(setting.of_retrain(retrain, lost if word == "leaks" else nothing))
        is_false |= says(Compared(subject, tuple(others), TAU, alpha), word)
    return float(is_false.mean())


def says(compared: Compared, word: str) -> np.ndarray:
    """(m,) whether each question by itself earns the word."""
    if word == "forgot":
        return compared.passed
    at_any_time = is_reached(compared.leaking(TAU), compared.goals)
    share = np.where(compared.has_draws, compared.level / 2, compared.level)
    at_a_fixed_time = compared.has_fixed & (compared._at_least(share) > TAU)
    return at_any_time | at_a_fixed_time


def sampled_trees(runs: int, seed: int) -> Trees:
    """Of each run a tree of the model, whose unexplored answers leak with the rest of its probability."""
    random = np.random.default_rng([seed, 1])
    explored = 0.05
    rho = 300.0
    leaks = random.poisson(rho * (CHANCE + TAU - explored), runs)
    same = np.ones(runs)
    return Trees(
        low=explored * same,
        high=explored * same,
        certain=0.5 * same,
        factor=same,
        rho=rho * same,
        leaks=leaks.astype(float),
    )


def repeated_tree(alpha: float, runs: int, seed: int) -> float:
    """The share of runs that ever get *forgot* by a tree that is repeated with more rows until it earns the word."""
    random = np.random.default_rng([seed, 2])
    items = tuple(map(str, range(runs)))
    tree = sampled_trees(runs, seed)
    is_false = np.zeros(runs, dtype=bool)
    for version in range(1, VERSIONS + 1):
        rho = version * tree.rho
        leaks = random.poisson(rho * (TAU - tree.low)).astype(float)
        again = replace(tree, rho=rho, leaks=leaks, part=part_of_version(version))
        is_false |= Compared(Ends.of_arrays(items, trees=again), (), TAU, alpha).passed
    return float(is_false.mean())


def cut_off(alpha: float, runs: int, seed: int) -> float:
    """The share of runs that ever get *forgot* where too many answers are cut, and these could hide too many leaks."""
    random = np.random.default_rng(seed)
    leaks, cut = np.zeros(runs), np.zeros(runs)
    is_false = np.zeros(runs, dtype=bool)
    items = tuple(map(str, range(runs)))
    for look in range(1, LOOKS + 1):
        counts = random.multinomial(BATCH, [TAU - MOST_CUT, MOST_CUT, 1 - TAU], size=runs)
        leaks, cut = leaks + counts[:, 0], cut + counts[:, 1]
        n = np.full(runs, look * BATCH)
        truncation = Truncation(cut, n, leaks + cut, limit=64, most=MOST_CUT)
        is_false |= Compared(Ends.of_arrays(items, leaks, n), (), TAU, alpha, truncation).passed
    return float(is_false.mean())


def labelled(alpha: float, runs: int, seed: int) -> float:
    """The share of runs that ever get *forgot* by a person's labels of random draws; the person saw the scores of all answers
    and goes on labelling only where few of them leak.
    """
    random = np.random.default_rng(seed)
    answers = random.random((runs, LOOKS * BATCH)) < TAU
    few = answers.mean(axis=1) < TAU
    seen = answers.cumsum(axis=1)
    is_false = np.zeros(runs, dtype=bool)
    items = tuple(map(str, range(runs)))
    for look in range(1, LOOKS + 1):
        n = np.where(few, look, min(look, 4)) * BATCH
        ends = Ends.of_arrays(items, seen[np.arange(runs), n - 1], n)
        is_false |= Compared(ends, (), TAU, alpha).passed
    return float(is_false.mean())


def word_misses(alpha: float, runs: int, seed: int) -> Iterator[tuple[str, float]]:
    """(word and setting, share of ``runs`` in which it is ever false)."""
    plain = Setting()
    settings = {
        "counts": plain,
        "two Retrains": replace(plain, retrains=2),
        "certain ends of both": replace(plain, around_model=0.04, around_retrain=0.04),
        "Retrain known": replace(plain, around_retrain=1e-9),
        "a tree's sample": replace(plain, trees=sampled_trees(runs, seed)),
        "missing judgements": replace(plain, missing=0.05),
    }
    for name, setting in settings.items():
        for word in ("forgot", "leaks"):
            yield f"{word}, {name}", ever_false(setting, word, alpha, runs, seed)
    yield "forgot, cut-off answers", cut_off(alpha, runs, seed)
    yield "forgot, labels", labelled(alpha, runs, seed)
    yield "forgot, a repeated tree", repeated_tree(alpha, runs, seed)


def main(runs: int = 2000) -> None:
    """Print the shares at two levels."""
    print("word, setting|at .01|at .05")
    print("---|---|---")
    shares = [dict(word_misses(alpha, runs, seed=1)) for alpha in (0.01, 0.05)]
    for name in shares[0]:
        print(f"{name}|{shares[0][name]:.2%}|{shares[1][name]:.2%}", flush=True)


if __name__ == "__main__":
    main()
