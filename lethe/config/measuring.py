"""The settings by which a model is sampled, scored, measured and walked, with every default."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from lethe.config import fields
from lethe.io.label_places import CALIBRATION
from lethe.registry import ENGINES, JUDGES, SCORERS

NO_BINARY = "which measures the error of the scorer binary, and binary is null"
MOST_DRAWN = 1 << 16  # the largest number of answers per question that ``sample.n: auto`` draws
SERVED = "lethe/models/served"
SEEDED = "seeded"
# Engines whose j-th answers depend on the seed, the question and j alone.
BY_NUMBER = ("prefix", "vllm")
EngineName = Annotated[str, fields.NameIn((ENGINES,), also=("auto",), quoted=True)]
ScorerName = Annotated[str, fields.NameIn((SCORERS, JUDGES))]
Threshold = Annotated[fields.Real, Field(gt=0, le=1)]
Chance = Annotated[fields.Real, Field(gt=0, lt=1)]


Address = Annotated[
    str, Field(pattern=r"^https?://[^\s@?#]+$")
]  # up to /v1; no key belongs into it
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Endpoint(fields.Section):
    """A model behind an OpenAI-compatible server; a key is read from the environment variable ``key_env`` alone."""

    endpoint: Address
    name: fields.Place
    key_env: Variable | None = None
    concurrency: fields.Count = 16  # requests at once
    timeout: fields.Positive = (
        120.0  # seconds of a request, with its retries and the waits before them
    )
    retries: fields.Natural = 6  # of a request that failed
    max_tokens_total: fields.Count | None = (
        None  # read and written; the next request would exceed it: stop
    )
    price_in: fields.Weight | None = None  # of a million tokens read
    price_out: fields.Weight | None = None
    seeded: bool = (
        False  # one request and one seed for each answer, if the server draws by the seed
    )

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.endpoint.rstrip("/"), self.name, *[SEEDED] * self.seeded)

    def __str__(self) -> str:
        return f"{self.name} at {self.endpoint}"


ENDPOINT = Endpoint(
    endpoint="http://127.0.0.1:8000/v1", name="model"
)  # the defaults; address and name have none


class ModelEntry(fields.Section):
    """One evaluated model: a folder ``path``, or an endpoint, whose ``path`` `SERVED` stands for its weights in DVC.

    A model that answers in a format of its own has ``prompt``, the text with ``{question}``, or ``chat``, for the
    tokenizer's chat template, and ``max_new_tokens``, each in place of the key of ``sample``. A prompt is its text and no
    file, since DVC sees the values of an entry.
    """

    path: fields.Place
    adaptive_threshold: Chance | None = None
    prompt: fields.Place | None = None
    chat: bool = False
    max_new_tokens: fields.Count | None = None
    served: Endpoint | None = None

    @property
    def source(self) -> Path | Endpoint:
        return self.served or Path(self.path)

    @property
    def template(self) -> str | None:
        """The entry's template, "chat" for the tokenizer's; None where it takes that of ``sample``."""
        return "chat" if self.chat else self.prompt

    @property
    def is_asked_differently(self) -> bool:
        """Whether a key of the entry stands in place of one of ``sample``."""
        return self.template is not None or self.max_new_tokens is not None

    def asked(self, sample: "SampleSettings") -> "SampleSettings":
        """The settings of sampling with the entry's template and its limit in place of theirs."""
        changes: dict[str, object] = {}
        if self.template is not None:
            changes["prompt"] = self.template
        if self.max_new_tokens is not None:
            changes["max_new_tokens"] = self.max_new_tokens
        return sample.model_copy(update=changes)

    @field_validator("prompt")
    @classmethod
    def _a_prompt_is_its_text(cls, prompt: str | None) -> str | None:
        if prompt is not None and "{question}" not in prompt:
            raise ValueError(
                "the text of the prompt with {question}, in place of a file, which DVC would not track, "
                "or chat: true for the tokenizer's chat template"
            )
        return prompt

    @model_validator(mode="after")
    def _one_template(self) -> Self:
        if self.chat and self.prompt is not None:
            raise ValueError(
                f"prompt is {self.prompt!r} and chat is true, which names another template; remove one of them"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _an_attack_has_its_own_section(cls, value: object) -> object:
        if isinstance(value, dict) and "after" in value:
            raise ValueError(
                "an entry with the key after is an attack: put it under attacks, as `lethe run` does"
            )
        if isinstance(value, dict) and "endpoint" in value:
            if value.get("path") != SERVED:
                raise ValueError(
                    f"a model with an endpoint has no weights for DVC to track; add path: {SERVED}"
                )
            served = {}
            others = {}
            for key, setting in value.items():
                if key in Endpoint.model_fields:
                    served[key] = setting
                else:
                    others[key] = setting
            return {**others, "served": served}
        return value


class Drawing(fields.Section):
    """What changes the probability of an answer, with its defaults; engines, the answer tree and certificates take it too."""

    temperature: fields.Positive = 1.0
    top_p: Annotated[fields.Real, Field(gt=0, le=1)] = 1.0  # 1 cuts nothing
    top_k: fields.Natural = 0  # 0 cuts nothing
    max_new_tokens: fields.Count = 64


class SampleSettings(Drawing):
    """The settings of sampling, with the defaults of Python and the command line; params.yaml writes every key."""

    engine: EngineName = "auto"
    prompt: fields.Place
    seed: fields.Seed = 0
    # independent: a stream for each model, law and role, so that no two models share random numbers; shared: the j-th
    # answers of two models, or of two runs, make a pair
    stream: Literal["independent", "shared"] = "independent"
    batch: fields.Count = (
        128  # answers to a question that share a stream: one depends on its number alone
    )
    language: fields.Place | None = None
    # fixed: n answers to each question; word: more than the first until the word is certain (`lethe.statistics.policy`)
    stop: Literal["fixed", "word"] = "fixed"
    first: fields.Draws = (
        1024  # with stop: word the answers on which all numbers but the words rest
    )
    n: Annotated[fields.Draws | Literal["auto"], fields.OrAuto()] = 1024
    row_budget: fields.Count = 5000
    utility_n: fields.Draws = 32
    utility_questions: fields.Count = 200
    max_rows: fields.Count = 4096
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    tensor_parallel: fields.Count = 1
    data_parallel: fields.Count = 1
    # vLLM takes this share of a GPU's memory, its own default; models that are open together divide it
    gpu_memory: Chance = 0.9
    vllm_from: fields.Count = 100_000_000
    max_thinking_tokens: fields.Natural = 0  # of the thinking, beside max_new_tokens of the answer
    # what a bound makes of an answer that ended at max_new_tokens: its score, or no score
    truncated: Literal["counts", "missing"] = "counts"

    @property
    def longest(self) -> int:
        """The largest number of tokens of an answer with its thinking."""
        return self.max_new_tokens + self.max_thinking_tokens

    @property
    def most(self) -> int:
        """The largest number of answers per forget question: ``n``, or the limit of "auto"."""
        return MOST_DRAWN if self.n == "auto" else self.n

    @property
    def at_first(self) -> int:
        """The answers to each forget question that come whatever happens: all numbers but the words rest on these."""
        return min(self.first, self.most) if self.stop == "word" else self.most

    @field_validator("stop", mode="before")
    @classmethod
    def _early_stopping_is_the_word(cls, value: object) -> object:
        if value == "sequential":
            raise ValueError("'fixed' or 'word': use stop: word")
        return value

    @model_validator(mode="after")
    def _what_is_fixed_beforehand(self) -> Self:
        if self.n == "auto" and self.language is not None:
            raise ValueError("n is 'auto'; then language must be null")
        plain = self.stop == "fixed" and self.language is None
        if self.truncated == "missing" and not plain:
            raise ValueError(
                "truncated is 'missing'; then stop must be 'fixed' and language must be null"
            )
        if self.language is not None and self.stop != "fixed":
            raise ValueError(
                f"language is {self.language!r}; then stop must be 'fixed' (got {self.stop!r})"
            )
        return self


SAMPLE = SampleSettings(prompt="chat")  # the defaults; the prompt's depends on the tokenizer
MEMORY = 2048  # MiB for the rows in flight of `lethe eval` and `lethe sample`: half of it takes half as long again


class ScorerParams(fields.Section):
    """The base of the parameters of a scorer or a judge: ``score.scorers: [{NAME: {KEY: VALUE}}]``."""


Mark = Annotated[str, Field(min_length=1)]


class Parts(fields.Section):
    """The parts of an answer. ``thinking`` are the marks around it; ``opened``: the prompt ends with the first mark."""

    thinking: tuple[Mark, Mark]
    opened: bool = False


class ScoreSettings(fields.Section):
    """The scorers, each a name, or a name with its parameters; with ``parts`` they read the answer after the thinking, and
    the thinking for columns of its own.
    """

    scorers: Annotated[list[str | dict[str, SerializeAsAny[ScorerParams]]], Field(min_length=1)]
    # word: a keyword counts only as a whole word; substring: a keyword also counts inside a longer word
    keyword_match: Literal["word", "substring"] = "word"
    parts: Parts | None = None

    @field_validator("scorers", mode="before")
    @classmethod
    def _scorers_exist(cls, entries: object) -> object:
        if not isinstance(entries, list):
            return entries
        checked: list[str | dict[str, ScorerParams]] = []
        for entry in entries:
            name = entry
            values = None
            if isinstance(entry, dict) and len(entry) == 1:
                ((name, values),) = entry.items()
            if not isinstance(name, str) or not (name in SCORERS or name in JUDGES):
                raise ValueError(f"one of {', '.join([*SCORERS, *JUDGES])}")
            params = scorer_params(name, values)
            checked.append(name if values is None else {name: params})
        names = [_scorer_name(entry) for entry in checked]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"a list with each scorer once ({', '.join(doubled)} is listed twice)")
        return checked

    @property
    def names(self) -> list[str]:
        return [_scorer_name(entry) for entry in self.scorers]

    @property
    def params(self) -> dict[str, ScorerParams]:
        """Map every scorer's name to its parameters, in the order of ``names``."""
        params_of = {}
        for entry in self.scorers:
            if isinstance(entry, str):
                name = entry
                params = scorer_params(entry)
            else:
                ((name, params),) = entry.items()
            if "keyword_match" in type(params).model_fields.keys() - params.model_fields_set:
                params = params.model_copy(update={"keyword_match": self.keyword_match})
            params_of[name] = params
        return params_of


