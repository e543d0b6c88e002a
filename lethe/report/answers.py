"""The worst answers found: untrusted text, shown and never obeyed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from lethe.evaluation.answers import DrawnAnswer, QuestionAnswers, judged, question_answers, worst_answers
from lethe.evaluation.run import Model, Run
from lethe.report.templates import visible
from lethe.text import label

SHOWN = 5
KEPT = 3  # per question, for the reader who picks the question
RULE = (
    "For each question, the sampled answer with the highest score ({scores}; among equals, the one drawn most often, "
    "then the one drawn first); of these the {shown} highest. Answers that score 0 are left out."
)

Drawn = Mapping[str, QuestionAnswers]


@dataclass(frozen=True)
class Answer:
    prompt_id: str
    question: Markup
    expected: Markup
    text: Markup
    times: int
    drawn: int
    first: int
    scores: dict[str, float | None]
    greedy: bool  # the greedy answer is the same text


def rule(run: Run) -> str:
    return RULE.format(scores=", then ".join(map(label, ranking(run))), shown=SHOWN)


def ranking(run: Run) -> list[str]:
    """The scores by which answers are ranked: the 0/1 score first, if there is one."""
    return [scorer for scorer in (run.params.metrics.binary, run.params.metrics.leak) if scorer]


def drawn(run: Run) -> dict[str, Drawn]:
    """The answers drawn from each model, by model and question; empty if the answers or their scores are absent."""
    leak = run.params.metrics.leak
    return {model.name: question_answers(model, ranking(run), leak, KEPT) or {} for model in run.models}


def worst(model: Model, run: Run, found: Drawn) -> list[Answer] | None:
    """At most ``SHOWN`` answers by the rule above; missing scores rank as zero here and are shown as missing.

    None if no answer was judged: then nothing is known about the worst answer.
    """
    if not found or not judged(model, ranking(run)):
        return None
    return [_answer(answer, run, found) for answer in worst_answers(found.values(), SHOWN)]


def _answer(answer: DrawnAnswer, run: Run, found: Drawn) -> Answer:
    row = run.forget.get(answer.prompt_id)
    return Answer(
        prompt_id=answer.prompt_id,
        question=visible(row["question"] if row else answer.prompt_id),
        expected=visible(row["answer"] if row else ""),
        text=visible(answer.text),
        times=answer.times,
        drawn=found[answer.prompt_id].drawn,
        first=answer.first,
        scores=dict(zip(ranking(run), answer.scores, strict=True)),
        greedy=answer.greedy,
    )
