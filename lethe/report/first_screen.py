"""The first screen, for readers without statistics: two words per model, one figure, and what the words cover."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lethe.config.schema import Params
from lethe.measure.prompts import SHOWN_QUERIES
from lethe.measure.run import Run, RunModel
from lethe.report.columns import IN_WORDS, between
from lethe.results import quantities
from lethe.results.wording import FORGET, Wording
from lethe.statistics.bound import Bound, Covers, Interval, exact, significant
from lethe.text import NONE, label, listing, number, plural
from lethe.verdict.finding import LEAKAGE, Findings
from lethe.verdict.standing import Standing
from lethe.verdict.verdict import Verdict

# A row of the figure, in its own units: where 0 lies, the lowest power of ten, and 1.
ZERO = 14
LOWEST = 46
ONE = 388
POWERS = range(-6, -1)  # that the axis may begin with
QUARTERS = (0, 0.25, 0.5, 0.75, 1)


class Axis:
    """The axis of the figure: probabilities on a log scale with 0 apart, or mean scores on a linear one.

    ``graded`` says that it is linear, ``lowest`` is the power of ten at which the log scale begins.
    """

    def __init__(self, verdicts: Sequence[Verdict]):
        self.graded = any(verdict.graded for verdict in verdicts)
        smallest = 1.0
        for verdict in verdicts:
            if verdict.worst and verdict.worst.upper > 0:
                smallest = min(smallest, verdict.worst.upper)
        fitting = [power for power in POWERS if 10 ** (power + 1) <= smallest]
        self.lowest = max(fitting, default=POWERS[0])

    def place(self, value: float) -> float:
        """The place of a value in [0, 1], in the figure's own units; a smaller value than the scale has is at its start."""
        if self.graded or value <= 0:
            return round(ZERO + (ONE - ZERO) * value, 1)
        from_one = min(1, math.log10(value) / self.lowest)
        return round(ONE - (ONE - LOWEST) * from_one, 1)

    def ticks(self) -> list[tuple[float, str]]:
        """The places of the axis that have a text, with it."""
        if self.graded:
            return [(self.place(quarter), f"{quarter:g}") for quarter in QUARTERS]
        ticks = [(self.place(0), "0")]
        for exponent in range(self.lowest, 1):
            power = 10.0**exponent
            ticks.append((self.place(power), f"{100 * power:g}%"))
        return ticks


@dataclass
class Line:
    """The row of a model in the figure and its table; places are in the figure's own units.

    ``greedy_leaks`` says how many greedy answers leak, ``proved`` how many questions are proved to, and ``ends`` both ends of
    the worst question, in words. ``sort`` is the middle of these ends, and ``summary`` the row for those who cannot see it.
    """

    model: RunModel
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
    """The figure: a row per model with its words, the ends of its worst question and what greedy answers say.

    ``standings`` are the words on the models of the run, in their order.
    """
    verdicts = []
    for standing in standings:
        if standing.measured:
            verdicts.append(standing.measured)
    axis = Axis(verdicts)
    rows = []
    bands = []
    for model, standing in zip(run.models, standings, strict=True):
        row = _line(model, standing, axis, run)
        rows.append(row)
        if model.role == "retrain" and row.reach:
            bands.append(row.reach)
    return Lines(rows, bands, axis.ticks(), axis.graded)


def _line(model: RunModel, standing: Standing, axis: Axis, run: Run) -> Line:
    alone = run.words.retrain_alone
    if model.role == "base":
        alone = run.words.base_alone
    is_alone = standing.verdict is not None and standing.verdict.models == 1
    line = Line(
        model=model,
        standing=standing,
        sentence=standing.sentence or f"{model.name}: {alone}",
        attention=standing.attention or is_alone,
    )
    verdict = standing.measured
    if verdict and verdict.worst:
        worst = verdict.worst
        line.ends = standing.ends
        line.reach = (axis.place(worst.lower), axis.place(worst.upper))
        line.sort = (worst.lower + worst.upper) / 2
        if model.role != "retrain":
            line.proved = f"{verdict.leaking} of {verdict.questions}"
    line.summary = f"{model.name}: {run.words.worst} {line.ends}"
    _add_greedy(line, axis)
    return line


