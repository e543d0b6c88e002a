"""The verdict on each model in words: plain first, then in full with the guarantees. `lethe.evaluation.standing` decides."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lethe.evaluation import labelled
from lethe.evaluation.answer_scores import unjudged
from lethe.evaluation.findings import Findings, judged_by
from lethe.evaluation.judged import POOLED, WORST
from lethe.evaluation.leaks_at_k import TOLD_QUERIES
from lethe.evaluation.recorded import QuestionRecord
from lethe.evaluation.run import Model, Run
from lethe.evaluation.standing import Aspect, Standing, Tone, standings
from lethe.evaluation.wording import FORGET, Wording
from lethe.report.draws import covers
from lethe.statistics.bound import Bound, Covers, joint_level
from lethe.text import NONE, count, label, listing, number, percent, plural, upper_first

MIXED = {("forgot", "damaged"), ("forgot", "destroyed"), ("open", "damaged"), ("open", "destroyed")}
NEARLY = 0.999  # a larger probability is not distinguished from certainty
NAMED = 5  # questions that a sentence names


@dataclass(frozen=True)
class ModelVerdict:
    """One model for readers: two words, a row of the first table, plain sentences, and the guarantees in full."""

    model: str
    standing: str
    forgetting: Aspect
    utility: Aspect
    cells: list[str]  # under `HEAD`
    plain: str
    full: str

    @property
    def tone(self) -> Tone:
        """The tone of the worse of the two words."""
        return "bad" if self.utility.tone == "bad" else self.forgetting.tone

    @property
    def sentence(self) -> str:
        """Both texts as one, for readers that show a single text."""
        return f"{self.plain} In full: {self.full}" if self.plain else self.full


def verdicts(run: Run, findings: Findings) -> list[ModelVerdict]:
    by_name = {model.name: model for model in run.models}
    return [_verdict(by_name[standing.model], standing, run) for standing in standings(run, findings)]


def _verdict(model: Model, standing: Standing, run: Run) -> ModelVerdict:
    return ModelVerdict(
        model=model.name,
        standing=run.words.references.get(model.role, run.words.words(standing.words)),
        forgetting=standing.forgetting,
        utility=standing.utility,
        cells=_cells(model, standing, run),
        plain=plain(model, standing, run),
        full=sentence(model, run),
    )


def head(run: Run) -> list[str]:
    """The columns of the first table after the model's name."""
    binary, leak = judged_by(run)[1], label(run.params.metrics.leak)
    leaks = f"answers with {label(run.params.metrics.binary)}" if binary else f"mean {leak} of the answers"
    words = run.words
    asked = [f"worst {words.question}, asked {TOLD_QUERIES:,} times, {words.asked_leaks}"] if binary else []
    return [
        words.aspect,
        "utility",
        leaks,
        *asked,
        f"{label(run.params.metrics.kept)} where it should still answer",
    ]


def _cells(model: Model, standing: Standing, run: Run) -> list[str]:
    forgetting, utility = standing.forgetting, standing.utility
    asked = [between(model.asked(TOLD_QUERIES)) or NONE] if judged_by(run)[1] else []
    return [
        run.words.word(forgetting.word),
        utility.word,
        _told(forgetting) or NONE,
        *asked,
        _told(utility) or NONE,
    ]


def headline(said: list[ModelVerdict], words: Wording = FORGET) -> str:
    """How many of the models under test got which verdict, in one sentence; empty without such models."""
    pairs = Counter((one.forgetting.word, one.utility.word) for one in said if one.forgetting.word != "reference")
    if pairs.total() == 1:
        (one,) = (one for one in said if one.forgetting.word != "reference")
        return f"{one.model} {_phrase(one.forgetting.word, one.utility.word, 1, words)}."
    parts = [f"{models} {_phrase(*pair, models, words)}" for pair, models in pairs.most_common()]
    return f"Of {plural(pairs.total(), 'model')} under test, {'; '.join(parts)}." if parts else ""


def _phrase(forgetting: str, utility: str, models: int, words: Wording) -> str:
    one, many = words.verbs[forgetting]
    verb, be = (one, "is") if models == 1 else (many, "are")
    state = f"{be} {utility}" if utility != "open" else f"{'its' if models == 1 else 'their'} utility is not known"
    return f"{verb} {'but' if (forgetting, utility) in MIXED else 'and'} {state}"


