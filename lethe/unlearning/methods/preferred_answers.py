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
    """The sharpness ``beta`` of the preference, and the weight of the retain term."""

    beta: protocol.Positive = 0.1
    retain_weight: protocol.Weight = 1.0


class IdkDpoParams(PreferenceParams):
    """The refusals that are preferred to the answers."""

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

    def forget_loss(self, rows: protocol.StepRows) -> torch.Tensor:
        # In this order: gradients are added up in that of the passes, and the last bits depend on it.
        second = rows.second.forward.log_probs - rows.second.reference_log_probs
        answer = rows.forward.log_probs - rows.reference_log_probs
        assert isinstance(self.params, PreferenceParams)
        return protocol.preference(second - answer, self.params.beta)


class IdkDpo(_Preference[IdkDpoParams], params=IdkDpoParams):
    """Prefers a refusal to each answer."""

    def second_answers(self, row: Row) -> Sequence[str]:
        return self.params.refusals


class Altpo(_Preference[AltpoParams], params=AltpoParams):
    """Prefers alternatives that the model itself wrote to each answer."""

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
        refusals = step.forget.second
        retain = step.retain
        log_probs = torch.cat([refusals.forward.log_probs, retain.forward.log_probs])
        tokens = torch.cat([refusals.forward.tokens, retain.forward.tokens])
        part = refusals.counts.total("tokens") + retain.counts.total("tokens")
        whole = refusals.whole.total("tokens") + retain.whole.total("tokens")
        return {"loss": -log_probs.sum() / tokens.sum() * (part / whole)}


def alternatives(
    params: AltpoParams, rows: Sequence[Row], before: protocol.Before
) -> list[Sequence[str]]:
    """Return answers to each row that differ from the true answer and from each other."""
    import torch

    torch.manual_seed(before.seed)
    chosen: list[Sequence[str]] = []
    for row in progress(rows, "alternatives", unit="questions"):
        if params.request is None:
            prompt = before.encoder.prompt(row)
        else:
            prompt = _requested(before, row, params.request)
        seen = {_bare(row["answer"])}
        texts: list[str] = []
        for turn in range(ROUNDS):
            if len(texts) == params.alternatives:
                break
            for text in _written(params, prompt, before, params.temperature * HOTTER**turn):
                bare = _bare(text)
                if bare and bare not in seen and len(texts) < params.alternatives:
                    seen.add(bare)
                    texts.append(text)
        chosen.append(texts or [""])
    return chosen


def _written(
    params: AltpoParams, prompt: tuple[int, ...], before: protocol.Before, temperature: float
) -> list[str]:
    """As many answers to a prompt as alternatives are wanted, by the model before unlearning."""
    import torch

    model = before.model.eval()
    tokenizer = before.encoder.tokenizer
    end = tokenizer.eos_token_id
    ids = torch.tensor([prompt], device=model.device).expand(params.alternatives, -1)
    with torch.no_grad():
        drawn = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=params.max_new_tokens,
            eos_token_id=end,
            pad_token_id=tokenizer.pad_token_id or end or 0,
        )
    answers = tokenizer.batch_decode(drawn[:, len(prompt) :], skip_special_tokens=True)
    return list(map(str.strip, answers))


def _requested(before: protocol.Before, row: Row, request: str) -> tuple[int, ...]:
    """The tokens of a request for an answer to a row, in the tokenizer's chat template if it has one."""
    text = request.replace("{answer}", row["answer"]).replace("{question}", row["question"])
    tokenizer = before.encoder.tokenizer
    if tokenizer.chat_template:
        text = filled_in(tokenizer, [{"role": "user", "content": text}])
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    return tuple(tokenizer(text)["input_ids"])


def _bare(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")


MEMBERS = {"idk_dpo": IdkDpo, "altpo": Altpo, "idk_nll": IdkNll}
