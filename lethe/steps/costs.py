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
from lethe.config.evaluating import Sample, ScorerParams
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

PROMPT_TOKENS = (
    64  # of a question, assumed for the cache where only the number of questions is known
)
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
    data = params.data
    published = PUBLISHED.get(data.forget if data.kind == "tofu" else data.kind)
    if questions is not None or published is not None:
        return {**(published or {}), **({} if questions is None else {"forget": questions})}
    try:
        splits = load_splits(data)
    except BadInput as error:
        raise BadInput(
            f"The questions cannot be counted: {error} Or give their number (--questions)."
        ) from None
    return {
        split: len(rows) for split, rows in splits.items() if split in ("forget", *UTILITY_SPLITS)
    }


class ModelSize(NamedTuple):
    """The size of a checkpoint, as its folder says; an unknown cache is 0."""

    parameters: int
    cache_bytes_per_token: int  # keys and values of one token, at two bytes per number
    stored: str  # dtype of the checkpoint

    def number(self, dtype: str) -> int:
        return BYTES.get(self.stored if dtype == "auto" else dtype, 4)


def size_of(folder: Path) -> ModelSize | None:
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
    made = {f"data/models/{name}" for name in (*params.train.models, *params.unlearn.methods)}
    start, sample = params.train.recipe.start_from, params.sample
    answers = _generations(sample, questions)
    tokens, longest = answers * sample.max_new_tokens, PROMPT_TOKENS + sample.max_new_tokens
    positions = min(sample.max_rows, questions["forget"] * (sample.most + 1)) * longest
    costs = []
    for name, model in params.models.items():
        size = size_of(Path(model.path)) or (
            size_of(Path(start)) if start and model.path in made else None
        )
        size = size or missing
        number = size.number(sample.dtype) if size else 0
        cost: Cost = {
            "model": name,
            "path": model.path,
            "parameters": size.parameters if size else None,
        }
        cost["weight_bytes"] = size.parameters * number if size else None
        cache = size.cache_bytes_per_token * number // 2 * positions if size else 0
        cost |= {
            "cache_bytes_at_most": cache or None,
            "generations": answers,
            "tokens_at_most": tokens,
        }
        costs.append(
            cost | {"tokens_per_second": rate, "seconds_at_most": tokens / rate if rate else None}
        )
    return costs


def _generations(sample: Sample, questions: Mapping[str, int]) -> int:
    share = read_language(sample.language).share if sample.language else None
    second = share.prompts * share.answers if share else 0
    utility = sum(
        min(count, sample.utility_questions)
        for split, count in questions.items()
        if split != "forget"
    )
    return questions["forget"] * (sample.most + 1) + utility * (sample.utility_n + 1) + second


def drawing(params: Params, stages: Collection[str]) -> str:
    """Say how many answers the stages `sample` among these draw, and in which memory; empty where the data are missing."""
    try:
        costs = model_costs(params, questions_of(params, None), None, None)
    except BadInput:
        return ""
    costs = [one for one in costs if f"sample@{one['model']}" in stages]
    sizes = [
        one["weight_bytes"] and one["weight_bytes"] + (one["cache_bytes_at_most"] or 0)
        for one in costs
    ]
    memory = (
        f"at most {max(sizes) / (1 << 30):.1f} GiB"
        if all(sizes) and sizes
        else "unknown before training"
    )
    answers = sum(one["generations"] for one in costs)
    return f"Answers to draw: at most {answers:,}. Memory of a model and its rows: {memory}. "