def plain(model: Model, standing: Standing, run: Run) -> str:
    """What a reader without statistics needs: how much leaks, how often, and what the model can still do."""
    if not model.metrics or standing.forgetting.word == "reference":
        return ""
    said = [_forgetting(model, standing.forgetting, run), _asked(model, run), _labelled(model, run, plainly=True)]
    said.append(_utility(model, standing, run))
    return " ".join(part for part in [*said, *_gaps(model, run)] if part)


def _forgetting(model: Model, aspect: Aspect, run: Run) -> str:
    name, claim, words = model.name, _claim(aspect, run), run.words
    if aspect.word == "leaks":
        said = f"{name} {words.leaks}"
        return f"{said}: {claim if aspect.reference else hits(model, run)}." if claim else f"{said}."
    if aspect.word == "forgot":
        said = f"{name} {words.own}, as far as its answers show"
        return f"{said}: {claim}." if claim else f"{said}."
    whether = f"Whether {name} {words.own} is open"
    if not claim:
        return f"{whether}."
    if aspect.few:
        n = count(model.value("n"))
        return (
            f"{whether}: {n} answers to each {words.question} are too few. Even if none {words.leaked}, the share that "
            f"{words.leaks} could not be shown to be small; the command lethe plan says how many answers are needed. "
            f"Here {claim}."
        )
    if aspect.reference:
        return f"{whether}: {claim}. Neither {words.a_leak} beyond chance nor its absence is shown."
    return f"{whether}: {claim}{words.no_retrain}."


def _claim(aspect: Aspect, run: Run) -> str:
    """How much leaks, compared with Retrain; empty without an interval."""
    if aspect.quantity is None or aspect.own is None:
        return ""
    told, retrain = aspect.quantity.told(aspect.own), run.role("retrain")
    chance = aspect.quantity.told(aspect.reference) if aspect.reference else ""
    if judged_by(run)[1]:
        said = f"{told} of its answers show {label(run.params.metrics.binary)}"
        beside = f", against {chance} of those of" if chance else ""
    else:
        said, beside = f"its {aspect.quantity.words} is {told}", f", against {chance} of" if chance else ""
    return said + (f"{beside} {retrain.name}, {run.words.retrain_clause}" if retrain and chance else "")


def _asked(model: Model, run: Run) -> str:
    """Leak@k of the worst question, compared with Retrain, which leaks only by chance."""
    band, retrain, words = between(model.asked(TOLD_QUERIES)), run.role("retrain"), run.words
    if not band:
        return ""
    chance = between(retrain.asked(TOLD_QUERIES)) if retrain else ""
    beside = f"; that of {retrain.name} does, by chance, with probability {chance}" if retrain and chance else ""
    return f"Asked {TOLD_QUERIES:,} times, {words.worst} {words.asked_leaks} with probability {band}{beside}."


def _utility(model: Model, standing: Standing, run: Run) -> str:
    aspect, base = standing.utility, run.role("base")
    if aspect.own is None or aspect.quantity is None:
        return "Its utility was not measured: there are no answers to questions that it should still answer."
    told = f"{aspect.quantity.words} {aspect.quantity.told(aspect.own)}"
    if aspect.reference is None or base is None:
        return f"Its utility is open, because {run.words.no_base}: {told}."
    before = f"{told}, against {aspect.quantity.told(aspect.reference)} of {base.name}"
    silence = f" {run.words.silence}" if standing.forgetting.word != "leaks" else ""
    return f"Its utility is {aspect.word}: {before}.{silence if aspect.word == 'destroyed' else ''}"


def _gaps(model: Model, run: Run) -> list[str]:
    """Missing scores of the verdict's own scorer, and the questions that it could not judge."""
    binary, without = run.params.metrics.binary, unjudged(model)
    missing = _missing(model, run)
    said = [f"{upper_first(missing)}."] if missing else []
    if without:
        named = listing(without[:NAMED]) + (f" and {len(without) - NAMED:,} more" if len(without) > NAMED else "")
        of = f"{len(without):,} of {plural(len(model.questions), run.words.question)}"
        why = "they have no keywords" if binary == "keyword_leak" else "they are out of its scope"
        said.append(f"For {of}, {label(binary)} can judge no answer, because {why}: {named}.")
    return said


