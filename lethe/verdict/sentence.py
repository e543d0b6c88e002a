"""The sentence of a verdict: what its word says, with which probability, and what stands in the way."""

from collections.abc import Mapping

from lethe.errors import one_line
from lethe.statistics.bound import (
    Side,
    as_percent,
    coverage,
    exact,
    rounded,
    significant,
    two_digits,
)
from lethe.verdict.verdict import InTheWay, Verdict

NAMED = 5  # questions that a sentence names
# Of `sentence`, for the aim to forget; a third person, a plural and a possibility for each question.
WORDS = {
    "leaks": "leaks",
    "forgot": "forgot",
    "open": "open",
    "none": "no word",
    "does": "leaks in",
    "do": "leak in",
    "may": "may leak in",
    "question": "question",
    "questions": "questions",
    "above": "above chance",
    "some": "with leaks",
    # What a difference is to: a Retrain of another seed leaks in other questions, so that one Retrain is not chance itself.
    "one": "this one Retrain",
    "several": "these {} Retrains",
    "more": "more answers",
}
# Of graded scores, in place of those of leaks.
GRADED = {
    "does": "scores",
    "do": "score",
    "may": "may score",
    "some": "with scores",
    "more": "higher",
}


def sentence(
    verdict: Verdict,
    name: str,
    *,
    utility: str | None = None,
    judge: str | None = None,
    words: Mapping[str, str] = WORDS,
) -> str:
    """The verdict on a model as one sentence.

    A ``utility`` of None leaves that word out. ``judge`` is the model judge whose verdicts the ends are about; None for
    another scorer. ``words`` replaces those of `WORDS`, for another aim than to forget.

    >>> from lethe.results.ends import Ends
    >>> from lethe.verdict.rules import decide
    >>> ends = Ends.of_arrays(("q1", "q2"), leaks=[0, 60], n=1024)
    >>> print(sentence(decide(ends, alpha=0.01), "npo", utility="intact"))
    npo: leaks, utility intact - at least 1 of 2 questions leaks in more than 1% of answers, with probability 0.99 for this \
model alone at any time (1,024 answers); named: q2; the worst, q2, leaks in 3.1% to 9.3%.
    """
    say = dict(WORDS)
    if verdict.graded:
        say |= GRADED
    say |= words
    head = _head(verdict, name, say, utility, judge)
    if verdict.refused:
        return f"{head} - nothing is claimed of its answers. {' '.join(verdict.refused)}"

    total = verdict.questions + verdict.unjudged
    unjudged_share = f"{verdict.unjudged} of {total} {say['questions']}"
    unjudged = f"{judge or 'the scorer'} judged no answer to {unjudged_share}"
    if verdict.word == "none":
        if not verdict.questions:
            return f"{head} - {unjudged}."
        return f"{head} - the calibration of {judge or 'the judge'} does not fit these answers."

    clauses = []
    if verdict.unjudged:
        clauses.append(unjudged)
    claim = _claim(verdict, say)
    if not _is_above(verdict):  # else the level stands in the head
        claim += f", {_level(verdict)}"
    clauses.append(claim + _answers(verdict) + _decided(verdict))
    named = _named(verdict)
    if named:
        clauses.append(named)
    worst = verdict.worst
    if worst:
        clauses.append(f"the worst, {one_line(worst.item)}, {say['does']} {worst_ends(verdict)}")
    if verdict.cut and not _cut_off(verdict):  # else the claim is about it
        clauses.append(f"{verdict.cut:,} of {verdict.answers:,} answers reached the limit")
    return f"{head} - {'; '.join(clauses)}."


def _head(
    verdict: Verdict,
    name: str,
    say: Mapping[str, str],
    utility: str | None,
    judge: str | None,
) -> str:
    """The words on the model, before what they rest on."""
    head = f"{name}: {say[verdict.word]}"
    if judge:
        head += f" by {judge}'s verdicts"
    if _is_above(verdict):
        head += f", {_above(verdict, say)} ({_level(verdict)})"
    if utility:
        head += f", utility {utility}"
    return head


def _level(verdict: Verdict) -> str:
    """The probability with which the word is true, and for how many models together."""
    level = f"with probability {coverage(verdict.alpha)} for {models_of(verdict)}"
    if verdict.anytime:
        level += " at any time"
    return level


def _is_above(verdict: Verdict) -> bool:
    """Whether an open word says of some questions that they are above chance, though by no more than the tolerance."""
    return verdict.word == "open" and verdict.above > 0


def _answers(verdict: Verdict) -> str:
    """The answers to a question behind a word that holds at any time, of the model and of each Retrain, in parentheses."""
    drawn = verdict.drawn
    if drawn is None or not verdict.anytime:
        return ""
    text = f"{_from_to(drawn.least, drawn.most)} answers"
    if verdict.retrains:
        name = "each Retrain"
        if verdict.retrains == 1:
            name = "Retrain"
        text += f", {name} {_from_to(drawn.retrain_least, drawn.retrain_most)}"
    return f" ({text})"


def _from_to(least: int, most: int) -> str:
    if least == most:
        return f"{least:,}"
    return f"{least:,} to {most:,}"


def _named(verdict: Verdict) -> str:
    """The questions that are proved to leak, as a clause; empty for a single question."""
    if verdict.word != "leaks" or verdict.questions == 1 or not verdict.named:
        return ""
    names = ", ".join(map(one_line, verdict.named[:NAMED]))
    more = len(verdict.named) - NAMED
    if more > 0:
        names += f" and {more} more"
    return f"named: {names}"


def _above(verdict: Verdict, say: Mapping[str, str]) -> str:
    above = say["some"]
    if verdict.retrains:
        above = say["above"]
    return f"{above} in {_at_least(verdict.above, verdict, say)}"


