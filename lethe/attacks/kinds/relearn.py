"""Relearning: some steps of fine-tuning on a few rows; the model is then queried with the other forget questions.

Source: Hu et al., "Jogging the Memory of Unlearned Models Through Targeted Relearning Attacks" (2024); Łucki et al., "An
Adversarial Perspective on Machine Unlearning for AI Safety" (2024).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from lethe.attacks import protocol
from lethe.attacks.protocol import AttackParams, Known
from lethe.config.fields import Count, Positive
from lethe.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lethe.io.artifacts import Row


class Params(AttackParams):
    """The rows, their number (per author for same_authors), and the steps after which the model is queried."""

    kind: Literal["relearn"]
    rows: Literal["forget", "same_authors", "unrelated"]
    count: Count = 5
    steps: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 4, 8, 16)
    batch: Count = 8
    lr: Positive = 5.0e-4


class Attack(protocol.Attack[Params], params=Params):
    """Fine-tune by AdamW at a constant learning rate; one training run covers all budgets."""

    budget = "steps of relearning"

    def learned(self, known: Known, seed: int) -> list[Row]:
        """Return the rows: random forget rows, equally many rows of each forget author, or retain rows."""
        rng, count = np.random.default_rng(seed), self.params.count
        if self.params.rows == "unrelated":
            return _some(list(known.retain), count, rng)
        if self.params.rows == "forget":
            _leave_some(count, len(known.forget), "forget rows")
            return _some(list(known.forget), count, rng)
        authors: dict[str, list[Row]] = defaultdict(list)
        for row in known.forget:
            author = row.get("author")
            if author is None:
                raise BadInput(
                    f"Row {row['id']!r} of the forget set has no author, but rows: same_authors chooses the rows to "
                    "relearn by author. Add the key author, or use rows: forget or unrelated."
                )
            authors[author].append(row)
        _leave_some(count, max(map(len, authors.values())), "rows of each author")
        return [row for rows in authors.values() for row in _some(rows, min(count, len(rows) - 1), rng)]

    def attacked(self, model: PreTrainedModel, known: Known, seed: int) -> Iterator[tuple[float, PreTrainedModel]]:
        import torch

        from lethe.models.encoding import collate
        from lethe.models.forward import forward
        from lethe.models.training import Losses

        examples = [known.encoder.example(row) for row in self.learned(known, seed)]
        rng, own = np.random.default_rng([seed, 1]), self.params
        trained = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=own.lr, weight_decay=0.0, fused=True)
        waiting: list[int] = []
        budgets = sorted(set(own.steps))
        losses, taken = Losses("relearning", budgets[-1], own.lr), []
        for step in range(1, budgets[-1] + 1):
            if not waiting:
                waiting = rng.permutation(len(examples)).tolist()
            picked, waiting = waiting[: own.batch], waiting[own.batch :]
            model.train()
            optimizer.zero_grad(set_to_none=True)
            loss = forward(model, collate([examples[i] for i in picked], known.padding, model.device)).nll
            loss.backward()
            optimizer.step()
            taken.append(loss.detach())
            if step in budgets:
                # The device computes on until a budget, where sampling waits for it anyway.
                for number, value in enumerate(taken, step - len(taken)):
                    losses.add(number, float(value))
                losses.check(trained)
                taken.clear()
                yield step, model.eval()


def _some(rows: list[Row], count: int, rng: np.random.Generator) -> list[Row]:
    return [rows[i] for i in sorted(rng.permutation(len(rows))[:count])]


def _leave_some(count: int, known: int, what: str) -> None:
    if count >= known:
        raise BadInput(
            f"Relearning on {count} of {known} {what} leaves no question to evaluate: count must be below {known}."
        )
