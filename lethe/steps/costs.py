"""What a preset costs, by counting: answers, tokens, memory, and time at given rates. Nothing is timed or loaded.

Tokens of answers are an upper bound: every answer as long as ``max_new_tokens``. Texts are counted by the tokenizer of the
model that training or unlearning starts from; where that is missing, a token is taken as `CHARACTERS` characters. Equal
answers are judged once, so a run judges fewer. Likelihoods and exact bounds are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lethe.errors import BadInput, BadValue
from lethe.io.json_files import read_json
from lethe.registry import JUDGES, METHODS
from lethe.statistics.planning import expected_sequential

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.config.evaluating import Sample, ScorerParams
    from lethe.config.schema import Attack, MethodParams
    from lethe.io.artifacts import Row

PROMPT_TOKENS = 64  # of a question, assumed for the cache where only the number of questions is known
CHARACTERS = 3  # per token, where the tokenizer is missing
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
NUMBER = 4  # bytes of a float32, the format of weights in training and of kept values
# Questions of published data sets, for a plan without the data: the forget set and what is asked for utility.
PUBLISHED = {
    "jailbreakbench": {"forget": 100, "retain": 100},
    "forget01": {"forget": 40, "retain": 3960, "world": 117, "real_authors": 100},
    "forget05": {"forget": 200, "retain": 3800, "world": 117, "real_authors": 100},
    "forget10": {"forget": 400, "retain": 3600, "world": 117, "real_authors": 100},
}


@dataclass(frozen=True)
class ModelSize:
    """The size of a checkpoint, as its folder says; an unknown cache is 0."""

    parameters: int
    cache_bytes_per_token: int  # keys and values of one token, at two bytes per number
    stored: str  # dtype of the checkpoint


@dataclass(frozen=True)
class ModelCost:
    """The cost of one entry of ``models``; None where the folder is missing or no rate is given."""

    model: str
    path: str
    parameters: int | None
    weight_bytes: int | None
    cache_bytes_at_most: int | None
    generations: int
    tokens_at_most: int
    tokens_per_second: float | None
    seconds_at_most: float | None


@dataclass(frozen=True)
class JudgeCost:
    """The cost of one judge: ``answers_at_most`` are those of all models and those that measure the judge's error."""

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
class ReferenceMemory:
    """Bytes that the model before unlearning takes: whole (``frozen``), or as values on the answers (``cached``).

    ``needs`` is what the method reads of that model at every step; with "nothing" both are 0.
    """

    needs: Literal["nothing", "logits", "states"]
    frozen_bytes: int | None
    cached_bytes: int
    chosen: Literal["frozen", "cached"]


@dataclass(frozen=True)
class StageCost:
    """One entry of ``train.models``, ``unlearn.methods`` or ``attacks``; tokens trained on, and answers of an attack."""

    stage: Literal["train", "unlearn", "attack"]
    name: str
    tokens: int
    answers: int
    seconds: float | None
    reference: ReferenceMemory | None = None


def questions_of(params: Params, questions: int | None) -> dict[str, int]:
    """The number of questions of each split that is asked: given, published, or counted."""
    from lethe.data import load_splits
    from lethe.sampling.tasks import UTILITY_SPLITS

    data = params.data
    published = PUBLISHED.get(data.forget if data.kind == "tofu" else data.kind)
    if questions is None and published is None:
        try:
            splits = load_splits(data)
        except BadInput as error:
            raise BadInput(
                f"The questions cannot be counted: {error} Or give their number (--questions)."
            ) from None
        return {split: len(rows) for split, rows in splits.items() if split in ("forget", *UTILITY_SPLITS)}
    counts = dict(published or {})
    return counts if questions is None else {**counts, "forget": questions}


def model_costs(
    params: Params, questions: Mapping[str, int], rate: float | None, missing: ModelSize | None
) -> list[ModelCost]:
    """The cost of sampling each model; ``missing`` is the size of a model whose folder is missing."""
    made = {f"data/models/{name}" for name in (*params.train.models, *params.unlearn.methods)}
    start = params.train.recipe.start_from
    found = []
    for name, model in params.models.items():
        size = size_of(Path(model.path)) or (size_of(Path(start)) if start and model.path in made else None)
        found.append(_of_model(name, model.path, params.sample, questions, rate, size or missing))
    return found


def _of_model(
    name: str, path: str, sample: Sample, questions: Mapping[str, int], rate: float | None, size: ModelSize | None
) -> ModelCost:
    drawn = generations(sample, questions)
    each = BYTES.get(_dtype(sample.dtype, size), 4)
    positions = min(sample.max_rows, questions["forget"] * (sample.most + 1)) * (
        PROMPT_TOKENS + sample.max_new_tokens
    )
    cache = size.cache_bytes_per_token * each // 2 * positions if size else 0
    tokens = drawn * sample.max_new_tokens
    return ModelCost(
        model=name,
        path=path,
        parameters=size.parameters if size else None,
        weight_bytes=size.parameters * each if size else None,
        cache_bytes_at_most=cache or None,
        generations=drawn,
        tokens_at_most=tokens,
        tokens_per_second=rate,
        seconds_at_most=tokens / rate if rate else None,
    )