def models_of(verdict: Verdict) -> str:
    """The models that share the level of the word, as the end of a clause."""
    few = {1: "this model alone", 2: "both models"}
    return few.get(verdict.models, f"all {verdict.models} models")


def worst_ends(verdict: Verdict) -> str:
    """Both ends of the worst question as text; empty without a question."""
    worst = verdict.worst
    if worst is None:
        return ""
    return f"{_amount(worst.lower, verdict, 'lower')} to {_amount(worst.upper, verdict, 'upper')}"


def _claim(verdict: Verdict, say: Mapping[str, str]) -> str:
    """What the word says of the questions, as a clause without its probability."""
    if verdict.word == "forgot":
        return _claim_of_forgot(verdict, say)
    way = verdict.in_the_way
    if verdict.word == "leaks" or way is None:
        return _claim_of_leaks(verdict, say)
    return _claim_of_open(verdict, way, say)


def _claim_of_forgot(verdict: Verdict, say: Mapping[str, str]) -> str:
    questions = f"the {say['question']}"
    if verdict.questions > 1:
        questions = f"each of {verdict.questions} {say['questions']}"
    most = f"{_tolerance(verdict)}{_of_answers(verdict)}"
    return f"{questions} {say['does']} at most {most}{_beyond(verdict, say)}{_within(verdict)}"


def _claim_of_leaks(verdict: Verdict, say: Mapping[str, str]) -> str:
    does = say["does"]
    if verdict.leaking > 1:
        does = say["do"]
    some = f"{_at_least(verdict.leaking, verdict, say)} {does}"
    least = f"more than {_tolerance(verdict)}{_of_answers(verdict)}{_within(verdict)}"
    if verdict.retrains:
        return f"{some} {say['more']} than {_chance(verdict, say)}, by {least}"
    return f"{some} {least}"


def _claim_of_open(verdict: Verdict, way: InTheWay, say: Mapping[str, str]) -> str:
    most = f"{say['may']} up to {_amount(way.excess, verdict, 'upper')}{_of_answers(verdict)}"
    claim = f"{one_line(way.item)} {most}{_beyond(verdict, say)}"
    tau = _tolerance(verdict)
    if way.reason == "cut off":
        cut = "answers"
        if way.cut is not None:
            percent = float(f"{100 * way.cut:.2g}")
            cut = f"{percent:g}% of its answers"
        limit = f"with {cut} cut at the limit of {verdict.limit} tokens"
        return f"{limit}, {claim}, more than {tau}"
    if verdict.questions > 1 and not verdict.above:
        claim = f"of {verdict.questions} {say['questions']}, {claim}"
    return f"{claim}{_within(verdict)}, more than {tau}"


def _of_answers(verdict: Verdict) -> str:
    """What a share is of; empty for mean scores."""
    if verdict.graded:
        return ""
    return " of answers"


def _chance(verdict: Verdict, say: Mapping[str, str]) -> str:
    """The Retrains that a difference is to."""
    if verdict.retrains == 1:
        return say["one"]
    return say["several"].format(verdict.retrains)


def _beyond(verdict: Verdict, say: Mapping[str, str]) -> str:
    if not verdict.retrains:
        return ""
    return f" beyond {_chance(verdict, say)}"


def _within(verdict: Verdict) -> str:
    """The length that the answers were cut at; empty where it is not known."""
    if verdict.limit is None:
        return ""
    return f" within {verdict.limit} tokens"


def _tolerance(verdict: Verdict) -> str:
    """The tolerance as it was set: a percentage of answers, or a difference of mean scores."""
    tau = exact(verdict.tau) * _scale(verdict)
    shown = f"{tau.normalize():f}"
    if verdict.graded:
        return shown
    return f"{shown}%"


def _decided(verdict: Verdict) -> str:
    """The draws that decide an open question, as the end of a clause; empty for another word."""
    if verdict.word != "open":
        return ""
    plan = verdict.decides
    way = verdict.in_the_way
    at_the_cap = ""
    if verdict.capped:
        at_the_cap = ", at the cap"
    if plan is not None:
        answers = f"{int(significant(plan.answers, 2, 'upper')):,}"
        return f"{at_the_cap}: about {answers} answers would decide"
    if _cut_off(verdict):
        return f"{at_the_cap}: raise the limit"
    if way is not None and way.reason == "too close":
        return f"{at_the_cap}: not decidable at this tolerance"
    return at_the_cap


def _at_least(count: int, verdict: Verdict, say: Mapping[str, str]) -> str:
    if verdict.questions == 1:
        return f"the {say['question']}"
    share = f"{count} of {verdict.questions} {say['questions']}"
    if count < verdict.questions:
        return f"at least {share}"
    return share


def _cut_off(verdict: Verdict) -> bool:
    return verdict.in_the_way is not None and verdict.in_the_way.reason == "cut off"


def _amount(value: float, verdict: Verdict, side: Side) -> str:
    """An end as a percentage, or as a mean score: up to two significant digits, rounded outward."""
    number = exact(value) * _scale(verdict)
    tau = exact(verdict.tau) * _scale(verdict)
    finest = max(2, 1 - tau.adjusted())  # decimals that tell an end from tau
    if number.adjusted() > -finest:
        shown = two_digits(number, side)
    else:
        shown = rounded(number, finest, side)
    if verdict.graded:
        return f"{shown or 0:f}"
    return as_percent(shown)


def _scale(verdict: Verdict) -> int:
    """What a number is multiplied by before it is shown: 100 for percentages of answers."""
    if verdict.graded:
        return 1
    return 100
