"""The first screen, for readers without statistics: two words and a sentence per model, and what these cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lethe.config.schema import Params
from lethe.evaluation.findings import Findings
from lethe.evaluation.run import Model, Run
from lethe.evaluation.standing import Aspect, Standing, Tone
from lethe.report.verdicts import gaps, references
from lethe.statistics.bound import exact, level, significant
from lethe.text import count, label, listing, plural

# When an answer leaks, by the scorer that decides.
LEAKS_IF = {
    "keyword_leak": "it contains a keyword of its question",
    "exact_match": "it is the expected answer, word for word",
}
KEYWORDS = {"word": "as whole words only", "substring": "inside longer words too"}


@dataclass(frozen=True)
class Line:
    """One model on the first screen: its words, with their tones, and the sentence of the verdict."""

    model: str
    word: str
    tone: Tone
    utility: Aspect
    sentence: str

    @property
    def reference(self) -> bool:
        """Whether the model is one that the others are compared with."""
        return self.word == "reference"


def lines(run: Run, said: Sequence[Standing]) -> list[Line]:
    """One line per model, in the run's order."""
    return [
        Line(one.model, one.word, one.tone, one.utility, one.sentence or references(model, run))
        for model, one in zip(run.models, said, strict=True)
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


def coverage(run: Run, said: Sequence[Standing]) -> list[str]:
    """What the verdicts cover and what they do not cover, one sentence each."""
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