def scorer_params(name: str, values: object = None) -> ScorerParams:
    """Return the checked parameters of a scorer or judge; None stands for its defaults."""
    registry = JUDGES if name in JUDGES else SCORERS
    model = getattr(registry[name], "Params", ScorerParams)
    if values is None:
        values = {}
    return fields.checked_under(name, model, values)


def _scorer_name(entry: str | Mapping[str, ScorerParams]) -> str:
    if isinstance(entry, str):
        return entry
    return next(iter(entry))


class JudgeEntry(fields.Section):
    """A judge with a stage of its own, ``judges: {NAME: {judge: KIND, labelled: FILE or null, KEY: VALUE}}``, whose module
    defines the other keys; its error is measured on ``labelled``, answers with a person's labels.
    """

    judge: Annotated[str, fields.NameIn((JUDGES,))]
    labelled: fields.Place | None
    params: SerializeAsAny[ScorerParams]

    @model_validator(mode="before")
    @classmethod
    def _its_judge_checks_the_rest(cls, value: object) -> object:
        if not isinstance(value, dict) or isinstance(value.get("params"), ScorerParams):
            return value
        others = dict(value)
        common = {}
        for key in ("judge", "labelled"):
            if key in others:
                common[key] = others.pop(key)
        name = common.get("judge", "")
        params = ScorerParams()
        if isinstance(name, str) and name in JUDGES:
            params = JUDGES[name].Params.model_validate(others)
        return {**common, "params": params}

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if not isinstance(getattr(self.params, "model", None), str):
            raise ValueError(
                f"the judge {self.judge} has no key model, whose folder the stage depends on"
            )
        if hasattr(self.params, "endpoint") and self.model != SERVED:
            raise ValueError(
                f"a judge with an endpoint has no weights for DVC to track; write model: {SERVED} and the server's name "
                f"of the model as name: {self.model}"
            )
        return self

    @property
    def model(self) -> str:
        return str(getattr(self.params, "model", ""))

    @property
    def endings(self) -> tuple[str, ...]:
        """Of the columns that the judge fills: each column has the name of the entry and an ending."""
        return tuple(JUDGES[self.judge].COLUMNS)