def _add_greedy(line: Line, axis: Axis) -> None:
    """Add to a row what its model's greedy answers say: the highest score, and how many of them leak."""
    quantity = "leak"
    if axis.graded:
        quantity = "score"
    scores = []
    for question in line.model.questions:
        score = question.numbers.estimate(quantity, "greedy")
        if score is not None:
            scores.append(score)
    if not scores:
        return
    highest = max(scores)
    line.greedy = axis.place(highest)
    line.summary += f", greedy {number(highest)}"
    if not axis.graded:
        leaks = sum(score > 0 for score in scores)
        line.greedy_leaks = f"{leaks} of {len(scores)}"


def access(run: Run) -> str:
    """What the numbers of the page need of a model at most: answers only, log-probabilities or weights; empty without any."""
    kinds = [row.kind for model in run.models for row in model.numbers.rows]
    needed = quantities.access_of(kinds)
    return "" if needed is None else quantities.SAID[needed]


def scorers(run: Run) -> list[str]:
    """The names of the scorers, the judges among them."""
    names = list(run.params.score.names)
    if isinstance(run.params, Params):
        names += run.params.judges
    return names


def drawn(run: Run) -> str:
    """The draws that the guarantees are about; empty without any."""
    draws: list[str] = []
    for model in run.models:
        if not model.drawing:
            continue
        draw = covers(model, run)
        if draw not in draws:
            draws.append(draw)
    return listing(draws)


def joint(standings: Sequence[Standing]) -> str:
    """The probability with which the ends of a model's questions fail together; empty for single questions."""
    largest_level = 0.0
    for standing in standings:
        verdict = standing.measured
        if verdict and verdict.questions > 1:
            largest_level = max(largest_level, verdict.level)
    if not largest_level:
        return ""
    return f"{significant(exact(largest_level), 2, 'upper'):f}"


def covers(model: RunModel, run: Run) -> str:
    """Which draws the bounds are about: all that shapes the distribution of the answers."""
    drawing = model.drawing
    engine = ""
    if drawing and drawing.engine:
        engine = f" of the {drawing.engine} engine"
    asked = run.params.models[model.name].asked(run.params.sample)
    settings = drawing or asked
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
    wording = _prompt(asked.prompt)
    length = plural(settings.max_new_tokens, "token")
    return f"answers{engine} of up to {length} at {law} to {wording}"


def prompts(run: Run) -> dict[str, list[str]]:
    """The names of the models by the wording of their prompt, in the order of the run."""
    names_of_wording: dict[str, list[str]] = {}
    for model in run.models:
        wording = _prompt(run.params.models[model.name].asked(run.params.sample).prompt)
        names_of_wording.setdefault(wording, []).append(model.name)
    return names_of_wording


def _prompt(prompt: str) -> str:
    """The name of a template: that of its file, or the text itself between quotes."""
    if prompt == "chat":
        return "the chat template"
    if "{question}" in prompt:
        return f"the prompt {prompt!r}"
    return f"prompt {Path(prompt).name}"


MIXED = {("forgot", "damaged"), ("forgot", "destroyed"), ("open", "damaged"), ("open", "destroyed")}
NAMED = 5  # questions that a sentence names
ABSENT: tuple[str, float | str] = (NONE, "")  # a cell without a number, and its sort key
# The bounds of the numbers beside the verdicts; the first that a model has counts.
BASES = ("labelled", "judged", "sampled", "anytime")
WORST = quantities.upper_bounds(
    "model", ("leak_worst", "score_worst", "score_betting_worst"), BASES
)
MEAN = quantities.upper_bounds("model", ("leak",), BASES)