def generations(sample: Sample, questions: Mapping[str, int]) -> int:
    """Answers of one model: greedy ones, and those of the second sample of a language of prompts, included."""
    from lethe.data.prompt_language import read_language

    share = read_language(sample.language).share if sample.language else None
    second = share.prompts * share.answers if share else 0
    utility = sum(min(count, sample.utility_questions) for split, count in questions.items() if split != "forget")
    return questions["forget"] * (sample.most + 1) + utility * (sample.utility_n + 1) + second


def size_of(folder: Path) -> ModelSize | None:
    """The size of the checkpoint in ``folder``; None where there is no checkpoint."""
    from lethe.sampling.engine import parameter_count

    config = folder / "config.json"
    if not config.is_file():
        return None
    stated: dict[str, Any] = read_json(config)
    heads = stated.get("num_attention_heads") or 1
    width = stated.get("head_dim") or (stated.get("hidden_size") or 0) // heads
    keys = stated.get("num_key_value_heads") or heads
    cache = 2 * (stated.get("num_hidden_layers") or 0) * keys * width * 2
    return ModelSize(
        parameter_count(folder), cache, str(stated.get("dtype") or stated.get("torch_dtype") or "float32")
    )


def _dtype(asked: str, size: ModelSize | None) -> str:
    return asked if asked != "auto" else size.stored if size else "float32"


def judge_costs(
    params: Params, answers: int, rate: float | None, missing: ModelSize | None = None
) -> list[JudgeCost]:
    """The cost of every judge that reads ``answers`` drawn answers."""
    judges = [(name, entry.judge, entry.params, entry.labelled) for name, entry in params.judges.items()]
    judges += [(name, name, own, None) for name, own in params.score.params.items() if name in JUDGES]
    return [_of_judge(*judge, params, answers, rate, missing) for judge in judges]


def _of_judge(
    name: str,
    kind: str,
    own: ScorerParams,
    labelled: str | None,
    params: Params,
    answers: int,
    rate: float | None,
    missing: ModelSize | None,
) -> JudgeCost:
    model = str(getattr(own, "model", ""))
    size = size_of(Path(model)) or missing
    if labelled is not None and Path(labelled).is_file():
        answers += sum(1 for line in Path(labelled).read_text(encoding="utf-8").splitlines() if line.strip())
    longest = min(params.sample.max_new_tokens, int(getattr(own, "clip", params.sample.max_new_tokens)))
    around = _counter(Path(model))(JUDGES[kind].around(own))
    dtype = _dtype(str(getattr(own, "dtype", "auto")), size)
    return JudgeCost(
        name=name,
        kind=kind,
        model=model,
        answers_at_most=answers,
        tokens_at_most=answers * (around + PROMPT_TOKENS + longest),
        parameters=size.parameters if size else None,
        weight_bytes=size.parameters * BYTES.get(dtype, 4) if size else None,
        answers_per_second=rate,
        seconds_at_most=answers / rate if rate else None,
    )


def _counter(*folders: Path) -> Callable[[str], int]:
    """Counts the tokens of a text with the tokenizer of the first folder that has one, else by its characters."""
    from lethe.models import checkpoints

    for folder in folders:
        if (folder / "config.json").is_file():
            tokenizer = checkpoints.load_tokenizer(folder)
            return lambda text: len(tokenizer(text)["input_ids"])
    return lambda text: math.ceil(len(text) / CHARACTERS)


def stage_costs(params: Params, rate: float | None) -> list[StageCost]:
    """The cost of every training, every method and every attack; empty where the data are missing."""
    from lethe.data import load_splits

    if not (params.train.models or params.unlearn.methods or params.attacks):
        return []
    try:
        return list(_Counts(params, load_splits(params.data)).stages(rate))
    except BadInput:
        return []


