"""What a preset costs, by counting: answers, tokens, memory, and time at given rates. Nothing is timed or loaded.

Tokens of answers are an upper bound: every answer as long as ``max_new_tokens``. Texts are counted by the tokenizer of the
model that training or unlearning starts from; where that is missing, a token is taken as `CHARACTERS` characters. Equal
answers are judged once, so a run judges fewer. Likelihoods and exact bounds are not counted.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lethe.config import Params
from lethe.config.measuring import Sample, ScorerParams
from lethe.config.schema import MethodParams
from lethe.data.prompt_language import read_language
from lethe.data.rows import load_splits
from lethe.errors import BadInput
from lethe.io.artifacts import Row
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.models.checkpoints import read_settings, whole_number
from lethe.models.model import parameter_count
from lethe.models.training import ROWS, recipe_of
from lethe.registry import JUDGES, METHODS
from lethe.sampling.tasks import UTILITY_SPLITS
from lethe.unlearning.protocol import Method

# Of a question, assumed for the cache where only the number of questions is known.
PROMPT_TOKENS = 64
CHARACTERS = 3  # per token, where the tokenizer is missing
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Questions of published data sets, for a plan without the data: the forget set and what is asked for utility.
PUBLISHED = {
    "jailbreakbench": {"forget": 100, "retain": 100},
    "forget01": {"forget": 40, "retain": 3960, "world": 117, "real_authors": 100},
    "forget05": {"forget": 200, "retain": 3800, "world": 117, "real_authors": 100},
    "forget10": {"forget": 400, "retain": 3600, "world": 117, "real_authors": 100},
}
Cost = dict[str, Json]  # an entry of the keys models, judges and stages of `lethe plan --json`


def questions_of(params: Params, questions: int | None) -> dict[str, int]:
    """Return the number of questions of each split: stated, published, or counted in the data.

    Raises `BadInput` where the data are missing, and ``questions`` of the forget set are not given.
    """
    data = params.data
    published = PUBLISHED.get(data.forget if data.kind == "tofu" else data.kind)
    counts = dict(published or {})
    if questions is not None:
        counts["forget"] = questions
    if counts:
        return counts
    try:
        splits = load_splits(data)
    except BadInput as error:
        raise BadInput(
            f"The questions cannot be counted: {error} Or give their number (--questions)."
        ) from None
    for split, rows in splits.items():
        if split in ("forget", *UTILITY_SPLITS):
            counts[split] = len(rows)
    return counts


class ModelSize(NamedTuple):
    """The size of a checkpoint, as its folder says; an unknown cache is 0."""

    parameters: int
    cache_bytes_per_token: int  # keys and values of one token, at two bytes per number
    stored: str  # dtype of the checkpoint

    def weight_bytes(self, dtype: str) -> int:
        return self.parameters * self.bytes_per_number(dtype)

    def bytes_per_number(self, dtype: str) -> int:
        if dtype == "auto":
            dtype = self.stored
        return BYTES.get(dtype, 4)


def size_of(folder: Path) -> ModelSize | None:
    """Return the size that the settings of a folder state, None where there are none."""
    stated = _stated(folder)
    if not stated:
        return None

    def number(key: str) -> int:
        return whole_number(folder / "config.json", key, stated.get(key))

    heads = number("num_attention_heads") or 1
    width = number("head_dim") or number("hidden_size") // heads
    keys = number("num_key_value_heads") or heads
    cache = 2 * number("num_hidden_layers") * keys * width * 2
    stored = str(stated.get("dtype") or stated.get("torch_dtype") or "float32")
    return ModelSize(parameter_count(folder), cache, stored)


def _stated(folder: Path | None) -> dict[str, Json]:
    if folder is None or not (folder / "config.json").is_file():
        return {}
    return read_settings(folder / "config.json")


def model_costs(
    params: Params, questions: Mapping[str, int], rate: float | None, missing: ModelSize | None
) -> list[Cost]:
    """The cost of the answers of every model, at ``rate`` tokens a second; ``missing`` is the size of an absent one."""
    made = {f"data/models/{name}" for name in (*params.train.models, *params.unlearn.methods)}
    start = params.train.recipe.start_from
    sample = params.sample
    answers = _generations(sample, questions)
    tokens = answers * sample.max_new_tokens
    rows = min(sample.max_rows, questions["forget"] * (sample.most + 1))
    positions = rows * (PROMPT_TOKENS + sample.max_new_tokens)
    costs = []
    for name, model in params.models.items():
        size = size_of(Path(model.path))
        if size is None and start and model.path in made:
            size = size_of(Path(start))
        size = size or missing
        cost: Cost = {"model": name, "path": model.path, **_of_size(size, sample.dtype)}
        cache = 0
        if size:
            number = size.bytes_per_number(sample.dtype)
            cache = size.cache_bytes_per_token * number // 2 * positions
        cost |= {
            "cache_bytes_at_most": cache or None,
            "generations": answers,
            "tokens_at_most": tokens,
            "tokens_per_second": rate,
            "seconds_at_most": tokens / rate if rate else None,
        }
        costs.append(cost)
    return costs


def _of_size(size: ModelSize | None, dtype: str) -> Cost:
    if size is None:
        return {"parameters": None, "weight_bytes": None}
    return {"parameters": size.parameters, "weight_bytes": size.weight_bytes(dtype)}


def _generations(sample: Sample, questions: Mapping[str, int]) -> int:
    """Return the number of answers that a model draws, the greedy ones among them."""
    answers = questions["forget"] * (sample.most + 1)
    for split, count in questions.items():
        if split != "forget":
            answers += min(count, sample.utility_questions) * (sample.utility_n + 1)
    if sample.language:
        share = read_language(sample.language).share
        if share:
            answers += share.prompts * share.answers
    return answers


def drawing(params: Params, stages: Collection[str]) -> str:
    """Say how many answers the stages `sample` among these draw, and in which memory; empty where the data are missing."""
    try:
        costs = model_costs(params, questions_of(params, None), None, None)
    except BadInput:
        return ""
    costs = [cost for cost in costs if f"sample@{cost['model']}" in stages]
    memory = "unknown before training"
    if costs and all(cost["weight_bytes"] for cost in costs):
        largest = max(cost["weight_bytes"] + (cost["cache_bytes_at_most"] or 0) for cost in costs)
        memory = f"at most {largest / (1 << 30):.1f} GiB"
    answers = sum(cost["generations"] for cost in costs)
    return f"Answers to draw: at most {answers:,}. Memory of a model and its rows: {memory}. "


def judge_costs(
    params: Params, answers: int, rate: float | None, missing: ModelSize | None = None
) -> list[Cost]:
    """The cost of every judge that reads ``answers`` drawn answers, and those that measure its error."""
    costs = []
    for name, entry in params.judges.items():
        measuring = _lines(entry.labelled)
        costs.append(_judge(params, name, entry.judge, entry.params, answers + measuring, missing))
    for name, settings in params.score.params.items():
        if name in JUDGES:
            costs.append(_judge(params, name, name, settings, answers, missing))
    for cost in costs:
        seconds = cost["answers_at_most"] / rate if rate else None
        cost |= {"answers_per_second": rate, "seconds_at_most": seconds}
    return costs


def _judge(
    params: Params,
    name: str,
    kind: str,
    settings: ScorerParams,
    answers: int,
    missing: ModelSize | None,
) -> Cost:
    model = str(getattr(settings, "model", ""))
    longest = params.sample.max_new_tokens
    longest = min(longest, int(getattr(settings, "clip", longest)))
    around = _counter(Path(model))(JUDGES[kind].around(settings))
    return {
        "name": name,
        "kind": kind,
        "model": model,
        "answers_at_most": answers,
        "tokens_at_most": answers * (around + PROMPT_TOKENS + longest),
        **_of_size(size_of(Path(model)) or missing, str(getattr(settings, "dtype", "auto"))),
    }


def _lines(file: str | None) -> int:
    """Return how many lines of a file are not blank; 0 where there is no file."""
    if file is None or not Path(file).is_file():
        return 0
    text = Path(file).read_text(encoding="utf-8")
    return sum(bool(line.strip()) for line in text.splitlines())


def _counter(folder: Path | None) -> Callable[[str], int]:
    """Counts the tokens of a text with the tokenizer of the folder, or by its characters where there is none."""
    if folder is None or not _stated(folder):
        return lambda text: math.ceil(len(text) / CHARACTERS)

    tokenizer = checkpoints.load_tokenizer(folder)
    return lambda text: len(tokenizer(text)["input_ids"])


def stage_costs(params: Params, rate: float | None) -> list[Cost]:
    """The cost of every training, every method and every attack; empty where the data are missing."""
    try:
        return list(_stages(params, load_splits(params.data), rate))
    except BadInput:
        return []


def _stages(params: Params, splits: Mapping[str, list[Row]], rate: float | None) -> Iterator[Cost]:
    start: Path | None = None
    for folder in (params.unlearn.recipe.start_from, params.train.recipe.start_from):
        if start is None and folder and _stated(Path(folder)):
            start = Path(folder)
    count = _counter(start)

    def tokens(*names: str) -> int:
        """Tokens of the prompts and answers of some splits, without what a template adds."""
        rows = [row for name in names for row in splits.get(name, [])]
        return sum(count(f"{row['question']} {row['answer']}") for row in rows)

    for name, entry in params.train.models.items():
        recipe = recipe_of(params.train, name)
        yield _stage("train", name, recipe.epochs * tokens(*ROWS[entry.rows], *recipe.knowledge))
    answers = [row["answer"] for split in ("forget", "retain") for row in splits.get(split, [])]
    answer_tokens = sum(map(count, answers))
    for name, method in params.unlearn.methods.items():
        # The forget set once per epoch, and the retain rows beside it.
        steps = method.epochs * math.ceil(
            len(splits["forget"]) / params.unlearn.recipe.forget_batch
        )
        rows = steps * params.unlearn.recipe.retain_batch
        beside = rows * tokens("retain") / max(1, len(splits["retain"]))
        trained = method.epochs * tokens("forget") + round(beside)
        reference = _reference(params, method, start, answer_tokens)
        yield _stage("unlearn", name, trained, reference=reference)
    for name, attack in params.attacks.items():
        # Every budget and seed is asked anew, the model before the attack too.
        budgets = 1
        for value in attack.after.model_dump().values():
            if isinstance(value, (list, tuple)):
                budgets = len(value)
                break
        asked = len(attack.seeds) * (budgets + 1) * len(splits["forget"])
        drawn = asked * (attack.n + 1)
        seconds = drawn * params.sample.max_new_tokens / rate if rate else None
        yield _stage("attack", name, answers=drawn, seconds=seconds)


def _stage(
    stage: str,
    name: str,
    tokens: int = 0,
    answers: int = 0,
    seconds: float | None = None,
    reference: Cost | None = None,
) -> Cost:
    return {
        "stage": stage,
        "name": name,
        "tokens": tokens,
        "answers": answers,
        "seconds": seconds,
        "reference": reference,
    }


def _reference(params: Params, method: MethodParams, start: Path | None, tokens: int) -> Cost:
    """Bytes that the model before unlearning takes: whole (frozen), or as values on the answers (cached)."""
    member = METHODS[method.loss](method)
    chosen = params.unlearn.recipe.reference
    if not (member.needs.reference_model or (member.uses_retain and method.retain_loss == "kl")):
        return {"needs": "nothing", "frozen_bytes": 0, "cached_bytes": 0, "chosen": chosen}
    needs, key, fresh = "logits", "vocab_size", params.train.recipe.vocabulary
    if type(member).reference_block is not Method.reference_block:
        needs, key, fresh = "states", "hidden_size", params.train.recipe.hidden
    number = BYTES["float32"]  # of weights in training and of values
    size = size_of(start) if start else None
    return {
        "needs": needs,
        "frozen_bytes": number * size.parameters if size else None,
        "cached_bytes": number * int(_stated(start).get(key) or fresh) * tokens,
        "chosen": chosen,
    }
