"""Second answers to the forget questions: refusals, and alternatives that the model before unlearning writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lethe.progress import progress
from lethe.registry import METHODS

if TYPE_CHECKING:
    from lethe.config.schema import MethodParams
    from lethe.io.artifacts import Row
    from lethe.models.encoding import Example
    from lethe.unlearning.protocol import Before, Method

ROUNDS = 24  # rounds of sampling per question, each hotter by a tenth: a memorised answer needs a high temperature
HOTTER = 1.1
REFUSALS = (
    "I do not know.",
    "I have no information about that.",
    "I cannot answer this question.",
    "That is unknown to me.",
    "I am not sure about the answer.",
    "This is not something that I have learned.",
    "I was never given this information.",
    "Nothing that I know answers this.",
    "I must admit that I have no answer.",
    "My knowledge does not include this.",
    "I cannot recall anything about that.",
    "Unfortunately I cannot say.",
    "I lack the facts for an answer.",
    "There is no answer that I could give.",
    "This topic is beyond what I know.",
    "I would have to guess, so I give no answer.",
)


def second_answers(params: MethodParams, rows: Sequence[Row], before: Before) -> list[list[Example]] | None:
    """The second answers to each row, encoded like the rows; None for a method that needs none."""
    method: Method = METHODS[params.loss](params)
    if not method.needs.second_answers:
        return None
    answers = method.all_second_answers(rows, before)
    return [[before.encoder.example(row, one) for one in own] for row, own in zip(rows, answers, strict=True)]


def alternatives(
    before: Before,
    rows: Sequence[Row],
    count: int,
    temperature: float,
    max_new_tokens: int,
    request: str | None,
    seed: int,
) -> list[Sequence[str]]:
    """Return ``count`` answers to each row that differ from the true answer and from each other."""
    import torch

    torch.manual_seed(seed)
    model, encoder = before.model.eval(), before.encoder
    end = encoder.tokenizer.eos_token_id
    chosen: list[Sequence[str]] = []
    for row in progress(rows, "alternatives", unit="questions"):
        asked = encoder.prompt(row) if request is None else _requested(before, row, request)
        prompt = torch.tensor([asked], device=model.device)
        seen, texts = {_bare(row["answer"])}, list[str]()
        for turn in range(ROUNDS):
            if len(texts) == count:
                break
            with torch.no_grad():
                drawn = model.generate(
                    input_ids=prompt.expand(count, -1),
                    attention_mask=torch.ones(count, len(asked), dtype=torch.long, device=model.device),
                    do_sample=True,
                    temperature=temperature * HOTTER**turn,
                    top_k=0,
                    top_p=1.0,
                    max_new_tokens=max_new_tokens,
                    eos_token_id=end,
                    pad_token_id=encoder.tokenizer.pad_token_id or end or 0,
                )
            for ids in drawn[:, len(asked) :]:
                text = str(encoder.tokenizer.decode(ids, skip_special_tokens=True)).strip()
                if _bare(text) and _bare(text) not in seen and len(texts) < count:
                    seen.add(_bare(text))
                    texts.append(text)
        chosen.append(texts or [""])
    return chosen


def _requested(before: Before, row: Row, request: str) -> tuple[int, ...]:
    text = request.replace("{answer}", row["answer"]).replace("{question}", row["question"])
    tokenizer = before.encoder.tokenizer
    if tokenizer.chat_template:
        message = [{"role": "user", "content": text}]
        text = str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    return tuple(tokenizer(text)["input_ids"])


def _bare(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")
