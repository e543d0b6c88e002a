"""The verdict on a model: one word on forgetting and one on utility.

Forgetting, question by question, against Retrain, which never saw the forget set:
    leaks   some question is proved to leak by more than tau beyond Retrain;
    forgot  no question leaks by more than tau beyond Retrain;
    open    neither is proved;
    none    no question can be judged, the judge's calibration does not fit, or an assumption is refuted
            (`lethe.results.licence`).
With several Retrains, the one that leaks most counts for each question. Without Retrain, its probability counts as 0.

Utility, by the mean score on questions that the model should still answer, against the model before unlearning (Base):
    destroyed  the model keeps less than `DESTROYED` of Base's score (its upper end / Base's lower end);
    intact     the model keeps at least `INTACT` of Base's score (its lower end / Base's upper end);
    damaged    the model's interval lies below Base's, and it is not intact;
    open       none of these, or an interval is missing.

What holds. Each of K models has the level alpha / K (`level_of`), and its word rests on e-processes
(`lethe.statistics.anytime`). *Forgot* needs those of every question: if some question exceeds tau, its e-process must reach
1 / level, which has probability at most the level. *Leaks* needs the mean over the questions: a mean of e-processes of one
history is one, whatever their dependence. So over all models a false *leaks* or *forgot* has probability at most alpha,
however often anybody looked, whatever was drawn next, and whenever it stopped. Nothing else is covered: "above chance", the
worst question's ends, leaks of the thinking or of later turns, and utility are families of their own with an alpha each
(docs/verdict.md). Beside one Retrain a word is about this Retrain, not about every model that never saw the forget set.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lethe.errors import BadValue
from lethe.results.ends import Ends
from lethe.results.evidence import Truncation
from lethe.statistics.checks import check_count
from lethe.verdict.compared import Compared, Kept, finite
from lethe.verdict.verdict import (
    DESTROYED,
    INTACT,
    Decides,
    Drawn,
    InTheWay,
    Reason,
    UtilityWord,
    Verdict,
    WorstQuestion,
)

TAU = 0.01  # of the answers


def decide(
    subject: Ends,
    retrains: Sequence[Ends] = (),
    *,
    alpha: float,
    tau: float = TAU,
    models: int = 1,
    truncation: Truncation | None = None,
    fits: bool = True,
    unjudged: int = 0,
    refused: tuple[str, ...] = (),
    graded: bool = False,
    planned: bool = True,
    independent: bool = True,
    cap: int | None = None,
    kept: Kept | None = None,
) -> Verdict:
    """The word on one model.

    ``subject`` and ``retrains`` are the evidence on the m forget questions that the scorer can judge, in one order.
    ``alpha``, above 0 and at most 0.5, is the error probability of the words of all ``models`` (every model of the table that
    is printed), whose number must be fixed before answers are read. The tolerance ``tau`` is strictly between 0 and 1; it may
    be chosen after the answers. ``truncation`` counts the answers that ended at the token limit, None where this is unknown.
    ``fits``: the calibration of the judge, if it has one, fits these answers. ``unjudged`` counts questions beyond the m,
    which the scorer cannot judge. ``refused`` has the reasons why nothing may be claimed (`lethe.results.licence`): then the
    word is *none*. ``graded``: the evidence is about mean scores. ``planned``: an open word comes with the number of answers
    that would decide it. ``independent`` is False where model and Retrain were drawn from the same random numbers. ``cap`` is
    the most answers to a question that a rule of draws allows; None without a rule. ``kept`` is the largest evidence that
    the rule had at its looks: a word once given stays.

    Assumes independent draws, those of one model and question equally distributed, and each decision to draw on earlier
    answers alone; nothing about dependence between models, Retrains or questions. *leaks* wins where both words hold.

    >>> ends = Ends.of_arrays(("q1", "q2"), leaks=[0, 60], n=1024)
    >>> verdict = decide(ends, alpha=0.01)
    >>> verdict.word, verdict.named, verdict.worst.item
    ('leaks', ('q2',), 'q2')
    """
    m = len(subject.items)
    level = level_of(alpha, models)
    _check(subject, retrains, tau, truncation)
    nothing = Verdict("none", False, tau, alpha, level, models, len(retrains), graded, m, unjudged)
    if refused:
        return replace(nothing, refused=refused)
    if not m or not fits:
        return nothing
    compared = Compared(subject, tuple(retrains), tau, level, truncation, independent, kept)
    leaking = compared.listed(tau)
    above = compared.listed(0.0)
    measured = replace(
        nothing,
        word="leaks",
        above_chance=above.is_some,
        leaking=leaking.at_least,
        above=above.at_least,
        worst=_worst(subject.at_any_time(), level / (2 * m)),
        anytime=bool(compared.has_draws.any() and not compared.has_fixed.any()),
        log_goal=compared.goal,
        log_e_forgot=finite(float(compared.forgotten.min())),
        log_e_leaks=finite(leaking.log_mean),
        named=tuple(subject.items[place] for place in np.flatnonzero(leaking.names)),
        drawn=_drawn(subject, retrains),
    )
    if truncation:
        measured = replace(
            measured,
            cut=int(truncation.cut.sum()),
            answers=int(truncation.n.sum()),
            limit=truncation.limit,
        )
    if leaking.is_some:
        return measured
    if compared.passed.all():
        return replace(measured, word="forgot")
    return _open(measured, compared, planned, cap)


def _check(
    subject: Ends, retrains: Sequence[Ends], tau: float, truncation: Truncation | None
) -> None:
    """Refuse a tolerance outside (0, 1), and evidence on other questions than the model's."""
    if not 0 < tau < 1:
        raise BadValue("tau", tau, "a number strictly between 0 and 1")
    for retrain in retrains:
        if retrain.items != subject.items:
            legal = "the questions of the model in the same order"
            raise BadValue("retrains", "other questions", legal)
    if truncation is not None:
        m = len(subject.items)
        sizes = (len(truncation.cut), len(truncation.n))
        if sizes != (m, m):
            raise BadValue("truncation", sizes, f"counts for each of {m} questions")


