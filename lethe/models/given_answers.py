"""The likelihood of a dataset's given answers under a model, token by token: right, paraphrased and wrong.

One table per split, one row per answer: ``prompt_id``, ``kind`` (answer, paraphrased or perturbed), ``number`` (of the
wrong answer, else 0), and the lists of `AnswerTokens`. No later step needs the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from lethe.models.in_memory import Source, opened
from lethe.models.likelihood import AnswerTokens, answer_tokens

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row

TOKENS = tuple(field.name for field in fields(AnswerTokens))


def given_answers(
    source: Source,
    splits: Mapping[str, Sequence[Row]],
    prompt: str,
    label: str,
) -> dict[str, pd.DataFrame]:
    """The likelihood table of each split."""
    import torch

    from lethe.models.encoding import Encoder

    model, tokenizer = opened(source)
    encoder = Encoder(tokenizer, prompt)
    tables = {}
    for split, rows in splits.items():
        given = [(row, *answer) for row in rows for answer in _answers(row)]
        examples = [encoder.example(row, text) for row, _, _, text in given]
        tokens = answer_tokens(model, examples, tokenizer.pad_token_id or 0, label=f"{label} {split}")
        tables[split] = _table(given, tokens)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # free the memory for the sampling that follows
    return tables


def _answers(row: Row) -> Iterator[tuple[str, int, str]]:
    yield "answer", 0, row["answer"]
    if paraphrased := row.get("paraphrased_answer"):
        yield "paraphrased", 0, paraphrased
    for number, text in enumerate(row.get("perturbed_answer") or ()):
        yield "perturbed", number, text


def _table(given: Sequence[tuple], tokens: Sequence[AnswerTokens]) -> pd.DataFrame:
    import pandas as pd

    columns = {
        "prompt_id": [row["id"] for row, _, _, _ in given],
        "kind": [kind for _, kind, _, _ in given],
        "number": [number for _, _, number, _ in given],
    }
    return pd.DataFrame({**columns, **{name: [getattr(item, name) for item in tokens] for name in TOKENS}})