class LabelsByAPerson(fields.Section):
    """Labels of `lethe label`: a folder of files MODEL.jsonl, and the options that decide which answers are labelled."""

    folder: fields.Place | None = None
    mass: Annotated[fields.Real, Field(gt=0, le=1)] = 0.95
    rest: fields.Natural = 100


class Metrics(fields.Section):
    """What is measured of the scores: the levels, the scores that bounds are of, and what labels and judges add."""

    alpha: fields.Alpha = 0.01
    rho: fields.Weight = 2.0
    thresholds: Annotated[tuple[fields.Share, ...], Field(min_length=1)] = (
        0.1,
        0.25,
        0.5,
        0.75,
        0.9,
    )
    leak: str = "rouge_l"
    binary: str | None = "keyword_leak"
    share_above: fields.Share = 0.1
    together: Literal["none", "bonferroni", "holm"] = "none"
    # answers with a person's label and the verdict of metrics.binary: the bounds of true leaks include the judge's error
    calibration: fields.Place | None = None
    # answers of the run itself that a person labelled: the bounds use these labels alone
    labels: LabelsByAPerson = LabelsByAPerson()
    # the scorer of the splits that unlearning should not touch; null: leak
    utility: str | None = None

    @property
    def utility_scorer(self) -> str:
        return self.utility or self.leak

    @model_validator(mode="after")
    def _verdicts_are_calibrated(self) -> Self:
        if self.calibration not in (None, CALIBRATION) and self.binary is None:
            raise ValueError(f"calibration is {self.calibration!r}, {NO_BINARY}")
        return self


