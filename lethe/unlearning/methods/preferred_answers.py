"""Training towards second answers to the forget questions: refusals, or alternatives that the model wrote itself.

- ``idk_dpo``: preference of a refusal to the true answer, -(2/beta) log sigmoid(beta (r(refusal) - r(answer))), where
  r = S - S_ref is the gain of a summed log-probability over the model before unlearning. Refusal and answer may differ in
  length, and nothing is normalised. Each visit of a row draws a new refusal. Source: Zhang et al., "Negative Preference
  Optimization" (2024), whose factor 2/beta plain DPO lacks.
- ``altpo``: the same with plausible alternatives that the model before unlearning writes itself
  (`alternatives`). Source: Mekala et al., "Alternate Preference Optimization for Unlearning Factual
  Knowledge in Large Language Models" (2024), with 5 alternatives per question, beta 0.1 and a retain weight of 1.
- ``idk_nll``: refusals by supervised training (the "preference optimisation" of TOFU). The loss is one token mean of the NLL
  over all answer tokens of the refusals and of the retain rows together, so the short refusals weigh less than in a sum of
  two means. There is no ascent and no weight. Source: Maini et al., "TOFU" (2024), and the code of Zhang et al. (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lethe.config.fields import Count
from lethe.io.artifacts import Row
from lethe.models.chat_template import filled_in
from lethe.progress import progress
from lethe.unlearning import protocol

if TYPE_CHECKING:
    import torch

ROUNDS = 24  # rounds of sampling per question, each hotter by a tenth: a memorised answer needs a high temperature
HOTTER = 1.1
REFUSALS = tuple(Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8").splitlines())

Refusals = Annotated[tuple[protocol.Place, ...], Field(min_length=1)]


class PreferenceParams(protocol.MethodParams):
    beta: protocol.Positive = 0.1
    retain_weight: protocol.Weight = 1.0


class IdkDpoParams(PreferenceParams):
    refusals: Refusals = REFUSALS


class AltpoParams(PreferenceParams):
    """How alternatives are written; ``request`` to the model has {question} and optionally {answer}, null: the question."""

    alternatives: Count = 5
    request: protocol.Place | None = None
    temperature: protocol.Positive = 1.0
    max_new_tokens: Count = 64


class IdkNllParams(protocol.MethodParams):
    """The refusals. The terms have no separate weights, and the retain loss is the NLL."""

    refusals: Refusals = REFUSALS
    gamma: Annotated[protocol.Weight, Field(ge=1, le=1)] = 1.0
    retain_weight: Annotated[protocol.Weight, Field(ge=1, le=1)] = 1.0
    retain_loss: Literal["nll"] = "nll"


class _Preference(protocol.Method[protocol.P]):
    """F = -(2/beta) log sigmoid(beta (r(second answer) - r(answer))), the mean over rows; R = NLL or KL."""

    needs = protocol.Needs(reference_log_probs=True, second_answers=True)

    def forget_loss(self, rows: protocol.Rows) -> torch.Tensor:
        second, answer = (
            one.forward.log_probs - one.reference_log_probs for one in (rows.second, rows)
        )
        assert isinstance(self.params, PreferenceParams)
        return protocol.preference(second - answer, self.params.beta)


class IdkDpo(_Preference[IdkDpoParams], params=IdkDpoParams):
    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals


class Altpo(_Preference[AltpoParams], params=AltpoParams):
    def all_second_answers(
        self, rows: Sequence[Row], before: protocol.Before
    ) -> list[Sequence[str]]:
        return alternatives(self.params, rows, before)


class IdkNll(protocol.Method[IdkNllParams], params=IdkNllParams):
    """L = the token mean of the NLL over refusals and retain rows."""

    needs = protocol.Needs(second_answers=True)

    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals

    def loss(self, step: protocol.Step) -> dict[str, torch.Tensor]:
        import torch

        assert step.retain is not None  # the weight of the retain rows is 1
        both = (step.forget.second, step.retain)
        log_probs, tokens = (
            torch.cat([getattr(rows.forward, key) for rows in both]).sum()
            for key in ("log_probs", "tokens")
        )
        part, whole = (
            sum(getattr(rows, key).total("tokens") for rows in both) for key in ("counts", "whole")
        )
        return {"loss": -log_probs / tokens * (part / whole)}


def alternatives(
    params: AltpoParams, rows: Sequence[Row], before: protocol.Before
) -> list[Sequence[str]]:
    """Return answers to each row that differ from the true answer and from each other."""
    import torch

    torch.manual_seed(before.seed)
    model, encoder, count = before.model.eval(), before.encoder, params.alternatives
    end = encoder.tokenizer.eos_token_id
    chosen: list[Sequence[str]] = []
    for row in progress(rows, "alternatives", unit="questions"):
        asked = (
            encoder.prompt(row)
            if params.request is None
            else _requested(before, row, params.request)
        )
        prompt = torch.tensor([asked], device=model.device)
        seen, texts = {_bare(row["answer"])}, list[str]()
        for turn in range(ROUNDS):
            if len(texts) == count:
                break
            with torch.no_grad():
                drawn = model.generate(
                    input_ids=prompt.expand(count, -1),
                    attention_mask=torch.ones(
                        count, len(asked), dtype=torch.long, device=model.device
                    ),
                    do_sample=True,
                    temperature=params.temperature * HOTTER**turn,
                    top_k=0,
                    top_p=1.0,
                    max_new_tokens=params.max_new_tokens,
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


def _requested(before: protocol.Before, row: Row, request: str) -> tuple[int, ...]:
    text = request.replace("{answer}", row["answer"]).replace("{question}", row["question"])
    tokenizer = before.encoder.tokenizer
    if tokenizer.chat_template:
        text = filled_in(tokenizer, [{"role": "user", "content": text}])
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    return tuple(tokenizer(text)["input_ids"])


def _bare(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")


MEMBERS = {"idk_dpo": IdkDpo, "altpo": Altpo, "idk_nll": IdkNll}