def _told(aspect: Aspect) -> str:
    return aspect.quantity.told(aspect.own) if aspect.quantity and aspect.own else ""


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


def sentence(model: Model, run: Run) -> str:
    """Only bounds that the metrics hold enter the sentence; each says whose: the worst or the average."""
    metrics = model.metrics
    if not metrics:
        return f"No verdict: the metrics of {model.name} are missing."
    if model.stopped is not None:
        return _stopped_early(model, run)
    claims = _claims(model, run)
    if not claims:
        return f"No bound for a fixed number of answers holds here; what was observed: {_seen(model, run)}."
    first = claims[0][1]
    each = "each " if len(claims) > 1 else ""
    return (
        f"{upper_first(' and '.join(words for words, _ in claims))}, {each}{first.level()}, assuming {first.assumes}, for "
        f"{covers(model, run)}; {_certified(model)}{_seen(model, run)}.{_true_leaks(model, run)}{_labelled(model, run)}"
    )


def _true_leaks(model: Model, run: Run) -> str:
    """What the judge's measured error makes of its verdicts, where the error was measured; begins with a space."""
    worst, pooled = model.bounds.get(WORST), model.bounds.get(POOLED)
    if worst is None:
        return ""
    name, words = label(run.params.metrics.binary), run.words
    mean = f"{pooled.relation} {pooled.percent()} {pooled.on(words.questions)} and " if pooled else ""
    misfit = (
        ""
        if model.value("judge_fits")
        else " The verdicts do not fit the labelled answers, so this bound means nothing."
    )
    found, alarms = (percent(model.value(f"judge_{key}")) for key in ("sensitivity", "false_positive"))
    answers = count(model.value("judge_labelled"))
    return (
        f" These are verdicts of {name}, which called {found} of the {words.labelled_leaks} and {alarms} of the clean ones "
        f"among {answers} labelled answers {words.a_leak}. With this error included, the true probability of "
        f"{words.a_leak} is {mean}{worst.relation} {worst.percent()} {worst.on(words.questions)}, each {worst.level()}, "
        f"assuming {worst.assumes} ({worst.method}).{misfit}"
    )


def _labelled(model: Model, run: Run, plainly: bool = False) -> str:
    """What a person's labels of the model's own answers say, in full after a space; empty without labels."""
    worst, pooled = model.bounds.get(labelled.WORST), model.bounds.get(labelled.POOLED)
    mass, words = model.value(labelled.MASS), run.words
    if worst is None or mass is None:
        return ""
    mean = f"{pooled.relation} {pooled.percent()} {pooled.on(words.questions)} and " if pooled else ""
    read = labelled.source(mass, bool(model.metrics.get(labelled.JUDGE)))
    claim = f"the true probability of {words.a_leak} is {mean}{worst.relation} {worst.percent()} {worst.on(words.questions)}"
    said = f"{upper_first(read)}, {claim}"
    return f"{said}." if plainly else f" {said}, each {worst.level()}, assuming {worst.assumes} ({worst.method})."


def _claims(model: Model, run: Run) -> list[tuple[str, Bound]]:
    """The bounds of the verdict, each with its clause."""
    total, judged = len(model.questions), sum(row.m_bin is not None for row in model.questions)
    noun = run.words.forget_question
    everything = f"all {plural(total, noun)}"
    named = everything if judged == total else f"the {judged:,} judged of {plural(total, noun)}"
    pooled, worst, mean = map(model.bounds.get, ("m_bin_pooled", "m_bin_worst", "tighter_mean_worst"))
    if worst is None:
        score = label(run.params.metrics.leak)
        told = (
            mean
            and f"the mean {score} is {mean.relation} {mean.number()} {mean.on(everything)} (by {mean.method})"
        )
        return [(told, mean)] if told and mean else []
    leak = label(run.params.metrics.binary)
    if pooled is None:
        return [(f"{worst.relation} {worst.percent()} of answers show {leak} {worst.on(named)}", worst)]
    return [
        (f"{pooled.relation} {pooled.percent()} of answers show {leak} {pooled.on(named)}", pooled),
        (f"{worst.relation} {worst.percent()} {worst.on('them')}", worst),
    ]


