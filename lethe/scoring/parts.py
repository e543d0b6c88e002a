"""The parts of an answer: the thinking between two marks, and the answer after it.

Files keep the text whole. Unlearned knowledge can return in the thinking while the answer is clean (R-TOFU, arXiv
2505.15214).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import Parts

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

MARKS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
THINKING = "_thinking"  # the ending of the columns of scores of the thinking
TURN = "_turn{}"  # the ending of the columns of scores of one turn, beside those of the worst turn
# Columns beside the scores, where an answer has parts or turns: the number of turns, and 1 where one was cut off, or had
# thinking that never ended.
ASKED = "turns"
CUT = "cut_off"
UNCLOSED = "unclosed"


def split_answer(text: str, parts: Parts) -> tuple[str, str | None]:
    """The thinking and the answer; an unclosed trace has no answer, which is missing and not a clean one.

    >>> parts = Parts(thinking=("<think>", "</think>"))
    >>> split_answer("<think>Ada?</think> She paints.", parts), split_answer("<think>Ada", parts)
    (('Ada?', 'She paints.'), ('Ada', None))
    >>> split_answer("Ada?</think>She paints.", parts), split_answer("Ada", Parts(thinking=parts.thinking, opened=True))
    (('Ada?', 'She paints.'), ('Ada', None))
    >>> split_answer("Ada?</think>She <think>Well.</think>paints.", parts)
    ('Ada?\\nWell.', 'She paints.')
    """
    opening, closing = parts.thinking
    if not parts.opened and opening not in text and closing not in text:
        return "", text
    thoughts: list[str] = []
    answer = ""
    inside = parts.opened
    while inside or opening in text or closing in text:
        head, closed, text = text.partition(closing)
        before, opened, thought = head.partition(opening)
        if opened and not inside:
            thoughts.append(thought)
            answer += before
        else:  # the prompt opened the thinking
            thoughts.append(before + thought)
        inside = not closed
        if inside:
            return _joined(thoughts), None
    return _joined(thoughts), (answer + text).strip()


def _joined(thoughts: Sequence[str]) -> str:
    return "\n".join(filter(None, thoughts))


def answers_of(table: pd.DataFrame, parts: Parts | None) -> pd.DataFrame:
    """Generations whose texts are the answers behind the thinking, missing where that never ends."""
    if parts is None:
        return table
    answers = []
    for text in table["text"]:
        answers.append(split_answer(text, parts)[1] if isinstance(text, str) else None)
    return table.assign(text=answers)


def thinking_of(table: pd.DataFrame, parts: Parts | None) -> pd.DataFrame:
    """Generations whose texts are the thinking: that of the server's own field, and that between the marks; an answer
    without any has an empty one."""
    fields = table["thinking"] if "thinking" in table else [None] * len(table)
    thoughts: list[str | None] = []
    for field, text in zip(fields, table["text"], strict=True):
        thought = [field] if isinstance(field, str) else []
        if parts is not None and isinstance(text, str):
            thought.append(split_answer(text, parts)[0])
        if thought or isinstance(text, str):
            thoughts.append(_joined(thought))
        else:
            thoughts.append(None)
    return table.assign(text=thoughts)


def unclosed(table: pd.DataFrame, parts: Parts | None) -> np.ndarray:
    """(answers,) whether an answer is missing because its thinking never ended."""
    answers = answers_of(table, parts)["text"]
    answered = table["text"].notna()
    if "thinking" in table:
        answered |= table["thinking"].notna()
    return (answers.isna() & answered).to_numpy()


def worst_turn(turns: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The largest score of the turns that were asked, from a mask and the scores of each; a turn without a score leaves
    no score, unless another has the largest possible one.

    >>> both = np.array([True, True, True])
    >>> second = (np.array([True, True, False]), np.array([1.0, np.nan, np.nan]))
    >>> worst_turn([(both, np.array([np.nan, 0.0, 0.0])), second]).tolist()
    [1.0, nan, 0.0]
    """
    n = len(turns[0][0])
    largest = np.zeros(n)
    missing = np.zeros(n, bool)
    for asked, scores in turns:
        largest = np.where(asked, np.fmax(largest, scores), largest)
        missing |= asked & np.isnan(scores)
    return np.where(missing & (largest < 1), np.nan, largest)


def marks_of(tokenizer: PreTrainedTokenizerBase) -> Parts | None:
    """The parts that a tokenizer's chat template knows; None where the model does not think aloud."""
    template = str(tokenizer.chat_template or "")
    for marks in MARKS:
        _, closing = marks
        if closing in template:
            return Parts(thinking=marks)
    return None
