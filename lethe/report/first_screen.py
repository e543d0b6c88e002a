"""The first screen, for readers without statistics: two words per model, one figure, and what the words cover."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from lethe.config.schema import Params
from lethe.evaluation.findings import judged_by
from lethe.evaluation.prompts import SHOWN_QUERIES
from lethe.evaluation.run import Model, Run
from lethe.evaluation.standing import Standing
from lethe.evaluation.wording import FORGET, Wording
from lethe.report.columns import IN_WORDS, between
from lethe.results import quantities
from lethe.results.verdict import Verdict, worst_ends
from lethe.statistics.bound import Covers, exact, significant
from lethe.text import NONE, label, listing, number, plural

# A row of the figure, in its own units: where 0 lies, the lowest power of ten and 1, and the lowest such power.
ZERO, LOWEST, ONE, POWERS = 14, 46, 388, range(-6, -1)


class Axis:
    """The axis of the figure: probabilities on a log scale with 0 apart, or mean scores on a linear one."""

    def __init__(self, verdicts: Sequence[Verdict]):
        self.graded = any(one.graded for one in verdicts)
        uppers = [one.worst.upper for one in verdicts if one.worst and one.worst.upper > 0]
        fitting = [power for power in POWERS if 10 ** (power + 1) <= min(uppers, default=1)]
        self.lowest = max(fitting, default=POWERS[0])

    def place(self, value: float) -> float:
        if self.graded or value <= 0:
            return round(ZERO + (ONE - ZERO) * value, 1)
        return round(ONE - (ONE - LOWEST) * min(1, math.log10(value) / self.lowest), 1)

    def ticks(self) -> list[tuple[float, str]]:
        if self.graded:
            return [(self.place(value), f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1)]
        powers = [10.0**power for power in range(self.lowest, 1)]
        return [
            (self.place(0), "0"),
            *((self.place(power), f"{100 * power:g}%") for power in powers),
        ]


def lines(run: Run, standings: Sequence[Standing]) -> SimpleNamespace:
    """The figure: a row per model with its words, the ends of its worst question and what greedy answers say."""
    axis = Axis([one.measured for one in standings if one.measured])
    rows = [_line(model, one, axis, run) for model, one in zip(run.models, standings, strict=True)]
    bands = [row.reach for row in rows if row.model.role == "retrain" and row.reach]
    return SimpleNamespace(rows=rows, bands=bands, ticks=axis.ticks(), graded=axis.graded)


def _line(model: Model, one: Standing, axis: Axis, run: Run) -> SimpleNamespace:
    verdict = one.measured
    worst, basis = verdict and verdict.worst, "score" if axis.graded else "leak"
    greedy = [
        value
        for row in model.questions
        if (value := row.numbers.estimate(basis, "greedy")) is not None
    ]
    leaking = (
        f"{sum(value > 0 for value in greedy)} of {len(greedy)}"
        if greedy and not axis.graded
        else NONE
    )
    ends = worst_ends(verdict) if verdict and worst else NONE
    alone = run.words.base_alone if model.role == "base" else run.words.retrain_alone
    return SimpleNamespace(
        standing=one,
        model=model,
        sentence=one.sentence or f"{model.name}: {alone}",
        attention=one.attention or (one.verdict and one.verdict.models == 1),
        proved=f"{verdict.leaking} of {verdict.questions}"
        if verdict and worst and model.role != "retrain"
        else NONE,
        greedy_leaks=leaking,
        greedy=axis.place(max(greedy)) if greedy else None,
        ends=ends,
        reach=(axis.place(worst.lower), axis.place(worst.upper)) if worst else None,
        sort=(worst.lower + worst.upper) / 2 if worst else "",
        summary=f"{model.name}: {run.words.worst} {ends}"
        + (f", greedy {number(max(greedy))}" if greedy else ""),
    )


def scorers(run: Run) -> list[str]:
    return [*run.params.score.names, *(run.params.judges if isinstance(run.params, Params) else ())]


def drawn(run: Run) -> str:
    """The draws that the guarantees are about; empty without any."""
    return listing(list(dict.fromkeys(covers(model, run) for model in run.models if model.drawing)))


def joint(standings: Sequence[Standing]) -> str:
    """The probability with which the ends of a model's questions fail together; empty for single questions."""
    measured = [one.measured for one in standings]
    worst = max((one.level for one in measured if one and one.questions > 1), default=0.0)
    return f"{significant(exact(worst), 2, 'upper'):f}" if worst else ""


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
WORST = quantities.upper_bounds(
    "model", ("leak_worst", "score_worst", "score_betting_worst"), BASES
)
MEAN = quantities.upper_bounds("model", ("leak",), BASES)