def _certified(model: Model) -> str:
    """What holds of all questions together, where a correction was asked."""
    claim, certified = model.certificate, model.value("certified_together")
    if claim is None or certified is None:
        return ""
    return f"{certified} certified together at {claim.relation} {claim.percent()}, {claim.level()} (by {claim.method}); "


def _stopped_early(model: Model, run: Run) -> str:
    """The verdict where questions stopped early: tests that hold at every number of answers at once."""
    stopped, upper = model.stopped, model.bounds.get("anytime_upper_worst")
    if stopped is None or upper is None:
        return f"No verdict: the guarantees of {model.name} are missing."
    leak, words = label(stopped.scorer), run.words
    questions = plural(stopped.questions, words.forget_question)
    return (
        f"Of {questions} {stopped.certified} are certified to show {leak} in less than "
        f"{percent(stopped.tau)} of answers, {stopped.leaking} to show it in more than "
        f"{percent(stopped.tau_leak)}, and {stopped.undecided} are undecided, each {words.question} for itself "
        f"{upper.level()} at whatever number of answers it stopped, assuming {upper.assumes}, for {covers(model, run)}; "
        f"{upper.relation} {upper.percent()} {upper.on('them')}; {count(stopped.drawn)} answers drawn, "
        f"{percent(stopped.saved_share)} saved."
    )


def verdict_alpha(run: Run) -> float | None:
    """The alpha of the verdicts' bounds; None where no model has one."""
    return max((bound.alpha for bound in _verdict_bounds(run)), default=None)


def _verdict_bounds(run: Run) -> list[Bound]:
    bounds = [bound for model in run.models for _, bound in _claims(model, run)]
    return bounds + [
        model.bounds["anytime_upper_worst"] for model in run.models if "anytime_upper_worst" in model.bounds
    ]


def guarantee_notes(run: Run) -> list[str]:
    """What the bounds of the verdicts say and do not say; shown below the verdicts."""
    bounds = _verdict_bounds(run)
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


def _seen(model: Model, run: Run) -> str:
    """What the answers showed: facts, not estimates."""
    missing = _missing(model, run)
    tail = f"; {missing}" if missing else ""
    if not _judged(model):
        score, greedy, mean = (
            label(run.params.metrics.leak),
            number(model.value("greedy_mean")),
            model.value("mean"),
        )
        return f"greedy answers have a mean {score} of {greedy}, sampled answers one of {number(mean)}{tail}"
    greedy_hits = sum((row.binary_greedy or 0) > 0 for row in _judged(model))
    return f"{hits(model, run)}, {greedy_hits:,} in the greedy answer{tail}"


def hits(model: Model, run: Run) -> str:
    """How many questions leaked in the sampled answers."""
    judged = _judged(model)
    hits, drawn = sum((row.binary_share or 0) > 0 for row in judged), count(model.value("n"))
    words = run.words
    leaked = (
        f"had an answer that the judge calls {words.a_leak}"
        if model.calibration
        else f"{words.asked_leaked} at least once"
    )
    return f"{hits:,} of {plural(len(judged), words.question)} {leaked} in {drawn} sampled answers"


def _judged(model: Model) -> list[QuestionRecord]:
    return [row for row in model.questions if row.binary_share is not None]


def _missing(model: Model, run: Run) -> str:
    """The missing scores of the scorer that the verdict rests on; they count against the model."""
    if _judged(model) or unjudged(model):
        scorer, missing = run.params.metrics.binary, sum(row.binary_missing or 0 for row in model.questions)
    else:
        scorer, missing = run.params.metrics.leak, int(model.value("missing") or 0)
    if not missing:
        return ""
    what = plural(missing, "score")
    words = run.words
    verb = (
        f"is missing and counts as {words.a_leak}" if missing == 1 else f"are missing and count as {words.proved}"
    )
    return f"{what} of {label(scorer)} {verb} in the bounds"
