"""The first screen, for readers without statistics: two words per model, one figure, and what the words cover."""

from __future__ import annotations

import math
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
from lethe.results.verdict import Verdict, worst_ends
from lethe.statistics.bound import Bound, Covers, exact, joint_level, level, significant
from lethe.statistics.bound import coverage as level_as_text
from lethe.text import NONE, count, label, listing, number, plural, share, upper_first

# When an answer leaks, by the scorer that decides.
LEAKS_IF = {
    "keyword_leak": "it contains a keyword of its {}",
    "exact_match": "it is the expected answer, word for word",
}
KEYWORDS = {"word": "as whole words only", "substring": "inside longer words too"}


# A row of the figure, in its own units: where 0 lies, the lowest power of ten and 1, and the lowest such power.
ZERO, LOWEST, ONE, POWERS = 14, 46, 388, range(-6, -1)


class Axis:
    """The axis of the figure: probabilities on a log scale with 0 apart, or mean scores on a linear one."""

    def __init__(self, verdicts: Sequence[Verdict]):
        self.graded = any(one.graded for one in verdicts)
        uppers = [one.worst.upper for one in verdicts if one.worst and one.worst.upper > 0]
        self.lowest = max(
            (power for power in POWERS if 10 ** (power + 1) <= min(uppers, default=1)), default=POWERS[0]
        )

    def place(self, value: float) -> float:
        if self.graded or value <= 0:
            return round(ZERO + (ONE - ZERO) * value, 1)
        return round(ONE - (ONE - LOWEST) * min(1, math.log10(value) / self.lowest), 1)

    def ticks(self) -> list[tuple[float, str]]:
        if self.graded:
            return [(self.place(value), f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1)]
        powers = [10.0**power for power in range(self.lowest, 1)]
        return [(self.place(0), "0"), *((self.place(power), f"{100 * power:g}%") for power in powers)]


def lines(run: Run, said: Sequence[Standing]) -> SimpleNamespace:
    """The figure: a row per model with its words, the ends of its worst question and what greedy answers say."""
    axis = Axis([one.measured for one in said if one.measured])
    rows = [_line(model, one, axis, run) for model, one in zip(run.models, said, strict=True)]
    bands = [
        row.reach for model, row in zip(run.models, rows, strict=True) if model.role == "retrain" and row.reach
    ]
    return SimpleNamespace(rows=rows, bands=bands, ticks=axis.ticks(), graded=axis.graded)


def _line(model: Model, one: Standing, axis: Axis, run: Run) -> SimpleNamespace:
    found = one.measured
    worst, basis = found and found.worst, "score" if axis.graded else "leak"
    greedy = [value for row in model.questions if (value := row.numbers.estimate(basis, "greedy")) is not None]
    leaking = f"{sum(value > 0 for value in greedy)} of {len(greedy)}" if greedy and not axis.graded else NONE
    ends = worst_ends(found) if found and worst else NONE
    return SimpleNamespace(
        model=model.name,
        reference=one.word == "reference",
        word=one.word,
        tone=one.tone,
        utility=one.utility,
        sentence=one.sentence or references(model, run),
        attention=one.attention or (one.verdict and one.verdict.models == 1),
        proved=f"{found.leaking} of {found.questions}" if found and worst and model.role != "retrain" else NONE,
        greedy_leaks=leaking,
        greedy=axis.place(max(greedy)) if greedy else None,
        ends=ends,
        reach=(axis.place(worst.lower), axis.place(worst.upper)) if worst else None,
        sort=(worst.lower + worst.upper) / 2 if worst else "",
        told=f"{model.name}: {run.words.worst} {ends}" + (f", greedy {number(max(greedy))}" if greedy else ""),
    )