class _Counts:
    """The tokens of a dataset's rows, and the stages that read them."""

    def __init__(self, params: Params, splits: Mapping[str, list[Row]]):
        self.params, self.splits = params, splits
        starts = [params.unlearn.recipe.start_from, params.train.recipe.start_from]
        self.start = next((Path(one) for one in starts if one and Path(one, "config.json").is_file()), None)
        self.count = _counter(*([self.start] if self.start else []))

    def tokens(self, splits: Sequence[str]) -> int:
        """Tokens of the prompts and answers of some splits, without what a template adds."""
        rows = [row for split in splits for row in self.splits.get(split, [])]
        return sum(self.count(f"{row['question']} {row['answer']}") for row in rows)

    def stages(self, rate: float | None) -> Iterator[StageCost]:
        """Every training, method and attack."""
        from lethe.models.training import ROWS

        for name, entry in self.params.train.models.items():
            recipe = self.params.train.recipe_of(name)
            tokens = recipe.epochs * self.tokens([*ROWS[entry.rows], *recipe.knowledge])
            yield StageCost("train", name, tokens, 0, None)
        for name, method in self.params.unlearn.methods.items():
            yield StageCost("unlearn", name, self._of_method(method), 0, None, self._reference(method))
        for name, attack in self.params.attacks.items():
            answers = self._of_attack(attack)
            seconds = answers * self.params.sample.max_new_tokens / rate if rate else None
            yield StageCost("attack", name, 0, answers, seconds)

    def _of_method(self, method: MethodParams) -> int:
        """The forget set once per epoch, and the retain rows beside it."""
        recipe, retain = self.params.unlearn.recipe, self.splits["retain"]
        steps = method.epochs * -(-len(self.splits["forget"]) // recipe.forget_batch)
        beside = steps * recipe.retain_batch * self.tokens(["retain"]) / max(1, len(retain))
        return method.epochs * self.tokens(["forget"]) + round(beside)

    def _of_attack(self, attack: Attack) -> int:
        """Every budget and seed is asked anew, the model before the attack too."""
        lists = [value for value in attack.after.model_dump().values() if isinstance(value, (list, tuple))]
        budgets = len(lists[0]) if lists else 1
        return len(attack.seeds) * (budgets + 1) * len(self.splits["forget"]) * (attack.n + 1)

    def _reference(self, method: MethodParams) -> ReferenceMemory:
        """The memory of the model before unlearning, whole and as kept values."""
        from lethe.unlearning.protocol import Method

        chosen, recipe = self.params.unlearn.recipe.reference, self.params.train.recipe
        member = METHODS[method.loss](method)
        if not (member.needs.reference_model or (member.uses_retain and method.retain_loss == "kl")):
            return ReferenceMemory("nothing", 0, 0, chosen)
        states = type(member).reference_block is not Method.reference_block
        size = size_of(self.start) if self.start else None
        stated = read_json(self.start / "config.json") if self.start else {}
        key, fresh = ("hidden_size", recipe.hidden) if states else ("vocab_size", recipe.vocabulary)
        answers = [row["answer"] for split in ("forget", "retain") for row in self.splits[split]]
        cached = NUMBER * int(stated.get(key) or fresh) * sum(map(self.count, answers))
        return ReferenceMemory(
            "states" if states else "logits", NUMBER * size.parameters if size else None, cached, chosen
        )


@dataclass(frozen=True)
class Fleet:
    """Many checkpoints, each asked the same prompts; ``leak`` is what every prompt is taken to leak, under `tau`."""

    checkpoints: int = 1000
    prompts: int = 4000
    answers: int = 1024
    new_tokens: int = 64
    parameters: float = 7e9
    leak: float = 0.0
    tau: float = 0.05
    tau_leak: float = 0.1
    alpha: float = 0.01

    def __post_init__(self) -> None:
        for name in ("checkpoints", "prompts", "answers", "new_tokens", "parameters"):
            if not getattr(self, name) >= 1:
                raise BadValue(name, getattr(self, name), "at least 1")


@dataclass(frozen=True)
class Way:
    """One way to draw: its answers, their tokens, and their GPU hours; None without the user's rate."""

    name: str
    answers: float
    tokens: float
    gpu_hours: float | None


def fleet_ways(fleet: Fleet, rate: float | None, rows: int) -> tuple[float, list[Way]]:
    """The expected answers per prompt under sequential stopping, and what each way takes.

    ``rows`` are the tokens that exact enumeration puts through the model per prompt.

    >>> _, (plain, *_) = fleet_ways(Fleet(checkpoints=1, prompts=1, new_tokens=10), 10250.0, 5000)
    >>> plain.name, plain.answers, plain.tokens, round(plain.gpu_hours * 3600, 3)
    ('plain', 1025, 10250, 1.0)
    """
    questions = fleet.checkpoints * fleet.prompts
    expected = expected_sequential(fleet.leak, fleet.tau, fleet.tau_leak, fleet.alpha, fleet.answers).samples
    answers = {"plain": questions * (fleet.answers + 1), "sequential stopping": questions * (expected + 1)}
    drawn = [(name, count, count * fleet.new_tokens) for name, count in answers.items()]
    drawn.append(("exact enumeration alone", 0, questions * rows))
    return expected, [Way(*each, each[2] / rate / 3600 if rate else None) for each in drawn]


def processor_seconds() -> float:
    """Processor seconds of this process, to which other work adds nothing; seconds of the clock where a GPU works."""
    import time

    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()
