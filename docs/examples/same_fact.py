"""A local language model's P(yes) that an answer states the fact of the reference answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.config.fields import Count, Place
from lethe.config.measuring import ScorerParams
from lethe.scoring import judges
from lethe.scoring.judges import Asked


class Params(ScorerParams):
    model: Place
    batch: Count = 64


class Judge(judges.Judge[Params], params=Params):
    def __init__(self, params: Params):
        from lethe.models.checkpoints import load

        super().__init__(params)
        self.model, self.tokenizer = load(params.model)
        self.choices = [
            self.tokenizer(word, add_special_tokens=False)["input_ids"][0]
            for word in (" yes", " no")
        ]

    @property
    def batch(self) -> int:
        return self.params.batch

    def judge(self, asked: Sequence[Asked]) -> np.ndarray:
        return np.array(
            [
                self.yes(f"Fact: {one.item['answer']}\nAnswer: {one.text}\nSame fact?")
                for one in asked
            ]
        )

    def yes(self, text: str) -> float:
        import torch

        ids = self.tokenizer(text, return_tensors="pt")["input_ids"].to(self.model.device)
        with torch.inference_mode():
            logits = self.model(input_ids=ids).logits[0, -1]
        return float(logits[self.choices].softmax(-1)[0])