def cells(
    model: RunModel, standing: Standing, run: Run, found: Findings
) -> list[tuple[str, float | str]]:
    """A row of the numbers, each text with its sort key: mean leakage, leaks of several answers if judged, utility."""
    row = []
    leakage = found.about(model.name, LEAKAGE)
    if leakage is None:
        row.append(ABSENT)
    else:
        row.append(_measured(leakage.sentence, leakage.interval))
    if run.binary is not None:
        row.append(_leak_of_several(model))
    utility = standing.utility
    row.append(_measured(utility.shown, utility.interval))
    return row


def _leak_of_several(model: RunModel) -> tuple[str, float | str]:
    """The probability that one of `SHOWN_QUERIES` answers leaks, as text with its sort key."""
    asked = model.asked(SHOWN_QUERIES)
    if not asked:
        return ABSENT
    lower, upper = asked
    shown = between(lower, upper, "probability", IN_WORDS)
    return shown, (lower.value + upper.value) / 2


def _measured(shown: str, interval: Interval | None) -> tuple[str, float | str]:
    """An interval in words, and its middle, by which its column sorts."""
    if interval is None:
        return ABSENT
    return shown, (interval.lower + interval.upper) / 2


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
    """What is said of so many models that got both words; *but* joins words that speak against each other."""
    verb, verb_of_several = words.verbs[forgetting]
    state = f"is {utility}"
    if utility == "open":
        state = "its utility is not known"
    if models > 1:
        verb = verb_of_several
        state = f"are {utility}"
        if utility == "open":
            state = "their utility is not known"
    joined = "and"
    if (forgetting, utility) in MIXED:
        joined = "but"
    return f"{verb} {joined} {state}"


def gaps(run: Run) -> list[str]:
    """The questions that the scorer of the verdict cannot judge, and the scores that are missing, one sentence each."""
    sentences = []
    unjudged = _unjudged(run)
    if unjudged:
        binary = run.params.metrics.binary
        why = "they are out of its scope"
        if binary == "keyword_leak":
            why = "they have no keywords"
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
    if not run.models:
        return []
    return run.models[0].unjudged


def _share_of_questions(unjudged: Sequence[str], run: Run) -> str:
    questions = plural(len(run.models[0].questions), run.words.question)
    return f"{len(unjudged):,} of {questions}"


def _first_named(questions: list[str]) -> str:
    names = listing(questions[:NAMED])
    rest = len(questions) - NAMED
    if rest <= 0:
        return names
    return f"{names} and {rest:,} more"


def _missing(model: RunModel, run: Run) -> str:
    """The missing scores of the scorer that the verdict rests on; they count against the model."""
    counts = []
    for question in model.questions:
        missing_of_question = question.value("binary_missing")
        if missing_of_question is not None:
            counts.append(missing_of_question)
    if counts:
        scorer = run.params.metrics.binary
        missing = int(sum(counts))
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
            bound = _first_of(keys, model)
            if bound is not None:
                bounds.append(bound)
    if not bounds:
        return None

    alpha = 0.0
    covered: set[Covers] = set()
    assumed: set[str] = set()
    for bound in bounds:
        alpha = max(alpha, bound.alpha)
        covered.add(bound.covers)
        assumed.update(str(bound.assumes).split("; "))
    longest = [part for part in assumed if not _is_said_longer(part, assumed)]
    assumptions = "; ".join(sorted(longest))
    return Largest(
        alpha=alpha,
        of_worst={Covers.WORST_PROMPT, Covers.WORST_IN_LANGUAGE} & covered,
        of_average={Covers.AVERAGE, Covers.AVERAGE_IN_LANGUAGE} & covered,
        assumptions=assumptions.replace("question", run.words.question),
    )


def _first_of(keys: Sequence[str], model: RunModel) -> Bound | None:
    """The first of these bounds that the model has."""
    for key in keys:
        if key in model.bounds:
            return model.bounds[key]
    return None


def _is_said_longer(part: str, assumed: set[str]) -> bool:
    """Whether another assumption begins with the words of ``part``."""
    return any(other != part and other.startswith(part) for other in assumed)
