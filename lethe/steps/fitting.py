"""The questions of an evaluation that the contexts of its models hold, and the rows in flight that a memory holds."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from lethe.config.measuring import Endpoint, SampleSettings
from lethe.config.schema import EvaluationParams
from lethe.errors import BadInput, BadValue
from lethe.io.artifacts import Asked, Row
from lethe.models.checkpoints import InMemory, Origin, tokenizer_of
from lethe.models.encoding import Encoder
from lethe.models.model import Model
from lethe.progress import tell
from lethe.sampling.forecast import rows_within


def fitting(
    source: Origin,
    base: Path | None,
    splits: Mapping[str, list[Row]],
    sample: SampleSettings,
    skip: bool,
) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows whose prompts the contexts of the model and of Base hold, and the ids of the others, as of `_fitting_one`."""
    asked, skipped = _fitting_one(source, splits, sample, skip)
    if base is None:
        return asked, skipped
    asked, long_for_base = _fitting_one(base, asked, sample, skip, holder="Base")
    return asked, skipped + long_for_base


def _fitting_one(
    source: Origin,
    splits: Mapping[str, list[Row]],
    sample: SampleSettings,
    skip: bool,
    holder: str = "the model",
) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows whose prompts the context of ``source`` holds, and the ids of the others; without ``skip`` these are refused.

    An unusable model or prompt, and answers that the context cannot hold, are refused here too, before anything is written;
    the ``holder`` of the context is what errors call the source.
    """
    if isinstance(source, Endpoint):
        return dict(splits), ()
    described = Model.of(source)
    encoder = Encoder(described.tokenizer, sample.prompt)
    context = described.context
    if context is None:
        return dict(splits), ()
    asked: dict[str, list[Row]] = {}
    long: dict[str, int] = {}  # tokens of the questions that the context cannot hold
    least: _Room | None = None
    for split, rows in splits.items():
        asked[split] = []
        for row in rows:
            turns = _followups(row) if split == "forget" else ()
            tokens = len(_last_prompt(encoder, row, turns))
            if tokens >= context:
                long[row["id"]] = tokens
                continue
            asked[split].append(row)
            room = _Room((context - tokens) // (1 + len(turns)), row["id"], tokens)
            if least is None or room.answer < least.answer:
                least = room

    if long and not skip:
        first = next(iter(long))
        more = ""
        if len(long) > 1:
            more = f" and {len(long) - 1} more"
        raise BadInput(
            f"Question {first!r}{more}: got {long[first]} tokens, {holder}'s context is {context}. Shorten the text, "
            "or leave such questions out (--skip-too-long)."
        )
    _check_some_left(splits, asked, f"{holder}'s context of {context}")
    if long:
        tell(f"Left out as too long for {holder}: {', '.join(map(repr, long))}.")
    if least is not None and least.answer < sample.longest:
        legal = (
            f"at most {least.answer}: {holder}'s context is {context} tokens and question {least.question!r} has "
            f"{least.tokens}"
        )
        raise BadValue("max_new_tokens", sample.longest, legal)
    return asked, tuple(long)


def _check_some_left(
    splits: Mapping[str, list[Row]], asked: Mapping[str, list[Row]], context: str
) -> None:
    """Raises a sentence where a split has questions, and none of them is ``asked``."""
    for split, rows in splits.items():
        if rows and not asked[split]:
            raise BadInput(f"Every {split} question has more tokens than {context}: none is left.")


class _Room(NamedTuple):
    """How many tokens an answer to a question may have, so that the last prompt and its answer fit."""

    answer: int
    question: str
    tokens: int  # of the last prompt, without the answers before it


def within(
    memory: int, params: EvaluationParams, source: Origin, splits: Mapping[str, list[Row]]
) -> EvaluationParams:
    """The params with as many rows in flight as the memory holds, if the longest question is asked in each."""
    if not isinstance(source, (Path, InMemory)):
        return params
    sample = params.sample
    encoder = Encoder(tokenizer_of(source), sample.prompt)
    longest = 0
    for row in chain(*splits.values()):
        turns = _followups(row)
        tokens = len(_last_prompt(encoder, row, turns)) + (1 + len(turns)) * sample.longest
        longest = max(longest, tokens)
    rows = rows_within(memory, source, longest, sample.dtype)
    sample = sample.model_copy(update={"max_rows": min(rows, sample.max_rows)})
    return params.model_copy(update={"sample": sample})


def _followups(row: Row) -> Sequence[str]:
    return row.get("followups") or []


def _last_prompt(encoder: Encoder, row: Row, followups: Sequence[str]) -> tuple[int, ...]:
    """The tokens of the last prompt of a conversation, whose answers are empty."""
    questions: list[Asked] = [row]
    for text in followups:
        questions.append(Asked(question=text))
    *earlier, last = questions
    return encoder.conversation(last, before=[(question, "") for question in earlier])
