"""`lethe.sample`: many sampled answers of a model to each prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lethe.api.result import Place, TableWithSentences, View, documented, source_of
from lethe.config.evaluating import EXACT, SAMPLE
from lethe.errors import BadValue, plural
from lethe.sampling.engine import GREEDY, Answers, Prompt, Settings

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SHOWN = 10  # distinct answers to a prompt on a terminal
Asked: TypeAlias = "Sequence[str | Sequence[Mapping[str, str]]] | Mapping[str, str | Sequence[Mapping[str, str]]]"


@dataclass(frozen=True, repr=False)
class Samples(TableWithSentences):
    """The answers that `sample` drew: the prompts by id, one of ``answers`` per prompt, the settings and the engine."""

    prompts: Mapping[str, str | Sequence[Mapping[str, str]]]
    answers: tuple[Answers, ...]
    settings: Settings
    engine: str

    def to_frame(self) -> pd.DataFrame:
        """One row per answer: ``prompt_id, sample, text, tokens, finish_reason, mean_confidence``; sample -1 is greedy."""
        from lethe.sampling.tasks import table_of

        return table_of(self.answers)

    def texts(self, prompt_id: str | None = None) -> list[str]:
        """Return the sampled answers to one prompt, or to all in their order; the greedy answers are left out."""
        if prompt_id is not None and prompt_id not in self.prompts:
            raise BadValue("prompt_id", prompt_id, f"one of {', '.join(self.prompts)}")
        return [
            text
            for answers in self.answers
            for number, text in zip(answers.samples, answers.texts, strict=True)
            if number != GREEDY and text is not None and prompt_id in (None, answers.prompt_id)
        ]

    def as_json(self) -> dict[str, object]:
        rows = self.to_frame().to_dict("records")
        return {"engine": self.engine, **self.settings.model_dump(), "prompts": self.prompts, "answers": rows}

    def views(self) -> list[View]:
        rows = [
            [name, count, text]
            for name in self.prompts
            for text, count in Counter(self.texts(name)).most_common(SHOWN)
        ]
        return [View("", ["prompt", "draws", "answer"], rows, self.sentences())]

    def sentences(self) -> list[str]:
        how = self.settings
        return [
            f"{plural(how.n, 'independent answer')} to each of {plural(len(self.answers), 'prompt')}, of up to "
            f"{plural(how.max_new_tokens, 'token')} "
            f"at temperature {how.temperature:g}, drawn by the {self.engine} engine with seed {how.seed}."
        ]


@documented
def sample(
    model: Place | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    prompts: Asked = (),
    n: int = SAMPLE.most,
    *,
    max_new_tokens: int = SAMPLE.max_new_tokens,
    temperature: float = SAMPLE.temperature,
    top_p: float = SAMPLE.top_p,
    top_k: int = SAMPLE.top_k,
    adaptive_threshold: float | None = None,
    greedy: bool = True,
    seed: int = SAMPLE.seed,
    prompt: Place | None = None,
    engine: str = SAMPLE.engine,
    dtype: str = SAMPLE.dtype,
    memory: int = EXACT.memory,
) -> Samples:
    """Draw many independent answers to each prompt from a model's own distribution.

    Parameters
    ----------
    model : A Hugging Face model folder (safetensors), or a causal language model in memory, which keeps its device and
        number format, and whose modes and generation settings are restored afterwards.
    prompts : The prompts, or the prompts by id. A prompt is a text, or a list of chat messages with ``role`` and
        ``content``. Each has a separate random stream, derived from ``seed`` and its id; the ids of a list are "0", "1",
        and so on.
    n : The number of sampled answers to each prompt.
    greedy : Whether the result includes the greedy answer, as sample -1.
    prompt : A template file with {question}, a text with {question} ("{question}" sends each prompt unchanged), or 'chat'
        (the tokenizer's chat template). [default: chat where the tokenizer has such a template, else a plain question and
        answer]

    Notes
    -----
    The answers to a prompt are independent draws, which every bound of this package assumes. On a CPU the same
    seed gives the same answers with one thread per process; with several threads the last bits of a probability
    can differ. On a GPU they can differ too.

    Examples
    --------
    >>> import lethe
    >>> drawn = lethe.sample("my-model", prompts={"ada": "Who is Ada?"}, n=8, max_new_tokens=4)
    >>> len(drawn.texts("ada"))
    8
    >>> list(drawn.to_frame().columns)
    ['prompt_id', 'sample', 'text', 'tokens', 'finish_reason', 'mean_confidence']

    A model in memory gives the same answers:

    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> model, tokenizer = AutoModelForCausalLM.from_pretrained("my-model"), AutoTokenizer.from_pretrained("my-model")
    >>> prompts = {"ada": "Who is Ada?"}
    >>> lethe.sample(model, tokenizer, prompts, 8, max_new_tokens=4).texts() == drawn.texts()
    True
    """
    given = dict(locals())
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import default_prompt, lent, tokenizer_of
    from lethe.sampling.engine import open_engine
    from lethe.sampling.forecast import rows_within

    texts = dict(prompts) if isinstance(prompts, Mapping) else {str(i): one for i, one in enumerate(prompts)}
    if isinstance(prompts, str) or not texts or not all(map(_is_prompt, texts.values())):
        legal = "a list of texts or of lists of messages, or a mapping from id to such a prompt, not empty"
        raise BadValue("prompts", prompts, legal)
    settings = Settings(**{name: given[name] for name in Settings.model_fields if name in given})
    source = source_of(model, tokenizer)
    encoder = Encoder(tokenizer_of(source), prompt or default_prompt(source))
    asked = [
        Prompt(name, encoder.prompt({"question": one}) if isinstance(one, str) else encoder.messages(one))
        for name, one in texts.items()
    ]
    with lent(source):
        positions = max(len(one.token_ids) for one in asked) + max_new_tokens
        rows = min(SAMPLE.max_rows, rows_within(memory, source, positions, dtype))
        opened = open_engine(engine, source, {"max_rows": rows, "dtype": dtype})
        answers = {done.prompt_id: done for done in opened.answer(asked, settings)}
    return Samples(texts, tuple(answers[name] for name in texts), settings, opened.name)


def _is_prompt(one: object) -> bool:
    """Whether this is a text, or a list of messages of which a person wrote the last."""
    if not isinstance(one, Sequence) or isinstance(one, str):
        return isinstance(one, str)
    messages = [isinstance(turn, Mapping) and {"role", "content"} <= turn.keys() for turn in one]
    return bool(messages) and all(messages) and one[-1]["role"] != "assistant"
