"""What judging costs before anything is drawn: answers, tokens, weights, and time from a rate measured here.

Every drawn answer counts, as long as ``max_new_tokens``; equal answers are judged once, so a run judges fewer. A judge that a
stage will train is timed on an untrained model of its size.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.steps.costs import BYTES, LONGEST_MEASUREMENT, PROMPT_TOKENS, ModelSize, processor_seconds, size_of

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.config.evaluating import ScorerParams
    from lethe.steps.training_costs import Bench

CHARACTERS = 3  # per token of a judge's prompt, assumed where the judge's tokenizer is missing
FIRST = 2  # answers of the first measurement
TRAINED = Path("data/models")
QUESTION = {"id": "rate", "question": "What is the capital of Norway?", "answer": "Oslo"}


@dataclass(frozen=True)
class JudgeCost:
    """The cost of one judge; None where the judge's folder is missing or no rate is known.

    ``answers_at_most`` are the answers of all models and the labelled answers on which the judge's error is measured.
    """

    name: str
    kind: str
    model: str
    answers_at_most: int
    tokens_at_most: int
    parameters: int | None
    weight_bytes: int | None
    answers_per_second: float | None
    seconds_at_most: float | None


@dataclass(frozen=True)
class _Judge:
    """An entry of ``judges``, or a judge among ``score.scorers``."""

    name: str
    kind: str
    params: ScorerParams
    labelled: str | None

    @property
    def model(self) -> str:
        return str(getattr(self.params, "model", ""))


def judge_costs(
    params: Params,
    answers: int,
    bench: Bench | None = None,
    rate: float | None = None,
    missing: ModelSize | None = None,
    *,
    timed: bool = True,
) -> list[JudgeCost]:
    """The cost of every judge that reads ``answers`` drawn answers."""
    return [_cost(one, params, answers, bench, rate, missing, timed) for one in _judges(params)]


def _judges(params: Params) -> Iterator[_Judge]:
    from lethe.registry import JUDGES

    for name, entry in params.judges.items():
        yield _Judge(name, entry.judge, entry.params, entry.labelled)
    for name, own in params.score.params.items():
        if name in JUDGES:
            yield _Judge(name, name, own, None)


def _cost(
    one: _Judge,
    params: Params,
    answers: int,
    bench: Bench | None,
    rate: float | None,
    missing: ModelSize | None,
    timed: bool,
) -> JudgeCost:
    count = answers + _labelled(one.labelled, bench)
    with _folder(one, params, bench) as folder:
        size = (size_of(folder) if folder else None) or missing
        each = _tokens(one, params, folder)
        if rate is None and folder and timed:
            rate = measured(one.kind, one.params.model_copy(update={"model": str(folder)}), params)
    asked = str(getattr(one.params, "dtype", "auto"))
    dtype = asked if asked != "auto" else (size.stored if size else "float32")
    return JudgeCost(
        name=one.name,
        kind=one.kind,
        model=one.model,
        answers_at_most=count,
        tokens_at_most=count * each,
        parameters=size.parameters if size else None,
        weight_bytes=size.parameters * BYTES.get(dtype, 4) if size else None,
        answers_per_second=rate,
        seconds_at_most=count / rate if rate else None,
    )


@contextmanager
def _folder(one: _Judge, params: Params, bench: Bench | None) -> Iterator[Path | None]:
    """The judge's folder, or a folder of an untrained model where a stage will train the judge; None for neither."""
    from lethe.models import checkpoints

    place = Path(one.model)
    if (place / "config.json").is_file():
        yield place
    elif bench is not None and place.parent == TRAINED and place.name in params.train.models:
        start = bench.of(place.name).start
        with tempfile.TemporaryDirectory() as made:
            checkpoints.save(Path(made, "judge"), start.model, start.tokenizer)
            yield Path(made, "judge")
    else:
        yield None


def _labelled(path: str | None, bench: Bench | None) -> int:
    """The answers that measure the judge's error: rows of the file, or of the split that `prepare` will write there."""
    if path is None:
        return 0
    if Path(path).is_file():
        with Path(path).open(encoding="utf-8") as file:
            return sum(1 for line in file if line.strip())
    return len(bench.splits.get(Path(path).stem, [])) if bench else 0


def _tokens(one: _Judge, params: Params, folder: Path | None) -> int:
    """Tokens of one prompt at most: the judge's own text, a question, and an answer as long as allowed."""
    from lethe.models import checkpoints
    from lethe.registry import JUDGES

    around = JUDGES[one.kind].around(one.params)
    own = math.ceil(len(around) / CHARACTERS)
    if folder is not None:
        own = len(checkpoints.load_tokenizer(folder)(around)["input_ids"])
    return own + PROMPT_TOKENS + _longest(one.params, params)


def _longest(own: ScorerParams, params: Params) -> int:
    """Tokens of an answer that the judge reads at most."""
    return min(params.sample.max_new_tokens, int(getattr(own, "clip", params.sample.max_new_tokens)))


def measured(kind: str, own: ScorerParams, params: Params) -> float:
    """Answers per processor second that a judge reads here, all as long as allowed; the judge's model is loaded."""
    from lethe.models.checkpoints import prepare_torch
    from lethe.models.first_token import clipped
    from lethe.registry import JUDGES
    from lethe.scoring.judges import Asked

    prepare_torch()
    judge = JUDGES[kind](own)
    most, tokenizer = _longest(own, params), getattr(judge, "tokenizer", None)
    words = " ".join(itertools.islice(itertools.cycle(("the", "answer", "is", "no", "longer", "here")), most))
    text = clipped(words, tokenizer, most) if tokenizer is not None else words
    asked = [Asked(text, QUESTION)] * judge.batch
    judge.judge(asked[:1])  # the first call also compiles and allocates
    rate = 0.0
    for count in (FIRST, judge.batch):
        began = processor_seconds()
        judge.judge(asked[:count])
        seconds = processor_seconds() - began
        rate = min(count, judge.batch) / seconds
        if seconds * judge.batch / FIRST > LONGEST_MEASUREMENT:  # a large model
            break
    return rate
