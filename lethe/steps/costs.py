"""What a preset costs, by counting: answers, tokens, memory, and time at given rates. Nothing is timed or loaded.

Tokens of answers are an upper bound: every answer as long as ``max_new_tokens``, and with `sample.stop: word` every question
at the cap, also of the Retrains beside each model. Texts are counted by the tokenizer of the
model that training or unlearning starts from; where that is missing, a token is taken as `CHARACTERS` characters. Equal
answers are judged once, so a run judges fewer. Likelihoods and exact bounds are not counted, the answers that the twin test
reads are.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lethe.config import Params
from lethe.config.measuring import SampleSettings, ScorerParams
from lethe.config.schema import Attack, MethodParams, Population
from lethe.data.rows import load_splits, with_twins
from lethe.data.secrets import secrets_of
from lethe.errors import BadInput
from lethe.io.artifacts import Row
from lethe.io.files import Json
from lethe.models import checkpoints
from lethe.models.checkpoints import read_settings, whole_number
from lethe.models.model import parameter_count
from lethe.models.training import ROWS, recipe_of
from lethe.registry import JUDGES, METHODS
from lethe.sampling.prompt_language import read_language
from lethe.sampling.tasks import UTILITY_SPLITS
from lethe.statistics.anytime import answers_without_a_leak
from lethe.statistics.attack_share import (
    attacks_needed,
    level_of_attack,
    planned_attacks,
)
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
    name = data.forget if data.kind == "tofu" else data.kind
    counts = dict(PUBLISHED.get(name, {}))
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
        """Bytes of the weights, held as ``dtype``."""
        return self.parameters * self.bytes_per_number(dtype)

    def bytes_per_number(self, dtype: str) -> int:
        """Bytes of a number held as ``dtype``; "auto" is that of the checkpoint."""
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

    layers = number("num_hidden_layers")
    heads = number("num_attention_heads") or 1
    width = number("head_dim") or number("hidden_size") // heads
    keys = number("num_key_value_heads") or heads
    numbers_per_token = 2 * layers * keys * width  # keys and values
    stored = str(stated.get("dtype") or stated.get("torch_dtype") or "float32")
    return ModelSize(parameter_count(folder), 2 * numbers_per_token, stored)


def _stated(folder: Path | None) -> dict[str, Json]:
    """The settings of a model folder; empty where there are none."""
    if folder is None or not (folder / "config.json").is_file():
        return {}
    return read_settings(folder / "config.json")


def model_costs(
    params: Params,
    questions: Mapping[str, int],
    rate: float | None,
    missing: ModelSize | None,
) -> list[Cost]:
    """The cost of the answers of every model, at ``rate`` tokens a second; ``missing`` is the size of an absent one."""
    made = {f"data/models/{name}" for name in (*params.train.models, *params.unlearn.methods)}
    start = params.train.recipe.start_from
    sample = params.sample
    least = _generations(sample, questions, sample.at_first)
    rows = min(sample.max_rows, questions["forget"] * (sample.most + 1))
    costs = []
    for name, model in params.models.items():
        size = size_of(Path(model.path))
        if size is None and start and model.path in made:
            size = size_of(Path(start))
        size = size or missing
        answers = _most(params, name, questions)
        longest = model.asked(sample).max_new_tokens
        positions = rows * (PROMPT_TOKENS + longest)
        tokens = answers * longest
        cache = 0
        if size:
            number = size.bytes_per_number(sample.dtype)
            cache = size.cache_bytes_per_token * number // 2 * positions
        cost: Cost = {
            "model": name,
            "path": model.path,
            **_of_size(size, sample.dtype),
            "cache_bytes_at_most": cache or None,
            "generations": answers,
            "generations_at_least": least,
            "tokens_at_most": tokens,
            "tokens_per_second": rate,
            "seconds_at_most": _seconds(tokens, rate),
        }
        costs.append(cost)
    return costs


def _seconds(work: float, rate: float | None) -> float | None:
    """The time of so much work at a rate per second; None without a rate."""
    if not rate:
        return None
    return work / rate


def _of_size(size: ModelSize | None, dtype: str) -> Cost:
    """Parameters and bytes of a model; None where its size is not known."""
    if size is None:
        return {"parameters": None, "weight_bytes": None}
    return {"parameters": size.parameters, "weight_bytes": size.weight_bytes(dtype)}


def _most(params: Params, name: str, questions: Mapping[str, int]) -> int:
    """Return the most answers that a model takes, with those of the Retrains beside it.

    Base and a Retrain have the first answers alone.
    """
    sample = params.sample
    retrains = params.report.retrains
    if sample.stop == "fixed" or name in (params.report.base, *retrains):
        return _generations(sample, questions, sample.at_first)
    beside = len(retrains) * questions["forget"] * sample.most
    return _generations(sample, questions, sample.most) + beside


def _generations(sample: SampleSettings, questions: Mapping[str, int], n: int) -> int:
    """Return the number of answers that a model draws, ``n`` to a forget question, the greedy ones among them."""
    answers = questions["forget"] * (n + 1)
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
    most = 0
    least = 0
    sizes: list[int | None] = []  # None: not known before training
    for cost in costs:
        if f"sample@{cost['model']}" not in stages:
            continue
        most += cost["generations"]
        least += cost["generations_at_least"]
        size = cost["weight_bytes"]
        if size:
            size += cost["cache_bytes_at_most"] or 0
        sizes.append(size)
    memory = "unknown before training"
    if sizes and all(sizes):
        largest = max(filter(None, sizes))
        memory = f"at most {largest / (1 << 30):.1f} GiB"
    answers = f"at most {most:,}"
    if least < most:  # the word decides
        answers = f"at least {least:,}, {answers}"
    return f"Answers to draw: {answers}. Memory of a model and its rows: {memory}. "


def judge_costs(
    params: Params, answers: int, rate: float | None, missing: ModelSize | None = None
) -> list[Cost]:
    """The cost of every judge that reads ``answers`` drawn answers, and those that measure its error."""
    costs = []
    for name, entry in params.judges.items():
        read = answers + _lines(entry.labelled)
        costs.append(
            _judge(
                params,
                name,
                entry.judge,
                entry.params,
                read,
                missing,
            )
        )
    for name, settings in params.score.params.items():
        if name in JUDGES:
            costs.append(
                _judge(
                    params,
                    name,
                    name,
                    settings,
                    answers,
                    missing,
                )
            )
    for cost in costs:
        cost["answers_per_second"] = rate
        cost["seconds_at_most"] = _seconds(cost["answers_at_most"], rate)
    return costs


def _judge(
    params: Params,
    name: str,
    kind: str,
    settings: ScorerParams,
    answers: int,
    missing: ModelSize | None,
) -> Cost:
    """The cost of a judge that reads so many answers, each with a question and the text of its prompt."""
    model = str(getattr(settings, "model", ""))
    count = _counter(Path(model))
    around = count(JUDGES[kind].around(settings))
    longest = max(params.asked(asked).max_new_tokens for asked in params.models)
    clipped = min(longest, int(getattr(settings, "clip", longest)))
    size = size_of(Path(model)) or missing
    dtype = str(getattr(settings, "dtype", "auto"))
    return {
        "name": name,
        "kind": kind,
        "model": model,
        "answers_at_most": answers,
        "tokens_at_most": answers * (around + PROMPT_TOKENS + clipped),
        **_of_size(size, dtype),
    }


def _lines(file: str | None) -> int:
    """Return how many lines of a file are not blank; 0 where there is no file."""
    if file is None or not Path(file).is_file():
        return 0
    text = Path(file).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines)


def _counter(folder: Path | None) -> Callable[[str], int]:
    """Counts the tokens of a text with the tokenizer of the folder, or by its characters where there is none."""
    if folder is None or not _stated(folder):
        return lambda text: math.ceil(len(text) / CHARACTERS)

    tokenizer = checkpoints.load_tokenizer(folder)
    return lambda text: len(tokenizer(text)["input_ids"])


def twin_costs(params: Params) -> Cost | None:
    """The answers that the twin test reads, each in one pass; None where nothing was drawn or the data are missing."""
    if params.twins is None:
        return None
    try:
        splits = with_twins(params.data, load_splits(params.data), params.twins.k)
    except BadInput:
        return None
    secrets = secrets_of(splits["forget"])
    passes = 0
    for secret in secrets:
        passes += len(secret.rows) * len(secret.candidates)
    readable = [name for name, model in params.models.items() if not model.served]
    if not passes:
        return None
    return {
        "secrets": len(secrets),
        "passes": passes,
        "models": len(readable),
        "passes_of_all": passes * len(readable),
    }


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
        total = 0
        for name in names:
            for row in splits.get(name, []):
                total += count(f"{row['question']} {row['answer']}")
        return total

    for name, entry in params.train.models.items():
        recipe = recipe_of(params.train, name)
        learned = tokens(*ROWS[entry.rows], *recipe.knowledge)
        yield _stage("train", name, recipe.epochs * learned)

    answer_tokens = 0
    for split in ("forget", "retain"):
        for row in splits.get(split, []):
            answer_tokens += count(row["answer"])
    forget_rows = len(splits["forget"])
    of_unlearning = params.unlearn.recipe
    for name, method in params.unlearn.methods.items():
        # The forget set once per epoch, and the retain rows beside it.
        steps = method.epochs * math.ceil(forget_rows / of_unlearning.forget_batch)
        rows = steps * of_unlearning.retain_batch
        beside = rows * tokens("retain") / max(1, len(splits["retain"]))
        trained = method.epochs * tokens("forget") + round(beside)
        reference = _reference(params, method, start, answer_tokens)
        yield _stage("unlearn", name, trained, reference=reference)

    for name, attack in params.attacks.items():
        if isinstance(attack, Population):
            drawn = answers_of_population(attack, forget_rows)
            seconds = _seconds(drawn * params.sample.max_new_tokens, rate)
            yield _stage("attack", name, answers=drawn, seconds=seconds)
            continue
        # Every budget and seed is asked anew, the model before the attack too.
        asked = len(attack.seeds) * (_budgets(attack) + 1) * forget_rows
        drawn = asked * (attack.n + 1)
        seconds = _seconds(drawn * params.sample.max_new_tokens, rate)
        yield _stage("attack", name, answers=drawn, seconds=seconds)


def _budgets(attack: Attack) -> int:
    """The number of budgets of an attack: its settings name them in the first list."""
    for value in attack.after.model_dump().values():
        if isinstance(value, (list, tuple)):
            return len(value)
    return 1


def answers_of_population(entry: Population, questions: int) -> int:
    """Return the answers of a population of which no attack brings out a leak, and every attack is proved to fail."""
    planned = planned_attacks(entry.draws, entry.goal, entry.alpha)
    most = attacks_needed(entry.goal, entry.alpha)
    goal = -math.log(level_of_attack(entry.alpha, planned))
    first = answers_without_a_leak(entry.tau, goal, beside_retrain=False)
    return min(planned, most) * questions * min(first, entry.n)


def _stage(
    stage: str,
    name: str,
    tokens: int = 0,
    answers: int = 0,
    seconds: float | None = None,
    reference: Cost | None = None,
) -> Cost:
    """An entry of the key ``stages``."""
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
    compares_retain = member.uses_retain and method.retain_loss == "kl"
    if not member.needs.reference_model and not compares_retain:
        return {"needs": "nothing", "frozen_bytes": 0, "cached_bytes": 0, "chosen": chosen}

    stated = _stated(start)
    if type(member).reference_block is Method.reference_block:
        needs = "logits"
        width = stated.get("vocab_size") or params.train.recipe.vocabulary
    else:
        needs = "states"
        width = stated.get("hidden_size") or params.train.recipe.hidden
    number = BYTES["float32"]  # of weights in training and of values
    frozen = None
    size = size_of(start) if start else None
    if size:
        frozen = number * size.parameters
    return {
        "needs": needs,
        "frozen_bytes": frozen,
        "cached_bytes": number * int(width) * tokens,
        "chosen": chosen,
    }
