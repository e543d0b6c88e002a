"""The first screen, for readers without statistics: two words per model, one figure, and what the words cover."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lethe.config.schema import Params
from lethe.measure.prompts import SHOWN_QUERIES
from lethe.measure.run import Model, Run
from lethe.report.columns import IN_WORDS, between
from lethe.results import quantities
from lethe.results.wording import FORGET, Wording
from lethe.statistics.bound import Covers, Interval, exact, significant
from lethe.text import NONE, label, listing, number, plural
from lethe.verdict.claims import Quantity, judged_by
from lethe.verdict.rules import Verdict, worst_ends
from lethe.verdict.standing import Standing

# A row of the figure, in its own units: where 0 lies, the lowest power of ten, and 1.
ZERO = 14
LOWEST = 46
ONE = 388
POWERS = range(-6, -1)  # that the axis may begin with


class Axis:
    """The axis of the figure: probabilities on a log scale with 0 apart, or mean scores on a linear one."""

    def __init__(self, verdicts: Sequence[Verdict]):
        self.graded = any(verdict.graded for verdict in verdicts)
        uppers = [verdict.worst.upper for verdict in verdicts if verdict.worst]
        smallest = min((upper for upper in uppers if upper > 0), default=1)
        fitting = [power for power in POWERS if 10 ** (power + 1) <= smallest]
        self.lowest = max(fitting, default=POWERS[0])

    def place(self, value: float) -> float:
        if self.graded or value <= 0:
            return round(ZERO + (ONE - ZERO) * value, 1)
        return round(ONE - (ONE - LOWEST) * min(1, math.log10(value) / self.lowest), 1)

    def ticks(self) -> list[tuple[float, str]]:
        if self.graded:
            return [(self.place(value), f"{value:g}") for value in (0, 0.25, 0.5, 0.75, 1)]
        ticks = [(self.place(0), "0")]
        for exponent in range(self.lowest, 1):
            power = 10.0**exponent
            ticks.append((self.place(power), f"{100 * power:g}%"))
        return ticks


@dataclass
class Line:
    """The row of a model in the figure and its table; places are in the figure's own units."""

    model: Model
    standing: Standing
    sentence: str
    attention: bool
    greedy_leaks: str = NONE
    greedy: float | None = None  # the place of the highest greedy score
    proved: str = NONE
    ends: str = NONE
    reach: tuple[float, float] | None = None  # the places of both ends of the worst question
    sort: float | str = ""
    summary: str = ""


@dataclass(frozen=True)
class Lines:
    """The figure: its rows, the places of the ends of each Retrain's worst question, and its axis."""

    rows: list[Line]
    bands: list[tuple[float, float]]
    ticks: list[tuple[float, str]]
    graded: bool


def lines(run: Run, standings: Sequence[Standing]) -> Lines:
    """The figure: a row per model with its words, the ends of its worst question and what greedy answers say."""
    axis = Axis([standing.measured for standing in standings if standing.measured])
    rows = []
    bands = []
    for model, standing in zip(run.models, standings, strict=True):
        row = _line(model, standing, axis, run)
        rows.append(row)
        if model.role == "retrain" and row.reach:
            bands.append(row.reach)
    return Lines(rows, bands, axis.ticks(), axis.graded)


def _line(model: Model, standing: Standing, axis: Axis, run: Run) -> Line:
    alone = run.words.base_alone if model.role == "base" else run.words.retrain_alone
    is_alone = standing.verdict is not None and standing.verdict.models == 1
    line = Line(
        model=model,
        standing=standing,
        sentence=standing.sentence or f"{model.name}: {alone}",
        attention=standing.attention or is_alone,
    )
    verdict = standing.measured
    worst = verdict.worst if verdict else None
    if verdict and worst:
        line.ends = worst_ends(verdict)
        line.reach = (axis.place(worst.lower), axis.place(worst.upper))
        line.sort = (worst.lower + worst.upper) / 2
        if model.role != "retrain":
            line.proved = f"{verdict.leaking} of {verdict.questions}"
    line.summary = f"{model.name}: {run.words.worst} {line.ends}"

    scores = _greedy_scores(model, "score" if axis.graded else "leak")
    if scores:
        line.greedy = axis.place(max(scores))
        line.summary += f", greedy {number(max(scores))}"
        if not axis.graded:
            leaks = sum(score > 0 for score in scores)
            line.greedy_leaks = f"{leaks} of {len(scores)}"
    return line


