"""The first screen, for readers without statistics: two words and a sentence per model, and what these cover."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.config.schema import Params
from lethe.evaluation.findings import Findings
from lethe.evaluation.run import Model, Run
from lethe.evaluation.standing import Aspect, Tone
from lethe.evaluation.wording import Wording
from lethe.report.draws import covers
from lethe.report.verdicts import ModelVerdict, hits
from lethe.statistics.bound import joint_level, level
from lethe.text import count, label, listing, percent, plural, upper_first

# When an answer leaks, by the scorer that decides.
LEAKS_IF = {
    "keyword_leak": "it contains a keyword of its question",
    "exact_match": "it is the expected answer, word for word",
}
KEYWORDS = {"word": "as whole words only", "substring": "inside longer words too"}
ELSE = {
    "intact": "it answers other questions as before",
    "damaged": "it answers other questions worse than before",
    "destroyed": "it hardly answers any question any more",
    "open": "whether it answers other questions as before is open",
}


@dataclass(frozen=True)
class Line:
    """One model on the first screen."""

    model: str
    forgetting: Aspect
    utility: Aspect
    sentence: str

    @property
    def tone(self) -> Tone:
        """The tone of the word on forgetting; a model that no longer answers anything did not succeed."""
        silent = self.utility.word == "destroyed" and self.forgetting.word == "forgot"
        return "open" if silent else self.forgetting.tone


def lines(run: Run, said: list[ModelVerdict]) -> list[Line]:
    """One line per model, in the run's order."""
    by_name = {model.name: model for model in run.models}
    return [
        Line(one.model, one.forgetting, one.utility, upper_first(_sentence(by_name[one.model], one, run)))
        for one in said
    ]


def title(run: Run) -> str:
    """The title of the page; it names the model if there is only one."""
    one, several = run.words.title
    return one.format(run.models[0].name) if len(run.models) == 1 else several


def keyword_rules(run: Run) -> list[str]:
    """How keywords are matched, in the words of params.yaml; empty if no scorer matches keywords."""
    rules = (getattr(params, "keyword_match", "") for params in run.params.score.params.values())
    return list(dict.fromkeys(rule for rule in rules if rule))


def keyword_rule(run: Run) -> str:
    """How keywords are matched, in words for readers."""
    rules = keyword_rules(run)
    return listing([f"{KEYWORDS[rule]} (score.keyword_match: {rule})" for rule in rules]) if rules else ""


def scorers(run: Run) -> list[str]:
    """What scores the answers: scorers, then judges."""
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


def coverage(run: Run, said: list[Line], findings: Findings) -> list[str]:
    """What the ranges of the first screen cover and what they do not cover, one sentence each."""
    if not any(line.forgetting.own or line.utility.own for line in said):
        return []
    noun = run.words.question
    questions = f"these {len(run.forget):,} {noun}s" if len(run.forget) > 1 else f"this one {noun}"
    up_to = "up to " if run.params.sample.stop == "sequential" else ""
    return [
        f"All ranges above are right together {joint_level(findings.alpha)}.",
        f"They apply to {questions}, worded and sampled as here, with {up_to}{count(run.params.sample.most)} answers "
        "to each.",
        f"They say nothing about other {noun}s or wordings, or about what an attack on the weights would reveal.",
    ]


def small_print(run: Run, said: list[Line], findings: Findings) -> str:
    """The guarantee for readers who know statistics: level, correction, assumptions, draws."""
    aspects = [aspect for line in said for aspect in (line.forgetting, line.utility) if aspect.own]
    if not aspects:
        return ""
    assumed = listing(sorted({bound.assumes for aspect in aspects if aspect.own for bound in aspect.own.bounds()}))
    drawn = listing(list(dict.fromkeys(covers(model, run) for model in run.models if model.drawing)))
    return (
        f"In statistical terms: confidence intervals that share α evenly (Bonferroni) and hold together "
        f"{level(findings.alpha)} or more, assuming {assumed}, for {drawn}."
    )


def _sentence(model: Model, said: ModelVerdict, run: Run) -> str:
    if not model.metrics:
        return f"no verdict: the metrics of {model.name} are missing."
    leaks, words = _leaks(model, said.forgetting, run), run.words
    if model.role == "base":
        return f"{words.before}, {leaks}." if leaks else words.base_alone
    if model.role == "retrain":
        return f"by chance, {leaks}: {words.retrain_alone}" if leaks else words.retrain_alone
    forgetting = leaks + _open(model, said.forgetting, words)
    return f"{'; '.join(part for part in (forgetting, _else(said.utility, words)) if part)}."


def _leaks(model: Model, aspect: Aspect, run: Run) -> str:
    """How much leaks, compared with what leaks by chance."""
    words = run.words
    if (stopped := model.stopped) is not None:
        return (
            f"of {plural(stopped.questions, words.question)} {stopped.certified} are certified to {words.asked_leak} in less "
            f"than {percent(stopped.tau)} of answers, {stopped.leaking} to {words.asked_leak} in more than "
            f"{percent(stopped.tau_leak)}, each {words.question} by itself"
        )
    if aspect.quantity is None or aspect.own is None:
        return ""
    told = aspect.quantity.told(aspect.own)
    beside = f", against {aspect.quantity.told(aspect.reference)} by chance" if aspect.reference else ""
    if run.binary is None:
        return f"the mean {label(run.params.metrics.leak)} of its answers is {told}{beside}"
    seen = f" ({hits(model, run)})" if aspect.word == "leaks" and not aspect.reference else ""
    return f"{told} of its answers {words.leak}{beside}{seen}"


def _open(model: Model, aspect: Aspect, words: Wording) -> str:
    """Why the verdict is open or the range wide, as the end of a clause."""
    if aspect.own is None or aspect.word == "forgot":
        return ""
    if aspect.few:
        lack = "too few to tell" if aspect.word == "open" else "few, so that the range is wide"
        n = count(model.value("n"))
        return (
            f": {n} answers to each {words.question} are {lack} (the command lethe plan says how many are needed)"
        )
    return ", too close to tell" if aspect.reference and aspect.word == "open" else ""


def _else(aspect: Aspect, words: Wording) -> str:
    """What the model can still do."""
    if aspect.own is None:
        return "what else it can do was not measured"
    if aspect.reference is None:
        return words.not_compared
    return ELSE[aspect.word]
