"""An answer of a model with its end, and all answers to one prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lethe.io.answer_ends import ANSWERED, end_of


@dataclass(frozen=True)
class Answer:
    """One answer. ``number`` is its place among those to its prompt, -1 for the greedy one; the others as in `Answers`."""

    number: int
    text: str | None
    tokens: int
    finish_reason: str
    mean_confidence: float | None
    thinking: str | None = None

    @property
    def end(self) -> str:
        """Why the answer ended, or its kind if it is missing; thinking without an answer keeps its end."""
        said = self.thinking if self.text is None else self.text
        return end_of(self.finish_reason, said)


@dataclass(frozen=True)
class Answers:
    """All answers to one prompt; each list has one entry per answer. ``tokens`` counts the generated tokens, the
    end-of-sequence token included; ``finish_reasons`` are "stop" (the model ended the answer) or "length";
    ``mean_confidences`` are means over these tokens' steps of the largest next-token probability at temperature 1,
    before any top-k or top-p. A missing answer has no text, and what a server does not state is None."""

    prompt_id: str
    samples: list[int]
    texts: Sequence[str | None]
    tokens: list[int]
    finish_reasons: list[str]
    mean_confidences: Sequence[float | None]
    # Where a server's chat could tell it apart from the answer.
    thinking: Sequence[str | None] | None = None

    @classmethod
    def of(cls, prompt_id: str, answers: Sequence[Answer]) -> Answers:
        """The answers of a model without a field for the thinking."""
        return cls(
            prompt_id,
            samples=[answer.number for answer in answers],
            texts=[answer.text for answer in answers],
            tokens=[answer.tokens for answer in answers],
            finish_reasons=[answer.finish_reason for answer in answers],
            mean_confidences=[answer.mean_confidence for answer in answers],
        )

    @classmethod
    def missing(cls, prompt_id: str, samples: list[int], reason: str) -> Answers:
        """As many missing answers as there are samples, all for one reason."""
        n = len(samples)
        return cls(
            prompt_id,
            samples,
            [None] * n,
            [0] * n,
            [reason] * n,
            [None] * n,
        )

    def __iter__(self) -> Iterator[Answer]:
        thinking = self.thinking or [None] * len(self.samples)
        for place, number in enumerate(self.samples):
            yield Answer(
                number,
                self.texts[place],
                self.tokens[place],
                self.finish_reasons[place],
                self.mean_confidences[place],
                thinking[place],
            )

    def ended(self) -> Answers:
        """The answers, whose texts without a known end are missing, by kind."""
        reasons: list[str] = []
        texts: list[str | None] = []
        for answer in self:
            reasons.append(answer.end)
            texts.append(answer.text if answer.end in ANSWERED else None)
        return replace(self, texts=texts, finish_reasons=reasons)