def _greedy_scores(model: Model, quantity: str) -> list[float]:
    scores = [row.numbers.estimate(quantity, "greedy") for row in model.questions]
    return [score for score in scores if score is not None]


def scorers(run: Run) -> list[str]:
    """The names of the scorers, the judges among them."""
    names = list(run.params.score.names)
    if isinstance(run.params, Params):
        names += run.params.judges
    return names


def drawn(run: Run) -> str:
    """The draws that the guarantees are about; empty without any."""
    draws = [covers(model, run) for model in run.models if model.drawing]
    return listing(list(dict.fromkeys(draws)))


def joint(standings: Sequence[Standing]) -> str:
    """The probability with which the ends of a model's questions fail together; empty for single questions."""
    largest_level = 0.0
    for standing in standings:
        verdict = standing.measured
        if verdict and verdict.questions > 1:
            largest_level = max(largest_level, verdict.level)
    return f"{significant(exact(largest_level), 2, 'upper'):f}" if largest_level else ""


def covers(model: Model, run: Run) -> str:
    """Which draws the bounds are about: all that shapes the distribution of the answers."""
    drawing = model.drawing
    engine = f" of the {drawing.engine} engine" if drawing and drawing.engine else ""
    settings = drawing or run.params.sample
    law = f"temperature {settings.temperature:g}"
    is_cut = settings.top_p < 1 or settings.top_k
    if settings.top_p < 1:
        law += f", top-p {settings.top_p:g}"
    if settings.top_k:
        law += f", top-k {settings.top_k}"
    threshold = model.adaptive_threshold
    if threshold is not None:
        law += f", greedy above confidence {threshold:g},"
    elif is_cut:
        law += ","
    prompt = run.params.sample.prompt
    wording = "the chat template" if prompt == "chat" else f"prompt {Path(prompt).name}"
    length = plural(settings.max_new_tokens, "token")
    return f"answers{engine} of up to {length} at {law} to {wording}"


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
    quantity, is_binary = judged_by(run)
    row = [_measured(quantity, quantity.measure(model, level))]
    if is_binary:
        asked = model.asked(SHOWN_QUERIES)
        if asked:
            middle = sum(end.value for end in asked) / 2
            row.append((between(*asked, "probability", IN_WORDS), middle))
        else:
            row.append((NONE, ""))
    utility = standing.utility
    row.append(_measured(utility.quantity, utility.own) if utility.quantity else (NONE, ""))
    return row


def _measured(quantity: Quantity, interval: Interval | None) -> tuple[str, float | str]:
    """An interval in words, and its middle, by which its column sorts."""
    if interval is None:
        return NONE, ""
    return quantity.worded(interval), (interval.lower + interval.upper) / 2


def headline(standings: Sequence[Standing], words: Wording = FORGET) -> str:
    """How many of the models under test got which verdict, in one sentence; empty without such models."""
    subjects = [standing for standing in standings if standing.verdict]
    if not subjects:
        return ""
    if len(subjects) == 1:
        subject = subjects[0]
        return f"{subject.model} {_phrase(subject.word, subject.utility.word, 1, words)}."
    models_of_pair = Counter((subject.word, subject.utility.word) for subject in subjects)
    parts = []
    for (forgetting, utility), models in models_of_pair.most_common():
        parts.append(f"{models} {_phrase(forgetting, utility, models, words)}")
    return f"Of {plural(len(subjects), 'model')} under test, {'; '.join(parts)}."