METRICS = Metrics()


class Weights(fields.Section):
    """The folder of a model."""

    path: fields.Place


class Utility(fields.Section):
    """General utility by tasks of lm-evaluation-harness, which the extra lm-eval installs.

    ``models`` is written by `lethe run` (`lethe.config.seeds`): DVC makes a stage for each of its entries, and without tasks
    there is none.
    """

    tasks: list[fields.Place]
    limit: fields.Count | None = None  # examples of each task; null: all
    fewshot: fields.Natural | None = None  # examples in a prompt; null: as the task says
    batch: fields.Count = 8
    models: dict[fields.Name, Weights]


def check_together(
    score: ScoreSettings,
    metrics: Metrics,
    sample: SampleSettings,
    judges: Mapping[str, JudgeEntry] | None = None,
) -> None:
    """Check that scorers and judges fill every measured column, 0 and 1 where needed, and that readers agree on answers."""
    judges = judges or {}
    columns: list[str] = []
    for name in score.names:
        columns += columns_of(name)
    for name, entry in judges.items():
        columns += [name + ending for ending in entry.endings]
    doubled = sorted({column for column in columns if columns.count(column) > 1})
    if doubled:
        raise ValueError(
            f"{', '.join(doubled)} is a column of two scorers or judges: rename the entry of judges"
        )
    for key in ("leak", "binary", "utility"):
        scorer = getattr(metrics, key)
        if scorer not in (None, *columns):
            listed = ", ".join(columns)
            raise ValueError(
                f"metrics.{key} is {scorer!r}, which score.scorers does not list ({listed})"
            )
    if metrics.binary is not None and not is_binary(metrics.binary, score.params, judges):
        legal = [name for name in judges if is_binary(name, {}, judges)]
        legal += [*filter(is_binary, sorted(JUDGES)), *binary_scorers()]
        stated = f"metrics.binary is {metrics.binary!r}, whose scores are not all 0 or 1"
        raise ValueError(f"{stated}; metrics.binary must be one of {', '.join(legal)} or null")
    if score.parts is not None and judges:
        raise ValueError(
            "score.parts is set; then judges must be {}: these read thinking and answer as one"
        )
    if sample.stop == "word" and metrics.binary is None:
        raise ValueError(
            "sample.stop is 'word', whose draws follow the leaks that a 0/1 scorer or judge finds, and metrics.binary is "
            "null; use stop: fixed"
        )


