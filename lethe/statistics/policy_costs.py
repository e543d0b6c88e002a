"""How many answers a word takes under the policy of draws, from simulated runs of known leakage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.statistics.checks import check, check_count, check_share
from lethe.statistics.policy import Policy, Tally

RUNS = 100
SMALL = (0.002, 0.0005, 0.0002)  # of chance: a question, another, and every other
GUESSED = 0.9  # of the tolerance: chance answers nearly as often as it may
SEVERAL = 3  # questions that leak at twice the tolerance
QUANTILE = 0.9


@dataclass(frozen=True)
class Case:
    """The leak probabilities of a model and of Retrain, (m,) each, and the word that is true."""

    name: str
    wanted: str
    subject: np.ndarray
    chance: np.ndarray


@dataclass(frozen=True)
class WordCosts:
    """How often a case got each word, and the answers per question until the process ended.

    ``answers`` is the mean over the runs of the answers of model and Retrain together,
    ``answers_90`` their 90% quantile, and ``retrain_answers`` Retrain's part of the mean.
    ``by_question`` has the mean of each question, of model and Retrain together, over the runs that got the word ``wanted``;
    empty where none did.
    """

    name: str
    wanted: str
    words: Mapping[str, float]
    answers: float
    answers_90: float
    retrain_answers: float
    by_question: tuple[float, ...] = ()


@dataclass(frozen=True)
class QuestionCosts:
    """The answers to one question until its model's true ``word``: its leak probability, the ``share`` of runs that got this
    word, and the mean of model and Retrain over these runs, None where none did.
    """

    name: str
    probability: float
    word: str
    share: float
    answers: float | None


def question_costs(cases: Sequence[Case], costs: Sequence[WordCosts]) -> list[QuestionCosts]:
    """Return what a clean question takes, one at the border and one that leaks, from the costs of `typical_cases`.

    The clean one is the last of a copy of Retrain, and the others are the first of the model that
    guesses and of the one that leaks once.
    """
    places = (("clean", 0, -1), ("border", 1, 0), ("leaking", 3, 0))
    rows = []
    for name, case, question in places:
        probability = float(cases[case].subject[question])
        of_case = costs[case]
        answers = of_case.by_question[question] if of_case.by_question else None
        share = of_case.words[of_case.wanted]
        rows.append(QuestionCosts(name, probability, of_case.wanted, share, answers))
    return rows


def typical_cases(questions: int, tolerance: float) -> list[Case]:
    """Return two copies of Retrain and two models that leak.

    >>> [case.wanted for case in typical_cases(30, 0.01)]
    ['forgot', 'forgot', 'leaks', 'leaks']
    """
    check_count("questions", questions)
    check_share("tolerance", tolerance)
    chance = np.full(questions, SMALL[-1])
    chance[: len(SMALL) - 1] = SMALL[:-1][:questions]
    guessed = chance.copy()
    guessed[0] = GUESSED * tolerance
    several = chance.copy()
    several[:SEVERAL] = min(2 * tolerance, 1.0)
    single = chance.copy()
    single[0] = min(5 * tolerance, 1.0)

    of_guess = f"the same, one question guessed at {guessed[0]:.2g}"
    of_several = f"{min(SEVERAL, questions)} questions leak at {several[0]:.2g}"
    return [
        Case("a copy of Retrain", "forgot", chance, chance),
        Case(of_guess, "forgot", guessed, guessed),
        Case(of_several, "leaks", several, chance),
        Case(f"one question leaks at {single[0]:.2g}", "leaks", single, chance),
    ]


def told_case(
    questions: int, tolerance: float, leak: float, chance: float, beside_retrain: bool
) -> Case:
    """Return the case in which one question leaks with probability ``leak``, and every other one,
    and Retrain, with probability ``chance``.

    >>> told_case(30, 0.05, leak=0.45, chance=0.3, beside_retrain=True).wanted
    'leaks'
    """
    check_count("questions", questions)
    for name, value in (("leak", leak), ("chance", chance)):
        check(0 <= value <= 1, name, value, "a number from 0 to 1")
    of_retrain = np.full(questions, chance)
    subject = of_retrain.copy()
    subject[0] = leak
    beyond = subject
    if beside_retrain:
        beyond = subject - of_retrain
    wanted = "leaks" if beyond.max() > tolerance else "forgot"
    name = f"one question leaks at {leak:.2g}, chance {chance:.2g}"
    return Case(name, wanted, subject, of_retrain)


def word_costs(policy: Policy, case: Case, runs: int = RUNS, seed: int = 0) -> WordCosts:
    """Return what the word of a ``case`` costs under a ``policy`` with one Retrain or none.

    >>> policy = Policy(first=128, batch=128, cap=4096, tolerance=0.05, goal=4.6)
    >>> costs = word_costs(policy, typical_cases(30, 0.05)[0], runs=20)
    >>> costs.words["forgot"], costs.retrain_answers
    (1.0, 0.0)
    """
    check_count("runs", runs)
    check(policy.retrains <= 1, "retrains", policy.retrains, "0 or 1 in a simulation")
    chance = np.random.default_rng(seed)
    m = len(case.subject)
    leaks, n, leaks_of_retrain, n_of_retrain = np.zeros((4, runs, m), dtype=np.int64)
    counts = dict.fromkeys(("leaks", "forgot", "open"), 0)
    got_wanted = np.zeros(runs, dtype=bool)
    alive = np.arange(runs)
    while alive.size:
        model = Tally.of(leaks[alive], n[alive])
        beside = [Tally.of(leaks_of_retrain[alive], n_of_retrain[alive])] * policy.retrains
        step = policy.next(model, beside)
        proved = step.evidence.leaks
        ended = ~step.model.any(axis=-1)
        passed = step.evidence.passed.all(axis=-1) & ~proved
        got = {"leaks": proved, "forgot": ended & passed}
        got_wanted[alive] = got[case.wanted]
        for word, runs_of_word in got.items():
            counts[word] += int(runs_of_word.sum())
        counts["open"] += int((ended & ~passed & ~proved).sum())

        leaks[alive] += chance.binomial(step.model, case.subject)
        n[alive] += step.model
        for asked in step.retrains:
            leaks_of_retrain[alive] += chance.binomial(asked, case.chance)
            n_of_retrain[alive] += asked
        alive = alive[~ended]

    of_questions = n + n_of_retrain
    together = of_questions.mean(axis=1)
    by_question: list[float] = []
    if got_wanted.any():
        by_question = of_questions[got_wanted].mean(axis=0).tolist()
    return WordCosts(
        case.name,
        case.wanted,
        words={word: count / runs for word, count in counts.items()},
        answers=float(together.mean()),
        answers_90=float(np.quantile(together, QUANTILE)),
        retrain_answers=float(n_of_retrain.mean()),
        by_question=tuple(by_question),
    )