def facts(run: Run) -> list[tuple[str, str]]:
    """Date, data, models and draws, as terms with their values."""
    subjects = run.subjects or run.models
    one = f"{subjects[0].name} ({subjects[0].path})"
    others = [model.name for model in run.models if model.role != "subject"]
    sample, words = run.params.sample, run.words
    up_to = "up to " if sample.stop == "sequential" else ""
    rows = ", ".join(f"{count(rows)} {split}" for split, rows in run.rows.items() if split != "forget")
    return [
        *([("date", str(run.provenance["date"]))] if "date" in run.provenance else []),
        ("data", f"{run.kind}, {plural(len(run.forget), words.forget_question)}" + (f" ({rows})" if rows else "")),
        ("under test", one if len(subjects) == 1 else plural(len(subjects), "model")),
        *([("compared with", listing(others))] if others and run.subjects else []),
        ("answers to each", f"{up_to}{count(sample.most)} sampled, 1 greedy"),
        ("temperature", f"{sample.temperature:g}"),
        ("scores", ", ".join(map(label, scorers(run)))),
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
    says = LEAKS_IF.get(run.binary, f"{judge}{label(run.binary)} says so").format(run.words.question)
    return f"An answer {run.words.leaks} if {says}{found}."


def coverage(run: Run, said: Sequence[Standing]) -> list[str]:
    """What the words hold for, and what they say nothing about, in two sentences."""
    decided = [one.verdict for one in said if one.verdict]
    if not decided:
        return []
    noun, first = run.words.question, decided[0]
    questions = f"these {len(run.forget):,} {noun}s" if len(run.forget) > 1 else f"this one {noun}"
    about = f"the words are about {questions}" if len(decided) > 1 else f"the word is about {questions}"
    tolerance = f"{first.tau:g} of the mean score" if first.graded else f"{100 * first.tau:g}% of the answers"
    beyond = f" beyond {listing([model.name for model in run.retrains])}" if first.retrains else ""
    return [
        f"With probability {level_as_text(first.alpha)} no word on {run.words.aspect} above is false: {about}, worded and "
        f"sampled as here, with a tolerance of {tolerance}{beyond}.",
        f"They say nothing about other {noun}s or wordings, or about what an attack on the weights would reveal."
        if len(decided) > 1
        else f"It says nothing about other {noun}s or wordings, or about what an attack on the weights would reveal.",
    ]


def small_print(run: Run, said: Sequence[Standing], findings: Findings) -> str:
    """The guarantee of the ranges for readers who know statistics: level, correction, draws."""
    drawn = listing(list(dict.fromkeys(covers(model, run) for model in run.models if model.drawing)))
    if not drawn:
        return ""
    words = run.words
    worst = max((one.measured.level for one in said if one.measured and one.measured.questions > 1), default=0.0)
    joint = (
        f" The two ends of a model’s worst {words.question} hold together with those of its other {words.question}s, "
        f"except with probability {significant(exact(worst), 2, 'upper'):f} per model."
    )
    return (
        f"In statistical terms: “{words.word('leaks')}” is Holm’s test over the {words.question}s, “{words.word('forgot')}” "
        f"an intersection-union test; the words share α = {run.params.metrics.alpha:g} evenly over the models. The intervals "
        f"of utility hold together {level(findings.alpha)} or more (Bonferroni), for {drawn}."
        + (joint if worst else "")
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


def cells(model: Model, standing: Standing, run: Run, level: float) -> list[tuple[str, float | str]]:
    """The row under `head`, each text with its sort key; ``level`` is that of the interval of the first column."""
    quantity, binary = judged_by(run)
    own, utility = quantity.measure(model, level), standing.utility
    asked = model.asked(TOLD_QUERIES)
    kept = utility.own if utility.quantity else None
    return [
        (quantity.told(own), (own.lower + own.upper) / 2) if own else (NONE, ""),
        *([(between(asked) or NONE, sum(end.value for end in asked) / 2 if asked else "")] if binary else []),
        (utility.quantity.told(kept), (kept.lower + kept.upper) / 2) if utility.quantity and kept else (NONE, ""),
    ]


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
    lower, upper = (share(end.value, end.side) for end in band)
    if band[0].value > NEARLY:
        return f"above {100 * NEARLY:g}%"
    if band[0].value == 0:
        return f"at most {upper}"
    return f"{lower} to {upper}" if band[1].value <= NEARLY else f"at least {lower}"


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
        f"{assumptions}. They are about the engine with these settings, and say nothing about other {words.question}s or "
        f"{wordings}, other temperatures, or attacks on the weights.",
    ]


def references(model: Model, run: Run) -> str:
    words = run.words
    return upper_first(words.base_alone if model.role == "base" else words.retrain_alone)