def columns_of(scorer: str) -> list[str]:
    """The columns that a scorer fills; a judge has an ending for each."""
    if scorer not in JUDGES:
        return [scorer]
    return [scorer + ending for ending in JUDGES[scorer].COLUMNS]


def is_binary(
    column: str,
    params: Mapping[str, ScorerParams] | None = None,
    judges: Mapping[str, JudgeEntry] | None = None,
) -> bool:
    """Whether a column holds only 0 and 1, as its scorer or judge declares with its parameters."""
    if judges and column in judges:
        entry = judges[column]
        return bool(JUDGES[entry.judge].binary(entry.params))
    if column in JUDGES:
        member = JUDGES[column]
        chosen = (params or {}).get(column)
        if chosen is None:
            return bool(getattr(member, "BINARY", False))
        return bool(member.binary(chosen))
    return column in SCORERS and bool(getattr(SCORERS[column], "BINARY", False))


def binary_scorers() -> list[str]:
    """The scorers without a model that score 0 and 1 alone."""
    return list(filter(is_binary, sorted(SCORERS)))


class Exploring(fields.Section):
    """How much of an answer tree is explored and sampled; `lethe.sampling.answer_tree.Effort` explains each."""

    rows: fields.Count = 15_000
    guide: fields.Weight = 16.0
    theta_rho: fields.Positive = 0.5
    alpha: fields.Alpha = 0.01
    target: Chance | None = None
    exact_only: bool = False
    queries: Annotated[tuple[fields.Count, ...], Field(min_length=1)] = tuple(
        10**power for power in range(10)
    )
    seed: fields.Seed = 0


class Exact(Exploring):
    """The settings of exact bounds, with the defaults of Python and the command line; params.yaml writes every key.

    A question is proved to leak or bounded at the probability ``tau``, against Retrain by the factor ``ratio``. ``above`` is
    the score above which an answer leaks, for a scorer that is not binary. ``memory`` (MiB) bounds the rows in flight.
    """

    tau: Chance = 0.01
    ratio: Annotated[fields.Real, Field(ge=1)] = 10.0
    scorer: Annotated[str, fields.NameIn((SCORERS,))] = "keyword_leak"
    above: Annotated[fields.Real, Field(ge=0, lt=1)] = 0.5
    memory: fields.Count = 1024


EXACT = Exact()


class Extract(fields.Section):
    """The settings of extraction, which `lethe.extract` explains; ``tau`` is that of Cooper et al., arXiv 2505.12546."""

    prefix: fields.Count = 50
    suffix: fields.Count = 50
    temperature: fields.Positive = 1.0
    top_k: fields.Natural = 40
    top_p: Threshold = 1.0
    near: fields.Natural = 0
    distance: fields.Natural = 5
    unit: Literal["tokens", "words"] = "tokens"
    beam: fields.Count = 20
    further: fields.Natural = 20
    samples: fields.Natural = 64
    alpha: fields.Alpha = 0.01
    tau: Chance = 0.001
    seed: fields.Seed = 0
    memory: fields.Count = 1024


class ExtractSettings(fields.Direct, Extract):
    """The settings of extraction, and of a call on a text."""

    stride: fields.Count = 10
    dtype: str = SAMPLE.dtype
