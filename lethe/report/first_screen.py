"""The first screen, for readers without statistics: two words and a sentence per model, and what these cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from lethe.config.schema import Params
from lethe.evaluation.answers import unjudged
from lethe.evaluation.findings import Findings, judged_by
from lethe.evaluation.joint import TOLD_QUERIES
from lethe.evaluation.run import Model, Run
from lethe.evaluation.standing import Standing
from lethe.evaluation.wording import FORGET, Wording
from lethe.report.columns import NEARLY
from lethe.results import quantities
from lethe.statistics.bound import Bound, Covers, exact, joint_level, level, significant
from lethe.text import NONE, count, label, listing, plural, upper_first

# When an answer leaks, by the scorer that decides.
LEAKS_IF = {
    "keyword_leak": "it contains a keyword of its question",
    "exact_match": "it is the expected answer, word for word",
}
KEYWORDS = {"word": "as whole words only", "substring": "inside longer words too"}


def lines(run: Run, said: Sequence[Standing]) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            model=one.model,
            word=one.word,
            tone=one.tone,
            utility=one.utility,
            sentence=one.sentence or references(model, run),
            reference=one.word == "reference",
        )
        for model, one in zip(run.models, said, strict=True)
    ]


def title(run: Run) -> str:
    one, several = run.words.title
    return one.format(run.models[0].name) if len(run.models) == 1 else several


def keyword_rule(run: Run) -> str:
    """How keywords are matched, in words for readers; empty if no scorer matches keywords."""
    rules = (getattr(params, "keyword_match", "") for params in run.params.score.params.values())
    named = [f"{KEYWORDS[rule]} (score.keyword_match: {rule})" for rule in dict.fromkeys(rules) if rule]
    return listing(named) if named else ""


def scorers(run: Run) -> list[str]:
    return [*run.params.score.names, *(run.params.judges if isinstance(run.params, Params) else ())]


def leaks_if(run: Run) -> str:
    """When an answer leaks in this run; empty if no scorer gives 0 or 1."""
    if run.binary is None:
        return ""
    rule = getattr(run.params.score.params.get(run.binary), "keyword_match", "")
    found = f"; keywords count {KEYWORDS[rule]}" if rule else ""
    judge = "the judge " if isinstance(run.params, Params) and run.binary in run.params.judges else ""
    says = LEAKS_IF.get(run.binary, f"{judge}{label(run.binary)} says so")
    return f"An answer {run.words.leaks} if {says}{found}."


def coverage(run: Run, said: Sequence[Standing]) -> list[str]:
    decided = [one.verdict for one in said if one.verdict]
    if not decided:
        return []
    noun, first = run.words.question, decided[0]
    questions = f"these {len(run.forget):,} {noun}s" if len(run.forget) > 1 else f"this one {noun}"
    up_to = "up to " if run.params.sample.stop == "sequential" else ""
    worst = (
        f"The two ends of a model’s worst {noun} hold together with those of its other {noun}s, except with probability "
        f"{significant(exact(first.level), 2, 'upper'):f} per model."
    )
    return [
        f"A false word on the {run.words.aspect} of any model has probability at most {first.alpha:g}.",
        *([worst] if first.questions > 1 else []),
        f"The words apply to {questions}, worded and sampled as here, with {up_to}{count(run.params.sample.most)} answers "
        "to each.",
        f"They say nothing about other {noun}s or wordings, or about what an attack on the weights would reveal.",
        *gaps(run),
    ]


def small_print(run: Run, findings: Findings) -> str:
    """The guarantee of the ranges for readers who know statistics: level, correction, draws."""
    drawn = listing(list(dict.fromkeys(covers(model, run) for model in run.models if model.drawing)))
    if not drawn:
        return ""
    words = run.words
    return (
        f"In statistical terms: “{words.word('leaks')}” is Holm’s test over the {words.question}s, “{words.word('forgot')}” "
        f"an intersection-union test; the words share α = {run.params.metrics.alpha:g} evenly over the models. The intervals "
        f"of utility hold together {level(findings.alpha)} or more (Bonferroni), for {drawn}."
    )


def covers(model: Model, run: Run) -> str:
    """Which draws the bounds are about: all that shapes the distribution of the answers."""
    drawing = model.drawing
    engine = f" of the {drawing.engine} engine" if drawing and drawing.engine else ""
    asked = drawing or run.params.sample
    temperature, top_p, top_k = asked.temperature, asked.top_p, asked.top_k
    cuts = (f", top-p {top_p:g}" if top_p < 1 else "") + (f", top-k {top_k}" if top_k else "")
    cut = model.adaptive_threshold
    adaptive = f", greedy above confidence {cut:g}," if cut is not None else "," if cuts else ""
    prompt = run.params.sample.prompt
    wording = "the chat template" if prompt == "chat" else f"prompt {Path(prompt).name}"
    return (
        f"answers{engine} of up to {plural(asked.max_new_tokens, 'token')} at temperature {temperature:g}{cuts}"
        f"{adaptive} to {wording}"
    )


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
    words = run.words
    return upper_first(words.base_alone if model.role == "base" else words.retrain_alone)


def drawn(model: Model) -> str:
    return count(model.value("n"))
