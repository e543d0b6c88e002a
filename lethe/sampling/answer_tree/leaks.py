"""What counts as a leak: a scorer of whole texts, turned into the question of an answer tree.

`keyword_leak` and `rouge_l` have automata, so that their trees are guided and decide answers before they end. Every other
scorer judges finished answers: the mass of an answer counts only once the answer is complete. A judge is refused, because
a judge reads one answer at a time with its own model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.errors import BadValue
from lethe.registry import JUDGES, SCORERS
from lethe.sampling.answer_tree.asking import Asker
from lethe.sampling.answer_tree.question import Question
from lethe.scoring import Question as Scored
from lethe.scoring import applies, open_scorer

if TYPE_CHECKING:
    from lethe.io.artifacts import Row

KEYWORDS, RECALL = "keyword_leak", "rouge_l"


def check_scorer(scorer: str, above: float) -> None:
    """Raise `BadValue` unless ``scorer`` is a text scorer and ``above`` a share."""
    if scorer in JUDGES:
        raise BadValue(
            "scorer",
            scorer,
            f"one of {', '.join(SCORERS)}",
            f"{scorer} is a judge: it reads answers one at a time with a model, and a tree has millions of answers. "
            "Sample answers and score those instead.",
        )
    if scorer not in SCORERS:
        raise BadValue("scorer", scorer, f"one of {', '.join(SCORERS)}")
    if not 0 <= above < 1:
        raise BadValue("above", above, "a number of at least 0 and below 1")


def is_binary(scorer: str) -> bool:
    """Whether the scorer itself decides between leak and no leak, so that ``above`` is not used."""
    return bool(getattr(SCORERS[scorer], "BINARY", False))


def leak_of(scorer: str, above: float) -> str:
    """What a leak is, in words."""
    return scorer if is_binary(scorer) else f"{scorer} above {above:g}"


def question_about(asker: Asker, row: Row, scorer: str, above: float) -> Question | None:
    """The question whether an answer to a row leaks; None where the scorer cannot judge answers to this row."""
    if not applies(scorer, row) or np.isnan(_scores(scorer, [row["answer"]], row)).any():
        return None
    if scorer == KEYWORDS:
        return asker.about_keywords(row)
    least = 1.0 if is_binary(scorer) else np.nextafter(above, 1)

    def leaks(texts: list[str]) -> np.ndarray:
        return _scores(scorer, texts, row) >= least

    return asker.about_recall(row, above, leaks) if scorer == RECALL else asker.about_scores(row, leaks)


def _scores(scorer: str, texts: list[str], row: Mapping[str, Any]) -> np.ndarray:
    return open_scorer(scorer).score([Scored(texts, row)])[0]
