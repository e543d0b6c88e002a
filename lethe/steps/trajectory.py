"""Points along unlearning: few answers of the model before the first step and after some epochs, scored, with ends.

The mean over questions of the j-th answers is one draw, in [0, 1], whose mean is that over the questions. So betting on these
draws (`lethe.statistics.betting`) bounds it at any time, and an end holds at all points of a trajectory together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.schema import Along
from lethe.io.artifacts import Row, read_split
from lethe.io.files import Json
from lethe.models.checkpoints import InMemory, StepRecord
from lethe.models.encoding import Encoder
from lethe.models.training import Team
from lethe.sampling.engine import Prompt, Settings, open_engine
from lethe.sampling.tasks import some, table_of
from lethe.scoring.table import score_answers
from lethe.statistics.betting import all_ends
from lethe.statistics.bound import Assumes
from lethe.unlearning.loop import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Trajectory:
    """Measures a model every so many epochs, at first and at the end; see `lethe.unlearning.loop.Watching`.

    Parameters
    ----------
    name
        The model that unlearns.
    along
        The settings: scorers, numbers of questions and answers, alpha.
    every
        The number of epochs from one point to the next.
    epochs
        The number of all epochs.
    tokenizer
        The tokenizer of the model.
    dataset
        The folder of the splits, of which forget and retain are read.

    Attributes
    ----------
    records
        A row for each point: ``epoch`` (those that are done), and of ``leakage`` (on the forget set) and ``utility`` (on
        the retain set) the mean score in [0, 1] with its ends, such as ``leakage_upper``.
    """

    def __init__(
        self,
        name: str,
        along: Along,
        every: int,
        epochs: int,
        tokenizer: PreTrainedTokenizerBase,
        dataset: Path,
    ):
        self.name = name
        self.along = along
        self.every = every
        self.epochs = epochs
        self.tokenizer = tokenizer
        self.encoder = Encoder(tokenizer, along.prompt)
        self.forget = read_split("forget", dataset)
        self.retain = some(read_split("retain", dataset), along.questions, along.seed)
        self.records: list[StepRecord] = []

    @property
    def facts(self) -> dict[str, object]:
        """What the measured points depend on besides the training."""
        return {"along": [self.name, self.along, self.encoder.template]}

    @property
    def alpha(self) -> float:
        """The level of each end, so that a quantity's ends of one side hold at all points together."""
        return self.along.alpha / (math.ceil(self.epochs / self.every) + 1)

    def __call__(self, model: PreTrainedModel, epoch: int) -> None:
        done = epoch + 1
        is_a_point = done % self.every == 0 or done == self.epochs
        if not is_a_point or Team().rank:  # one process measures for all that train together
            return
        record: StepRecord = {"epoch": done}
        with evaluating(model):
            record |= self._measured("leakage", self.along.leak, self.forget, model, done)
            record |= self._measured("utility", self.along.utility, self.retain, model, done)
        self.records.append(record)

    def as_json(self) -> dict[str, Json]:
        """The points with what they are of, for the record of the training."""
        return {
            "leak": self.along.leak,
            "utility": self.along.utility,
            "n": self.along.n,
            "alpha": self.alpha,
            "method": "betting, at all points together",
            "assumes": str(Assumes.DRAWS_WITHIN_IN_ORDER),
            "points": self.records,
        }

    def _measured(
        self, quantity: str, scorer: str, rows: Sequence[Row], model: PreTrainedModel, done: int
    ) -> StepRecord:
        """The mean score of new answers to these rows with its ends; nothing where the scorer can judge none.

        ``done`` epochs name the stream of the answers, so that those of two points are independent.
        """
        along = self.along
        prompts = [Prompt(row["id"], self.encoder.prompt(row)) for row in rows]
        settings = Settings(
            **along.drawing.model_dump(),
            n=along.n,
            greedy=False,
            seed=along.seed,
            stream_of=f"along {self.name} {done}",
        )
        engine = open_engine("auto", InMemory(model, self.tokenizer))
        drawn = {answer.prompt_id: answer for answer in engine.answer(prompts, settings)}
        answers = table_of(drawn[prompt.prompt_id] for prompt in prompts)

        by_id = {row["id"]: row for row in rows}
        scored = score_answers(answers, by_id, [scorer], along.scorers)
        scores = scored[scorer].to_numpy().reshape(len(rows), along.n)
        judged = scores[~np.isnan(scores).all(axis=1)]
        if not len(judged):
            return {}

        # (n,) draws: the means over the questions of the j-th answers, a missing score as 0, and as 1.
        low = np.nan_to_num(judged, nan=0.0).mean(axis=0)
        high = np.nan_to_num(judged, nan=1.0).mean(axis=0)
        (lower,), (upper,) = all_ends(low[None], high[None], self.alpha)
        return {
            quantity: float(np.nanmean(judged)),
            f"{quantity}_lower": float(lower),
            f"{quantity}_upper": float(upper),
        }