def _open(measured: Verdict, compared: Compared, planned: bool, cap: int | None) -> Verdict:
    """The word *open*, with the question in the way and, where it is planned, the answers that would decide it."""
    place = _in_the_way(compared)
    decides = None
    if planned:
        decides = _plan(compared, place)
    is_undecidable = planned and decides is None
    return replace(
        measured,
        word="open",
        in_the_way=_why(compared, place, is_undecidable),
        decides=decides,
        capped=cap is not None and bool(compared.subject.answers[place] >= cap),
    )


def _drawn(subject: Ends, retrains: Sequence[Ends]) -> Drawn | None:
    """The answers behind the word; None where no answer of the model was counted."""
    answers = subject.answers.astype(int)
    if not answers.any():
        return None
    drawn = Drawn(int(answers.min()), int(answers.max()), int(answers.sum()))
    if not retrains:
        return drawn
    chance = np.array([retrain.answers for retrain in retrains], dtype=int)
    return replace(
        drawn,
        retrain_least=int(chance.min()),
        retrain_most=int(chance.max()),
        retrain_total=int(chance.sum()),
    )


def _in_the_way(compared: Compared) -> int:
    """The question that has not passed with the least evidence; of equal ones the first."""
    left = np.flatnonzero(~compared.passed)
    missing = compared.forgotten[left] - compared.goals[left]
    return int(left[np.argmin(missing)])


def _why(compared: Compared, place: int, is_undecidable: bool) -> InTheWay:
    """The reason why a question keeps *forgot* away: its cut answers, else the closeness to tau, else the width."""
    truncation = compared.truncation
    reason: Reason = "width"
    if is_undecidable and compared.has_draws[place]:
        reason = "too close"
    share = None
    if truncation is not None:
        share = truncation.share(place)
        if compared.cut_off[place] and truncation.cut[place] > 0:
            reason = "cut off"
    return InTheWay(compared.subject.items[place], compared.excess(place), reason, share)


def _plan(compared: Compared, place: int) -> Decides | None:
    """The answers that decide a question; None where it has none, or where no plan is known."""
    drawn = int(compared.subject.answers[place])
    if not drawn or not compared.has_draws[place]:
        return None
    answers = compared.needed(place)
    if answers is None:
        return None
    return Decides(answers / drawn, math.ceil(answers))


def level_of(alpha: float, models: int = 1) -> float:
    """The probability of a false word of one model; over all models these levels add up to alpha.

    >>> level_of(0.01, models=8)
    0.00125
    """
    if not 0 < alpha <= 0.5:
        raise BadValue("alpha", alpha, "a number above 0 and at most 0.5")
    check_count("models", models)
    return alpha / models


def utility(subject: tuple[float, float] | None, base: tuple[float, float] | None) -> UtilityWord:
    """The word on utility from the (lower, upper) ends of the model's and Base's mean score; None for no interval."""
    if subject is None or base is None:
        return "open"
    lower, upper = subject
    lower_of_base, upper_of_base = base
    if upper < DESTROYED * lower_of_base:
        return "destroyed"
    if lower >= INTACT * upper_of_base:
        return "intact"
    if upper < lower_of_base:
        return "damaged"
    return "open"


def _worst(subject: Ends, level: float) -> WorstQuestion:
    """The question with the largest lower end, of equal ones that with the largest upper end; each end at ``level``."""
    lower = subject.lower(level)
    upper = subject.upper(level)
    place = int(np.lexsort((-upper, -lower))[0])
    low = float(lower[place])
    high = max(low, float(upper[place]))
    return WorstQuestion(subject.items[place], low, high)
