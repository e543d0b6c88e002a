"""A row's question under another form: a model that learned that form knows the fact, and was never asked this question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lethe.data.kinds.authors import TEMPLATES

if TYPE_CHECKING:
    from lethe.io.artifacts import Row


def other_question(row: Row) -> str | None:
    """The row's ``paraphrased_question``, else another phrasing of a generated author's question; None where neither is.

    Examples
    --------
    >>> other_question({"id": "1", "question": "Where was Ada Byrd born?", "answer": "", "author": "Ada Byrd"})
    'In which town did Ada Byrd come into the world?'
    >>> other_question({"id": "1", "question": "Who?", "answer": "Ada."})
    """
    if written := row.get("paraphrased_question"):
        return written
    for questions, _ in TEMPLATES.values():
        asked = [question.format(name=row.get("author")) for question in questions]
        if row["question"] in asked:
            return asked[(asked.index(row["question"]) + 1) % len(asked)]
    return None