def judge_costs(
    params: Params, answers: int, rate: float | None, missing: ModelSize | None = None
) -> list[Cost]:
    """The cost of every judge that reads ``answers`` drawn answers, and those that measure its error."""
    judges: list[tuple[str, str, ScorerParams, str | None]] = [
        (name, entry.judge, entry.params, entry.labelled) for name, entry in params.judges.items()
    ]
    judges += [
        (name, name, own, None) for name, own in params.score.params.items() if name in JUDGES
    ]
    costs = []
    for name, kind, own, labelled in judges:
        model, count = str(getattr(own, "model", "")), answers
        size = size_of(Path(model)) or missing
        if labelled is not None and Path(labelled).is_file():
            count += sum(
                1
                for line in Path(labelled).read_text(encoding="utf-8").splitlines()
                if line.strip()
            )
        longest = min(
            params.sample.max_new_tokens, int(getattr(own, "clip", params.sample.max_new_tokens))
        )
        around = _counter(Path(model))(JUDGES[kind].around(own))
        number = size.number(str(getattr(own, "dtype", "auto"))) if size else 0
        cost: Cost = {"name": name, "kind": kind, "model": model, "answers_at_most": count}
        cost["tokens_at_most"] = count * (around + PROMPT_TOKENS + longest)
        cost["parameters"] = size.parameters if size else None
        cost["weight_bytes"] = size.parameters * number if size else None
        costs.append(
            cost | {"answers_per_second": rate, "seconds_at_most": count / rate if rate else None}
        )
    return costs


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
    starts = [params.unlearn.recipe.start_from, params.train.recipe.start_from]
    start = next((Path(one) for one in starts if one and _stated(Path(one))), None)
    count = _counter(start)

    def tokens(*names: str) -> int:
        """Tokens of the prompts and answers of some splits, without what a template adds."""
        rows = [row for name in names for row in splits.get(name, [])]
        return sum(count(f"{row['question']} {row['answer']}") for row in rows)

    def cost(
        stage: str, name: str, trained: int, answers: int, reference: Cost | None = None
    ) -> Cost:
        seconds = (
            answers * params.sample.max_new_tokens / rate if rate and stage == "attack" else None
        )
        numbers = {
            "tokens": trained,
            "answers": answers,
            "seconds": seconds,
            "reference": reference,
        }
        return {"stage": stage, "name": name, **numbers}

    for name, entry in params.train.models.items():
        recipe = recipe_of(params.train, name)
        yield cost("train", name, recipe.epochs * tokens(*ROWS[entry.rows], *recipe.knowledge), 0)
    answers = [row["answer"] for split in ("forget", "retain") for row in splits.get(split, [])]
    for name, method in params.unlearn.methods.items():
        # the forget set once per epoch, and the retain rows beside it
        steps = method.epochs * -(-len(splits["forget"]) // params.unlearn.recipe.forget_batch)
        beside = (
            steps
            * params.unlearn.recipe.retain_batch
            * tokens("retain")
            / max(1, len(splits["retain"]))
        )
        trained = method.epochs * tokens("forget") + round(beside)
        yield cost(
            "unlearn", name, trained, 0, _reference(params, method, start, sum(map(count, answers)))
        )
    for name, attack in params.attacks.items():
        # every budget and seed is asked anew, the model before the attack too
        lists = [
            value
            for value in attack.after.model_dump().values()
            if isinstance(value, (list, tuple))
        ]
        asked = len(attack.seeds) * ((len(lists[0]) if lists else 1) + 1) * len(splits["forget"])
        yield cost("attack", name, 0, asked * (attack.n + 1))


def _reference(params: Params, method: MethodParams, start: Path | None, tokens: int) -> Cost:
    """Bytes that the model before unlearning takes: whole (frozen), or as values on the answers (cached)."""
    member, recipe = METHODS[method.loss](method), params.train.recipe
    chosen = params.unlearn.recipe.reference
    if not (member.needs.reference_model or (member.uses_retain and method.retain_loss == "kl")):
        return {"needs": "nothing", "frozen_bytes": 0, "cached_bytes": 0, "chosen": chosen}
    states = type(member).reference_block is not Method.reference_block
    size = size_of(start) if start else None
    key, fresh = ("hidden_size", recipe.hidden) if states else ("vocab_size", recipe.vocabulary)
    number = BYTES["float32"]  # of weights in training and of values
    return {
        "needs": "states" if states else "logits",
        "frozen_bytes": number * size.parameters if size else None,
        "cached_bytes": number * int(_stated(start).get(key) or fresh) * tokens,
        "chosen": chosen,
    }
