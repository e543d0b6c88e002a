"""The verdict on each model as the page shows it; `lethe.evaluation.standing` decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lethe.evaluation.answers import unjudged
from lethe.evaluation.findings import judged_by
from lethe.evaluation.joint import TOLD_QUERIES
from lethe.evaluation.run import Model, Run
from lethe.evaluation.standing import Standing
from lethe.evaluation.wording import FORGET, Wording
from lethe.report.columns import NEARLY
from lethe.results import quantities
from lethe.statistics.bound import Bound, Covers, joint_level
from lethe.text import NONE, count, label, listing, plural, upper_first

MIXED = {("forgot", "damaged"), ("forgot", "destroyed"), ("open", "damaged"), ("open", "destroyed")}
NAMED = 5  # questions that a sentence names
# The bounds of the numbers beside the verdicts; the first that a model has counts.
BASES = ("labelled", "judged", "sampled", "anytime")
WORST = quantities.upper_bounds("model", ("leak_worst", "score_worst", "score_betting_worst"), BASES)
MEAN = quantities.upper_bounds("model", ("leak",), BASES)


def head(run: Run) -> list[str]:
    """The columns of the table of numbers after the model's name."""
    binary, leak = judged_by(run)[1], label(run.params.metrics.leak)
    leaks = f"answers with {label(run.params.metrics.binary)}" if binary else f"mean {leak} of the answers"
    words = run.words
    asked = [f"worst {words.question}, asked {TOLD_QUERIES:,} times, {words.asked_leaks}"] if binary else []
    return [leaks, *asked, f"{label(run.params.metrics.kept)} where it should still answer"]


def cells(model: Model, standing: Standing, run: Run, level: float) -> list[str]:
    """The row under `head`; ``level`` is that of the interval of the first column."""
    quantity, binary = judged_by(run)
    own, utility = quantity.measure(model, level), standing.utility
    asked = [between(model.asked(TOLD_QUERIES)) or NONE] if binary else []
    kept = utility.quantity.told(utility.own) if utility.quantity and utility.own else NONE
    return [quantity.told(own) if own else NONE, *asked, kept]


def headline(said: Sequence[Standing], words: Wording = FORGET) -> str:
    """How many of the models under test got which verdict, in one sentence; empty without such models."""
    pairs = Counter((one.word, one.utility.word) for one in said if one.verdict)
    if pairs.total() == 1:
        (one,) = (one for one in said if one.verdict)
        return f"{one.model} {_phrase(one.word, one.utility.word, 1, words)}."
    parts = [f"{models} {_phrase(*pair, models, words)}" for pair, models in pairs.most_common()]
    return f"Of {plural(pairs.total(), 'model')} under test, {'; '.join(parts)}." if parts else ""


def _phrase(forgetting: str, utility: str, models: int, words: Wording) -> str:
    one, many = words.verbs[forgetting]
    verb, be = (one, "is") if models == 1 else (many, "are")
    state = f"{be} {utility}" if utility != "open" else f"{'its' if models == 1 else 'their'} utility is not known"
    return f"{verb} {'but' if (forgetting, utility) in MIXED else 'and'} {state}"


def between(band: tuple[Bound, Bound] | None) -> str:
    """A band of a probability in words, which never promise certainty; empty without a band."""
    if band is None:
        return ""
    lower, upper = band
    if lower.value > NEARLY:
        return f"above {100 * NEARLY:g}%"
    if lower.value == 0:
        return f"{upper.relation} {upper.percent()}"
    return (
        f"{lower.percent()} to {upper.percent()}"
        if upper.value <= NEARLY
        else f"{lower.relation} {lower.percent()}"
    )


def gaps(run: Run) -> list[str]:
    """The questions that the scorer of the verdict cannot judge, and the scores that are missing, one sentence each."""
    said = []
    for model in run.models:
        without = unjudged(model)
        if without and model is run.models[0]:  # the questions are the same for every model
            named = listing(without[:NAMED]) + (
                f" and {len(without) - NAMED:,} more" if len(without) > NAMED else ""
            )
            binary = run.params.metrics.binary
            why = "they have no keywords" if binary == "keyword_leak" else "they are out of its scope"
            of = f"{len(without):,} of {plural(len(model.questions), run.words.question)}"
            said.append(f"For {of}, {label(binary)} can judge no answer, because {why}: {named}.")
        if missing := _missing(model, run):
            said.append(f"{model.name}: {missing}.")
    return said


def _missing(model: Model, run: Run) -> str:
    """The missing scores of the scorer that the verdict rests on; they count against the model."""
    judged = any(row.value("binary_missing") is not None for row in model.questions)
    if judged:
        scorer = run.params.metrics.binary
        missing = int(sum(row.value("binary_missing") or 0 for row in model.questions))
    else:
        scorer, missing = run.params.metrics.leak, int(model.value("missing") or 0)
    if not missing:
        return ""
    words = run.words
    verb = (
        f"is missing and counts as {words.a_leak}" if missing == 1 else f"are missing and count as {words.proved}"
    )
    return f"{plural(missing, 'score')} of {label(scorer)} {verb} in the bounds"


def verdict_alpha(run: Run) -> float | None:
    """The alpha of the bounds of the table of models; None where no model has one."""
    return max((bound.alpha for bound in _bounds(run)), default=None)


def _bounds(run: Run) -> list[Bound]:
    """The bounds on the worst question and on the average that the models of a run have."""
    found = [
        next((model.bounds[key] for key in keys if key in model.bounds), None)
        for model in run.models
        for keys in (WORST, MEAN)
    ]
    return [bound for bound in found if bound is not None]


def guarantee_notes(run: Run) -> list[str]:
    """What the bounds of the table of models say and do not say."""
    bounds = _bounds(run)
    if not bounds:
        return []
    covered, words = {bound.covers for bound in bounds}, run.words
    notes = []
    if {Covers.WORST_PROMPT, Covers.WORST_IN_LANGUAGE} & covered:
        notes.append(
            f"The bound on {words.worst} is the largest of the {words.question}s’ own bounds and needs no correction for "
            "their number."
        )
    if {Covers.AVERAGE, Covers.AVERAGE_IN_LANGUAGE} & covered:
        notes.append(f"The bound on the average pools the answers of all {words.question}s.")
    largest = max(bound.alpha for bound in bounds)
    assumed = {str(bound.assumes) for bound in bounds}
    contained = {one for one in assumed for other in assumed if other != one and other.startswith(one)}
    assumptions = listing(sorted(assumed - contained))
    wordings = "wordings than those of the language" if run.params.sample.language else "wordings"
    return [
        *notes,
        f"Each bound holds by itself: two of them hold together {joint_level(largest, largest)}. They assume "
        f"{assumptions}, from the engine with these settings, and say nothing about other {words.question}s or {wordings}, "
        "other temperatures, or attacks on the weights.",
    ]


def references(model: Model, run: Run) -> str:
    """What a reference is for, in words."""
    words = run.words
    return upper_first(words.base_alone if model.role == "base" else words.retrain_alone)


def drawn(model: Model) -> str:
    """The number of answers to each question."""
    return count(model.value("n"))