def _phrase(forgetting: str, utility: str, models: int, words: Wording) -> str:
    singular, for_many = words.verbs[forgetting]
    if models == 1:
        verb, be, their = singular, "is", "its"
    else:
        verb, be, their = for_many, "are", "their"
    state = f"{their} utility is not known" if utility == "open" else f"{be} {utility}"
    joined = "but" if (forgetting, utility) in MIXED else "and"
    return f"{verb} {joined} {state}"


def gaps(run: Run) -> list[str]:
    """The questions that the scorer of the verdict cannot judge, and the scores that are missing, one sentence each."""
    sentences = []
    unjudged = _unjudged(run)
    if unjudged:
        binary = run.params.metrics.binary
        why = "they have no keywords" if binary == "keyword_leak" else "they are out of its scope"
        scope = f"For {_share_of_questions(unjudged, run)}, {label(binary)} can judge no answer"
        sentences.append(f"{scope}, because {why}: {_first_named(unjudged)}.")
    for model in run.models:
        missing = _missing(model, run)
        if missing:
            sentences.append(f"{model.name}: {missing}.")
    return sentences


def left_out(run: Run) -> str:
    """The questions of which no answer was judged, which no word is about; empty where all were judged."""
    unjudged = _unjudged(run)
    if not unjudged:
        return ""
    questions = _share_of_questions(unjudged, run)
    return f"Nobody judged {questions}, and no word is about them: {_first_named(unjudged)}."


def _unjudged(run: Run) -> list[str]:
    """The questions without a judged answer; they are the same for every model."""
    return run.models[0].unjudged if run.models else []


def _share_of_questions(unjudged: Sequence[str], run: Run) -> str:
    return f"{len(unjudged):,} of {plural(len(run.models[0].questions), run.words.question)}"


def _first_named(questions: list[str]) -> str:
    names = listing(questions[:NAMED])
    rest = len(questions) - NAMED
    return f"{names} and {rest:,} more" if rest > 0 else names


def _missing(model: Model, run: Run) -> str:
    """The missing scores of the scorer that the verdict rests on; they count against the model."""
    counts = [row.value("binary_missing") for row in model.questions]
    known = [count for count in counts if count is not None]
    if known:
        scorer = run.params.metrics.binary
        missing = int(sum(known))
    else:  # the scorer judged nothing
        scorer = run.params.metrics.leak
        missing = int(model.value("missing") or 0)
    if not missing:
        return ""
    verb = f"is missing and counts as {run.words.a_leak}"
    if missing > 1:
        verb = f"are missing and count as {run.words.proved}"
    return f"{plural(missing, 'score')} of {label(scorer)} {verb} in the bounds"


@dataclass(frozen=True)
class Largest:
    """What holds for several bounds together: the largest alpha, what they cover, and all that they assume."""

    alpha: float
    of_worst: set[Covers]
    of_average: set[Covers]
    assumptions: str


def largest(run: Run) -> Largest | None:
    """What holds for the bounds on the worst question and on the average of all models, by the largest alpha."""
    bounds = []
    for model in run.models:
        for keys in (WORST, MEAN):
            with_bound = [key for key in keys if key in model.bounds]
            if with_bound:
                bounds.append(model.bounds[with_bound[0]])
    if not bounds:
        return None
    covered = {bound.covers for bound in bounds}
    assumed: set[str] = set()
    for bound in bounds:
        assumed.update(str(bound.assumes).split("; "))
    longest = [part for part in assumed if not _is_said_longer(part, assumed)]
    return Largest(
        alpha=max(bound.alpha for bound in bounds),
        of_worst={Covers.WORST_PROMPT, Covers.WORST_IN_LANGUAGE} & covered,
        of_average={Covers.AVERAGE, Covers.AVERAGE_IN_LANGUAGE} & covered,
        assumptions="; ".join(sorted(longest)).replace("question", run.words.question),
    )


def _is_said_longer(part: str, assumed: set[str]) -> bool:
    """Whether another assumption begins with the words of ``part``."""
    return any(other != part and other.startswith(part) for other in assumed)