def cells(
    model: Model, standing: Standing, run: Run, level: float
) -> list[tuple[str, float | str]]:
    """A row of the numbers, each text with its sort key; ``level`` is that of the interval of the first column."""
    quantity, binary = judged_by(run)
    own, utility = quantity.measure(model, level), standing.utility
    asked = model.asked(SHOWN_QUERIES)
    interval = utility.own if utility.quantity else None
    middle = sum(end.value for end in asked) / 2 if asked else ""
    return [
        (quantity.worded(own), (own.lower + own.upper) / 2) if own else (NONE, ""),
        *(
            [(between(*asked, "probability", IN_WORDS) if asked else NONE, middle)]
            if binary
            else []
        ),
        (utility.quantity.worded(interval), (interval.lower + interval.upper) / 2)
        if utility.quantity and interval
        else (NONE, ""),
    ]


def headline(standings: Sequence[Standing], words: Wording = FORGET) -> str:
    """How many of the models under test got which verdict, in one sentence; empty without such models."""
    pairs = Counter((one.word, one.utility.word) for one in standings if one.verdict)
    if pairs.total() == 1:
        (one,) = (one for one in standings if one.verdict)
        return f"{one.model} {_phrase(one.word, one.utility.word, 1, words)}."
    parts = [f"{models} {_phrase(*pair, models, words)}" for pair, models in pairs.most_common()]
    return f"Of {plural(pairs.total(), 'model')} under test, {'; '.join(parts)}." if parts else ""


def _phrase(forgetting: str, utility: str, models: int, words: Wording) -> str:
    one, many = words.verbs[forgetting]
    verb, be = (one, "is") if models == 1 else (many, "are")
    state = (
        f"{be} {utility}"
        if utility != "open"
        else f"{'its' if models == 1 else 'their'} utility is not known"
    )
    return f"{verb} {'but' if (forgetting, utility) in MIXED else 'and'} {state}"


def gaps(run: Run) -> list[str]:
    """The questions that the scorer of the verdict cannot judge, and the scores that are missing, one sentence each."""
    sentences, binary = [], run.params.metrics.binary
    if run.models and (
        without := run.models[0].unjudged
    ):  # the questions are the same for every model
        more = f" and {len(without) - NAMED:,} more" if len(without) > NAMED else ""
        why = "they have no keywords" if binary == "keyword_leak" else "they are out of its scope"
        of = f"{len(without):,} of {plural(len(run.models[0].questions), run.words.question)}"
        named = listing(without[:NAMED]) + more
        sentences.append(f"For {of}, {label(binary)} can judge no answer, because {why}: {named}.")
    return sentences + [
        f"{model.name}: {missing}." for model in run.models if (missing := _missing(model, run))
    ]


def left_out(run: Run) -> str:
    """The questions of which no answer was judged, which no word is about; empty where all were judged."""
    if not run.models or not (without := run.models[0].unjudged):
        return ""
    more = f" and {len(without) - NAMED:,} more" if len(without) > NAMED else ""
    of = f"{len(without):,} of {plural(len(run.models[0].questions), run.words.question)}"
    return f"Nobody judged {of}, and no word is about them: {listing(without[:NAMED])}{more}."


def _missing(model: Model, run: Run) -> str:
    """The missing scores of the scorer that the verdict rests on; they count against the model."""
    scorer, counts = (
        run.params.metrics.binary,
        [row.value("binary_missing") for row in model.questions],
    )
    missing = int(sum(each or 0 for each in counts))
    if all(each is None for each in counts):  # the scorer judged nothing
        scorer, missing = run.params.metrics.leak, int(model.value("missing") or 0)
    if not missing:
        return ""
    verb = f"is missing and counts as {run.words.a_leak}"
    if missing > 1:
        verb = f"are missing and count as {run.words.proved}"
    return f"{plural(missing, 'score')} of {label(scorer)} {verb} in the bounds"


def largest(run: Run) -> SimpleNamespace | None:
    """What holds for the bounds on the worst question and on the average of all models, by the largest alpha."""
    first = (
        next(filter(None, map(model.bounds.get, keys)), None)
        for model in run.models
        for keys in (WORST, MEAN)
    )
    bounds = [bound for bound in first if bound is not None]
    covered = {bound.covers for bound in bounds}
    assumed = {part for bound in bounds for part in str(bound.assumes).split("; ")}
    contained = {
        one for one in assumed for other in assumed if other != one and other.startswith(one)
    }
    if not bounds:
        return None
    return SimpleNamespace(
        alpha=max(bound.alpha for bound in bounds),
        of_worst={Covers.WORST_PROMPT, Covers.WORST_IN_LANGUAGE} & covered,
        of_average={Covers.AVERAGE, Covers.AVERAGE_IN_LANGUAGE} & covered,
        assumptions="; ".join(sorted(assumed - contained)).replace("question", run.words.question),
    )
