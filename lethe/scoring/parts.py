"""The parts of an answer: the thinking between two marks, and the answer after it. Files keep the text whole.

Unlearned knowledge can return in the thinking while the answer is clean (R-TOFU, arXiv 2505.15214).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lethe.config.evaluating import Parts

if TYPE_CHECKING:
    import pandas as pd

KNOWN = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
THINKING = "_thinking"  # the ending of the columns of scores of the thinking


def split(text: str, parts: Parts) -> tuple[str, str | None]:
    """The thinking and the answer; an unclosed trace has no answer, which is missing and not a clean one.

    Examples
    --------
    >>> parts = Parts(thinking=("<think>", "</think>"))
    >>> split("<think>Ada?</think> She paints.", parts), split("She paints.", parts), split("<think>Ada", parts)
    (('Ada?', 'She paints.'), ('', 'She paints.'), ('Ada', None))
    >>> split("Ada?</think>She paints.", parts), split("Ada", Parts(thinking=parts.thinking, opened=True))
    (('Ada?', 'She paints.'), ('Ada', None))
    """
    opening, closing = parts.thinking
    before, opened, rest = text.partition(opening)
    if not opened:
        before, rest = "", text
        if closing not in text:
            return (text, None) if parts.opened else ("", text)
    thinking, closed, after = rest.partition(closing)
    if not closed:
        return thinking, None
    more, answer = split(after, Parts(thinking=parts.thinking))
    return "\n".join(filter(None, (thinking, more))), None if answer is None else (before + answer).strip()


def answers_of(table: pd.DataFrame, parts: Parts | None) -> pd.DataFrame:
    """Generations whose texts are the answers alone."""
    return table if parts is None else table.assign(text=[_part(text, parts, 1) for text in table["text"]])


def thinking_of(table: pd.DataFrame, parts: Parts) -> pd.DataFrame:
    """Generations whose texts are the thinking; an answer without any has an empty one."""
    return table.assign(text=[_part(text, parts, 0) for text in table["text"]])


def _part(text: object, parts: Parts, place: int) -> str | None:
    return split(text, parts)[place] if isinstance(text, str) else None


def marks_of(tokenizer: Any) -> Parts | None:
    """The parts that a tokenizer's chat template knows; None where the model does not think aloud."""
    template = str(tokenizer.chat_template or "")
    for marks in KNOWN:
        if marks[1] in template:
            return Parts(thinking=marks)
    return None
