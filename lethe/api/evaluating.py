"""`lethe.sample`: many answers of a model to each prompt; `lethe.evaluate`: a verdict with its tables."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, Unpack

from lethe.api.parameters import (
    ModelOrPlace,
    Paraphraser,
    Place,
    PlaceInPython,
    Rows,
    ServedArguments,
    Tokenizer,
    Typed,
    check_names,
    documented,
    file_of,
    folder_of,
    judge_by,
    name_of,
    origin_of,
    paraphraser,
    source_of,
    taking,
    text_of,
)
from lethe.api.result import TableWithSentences, View
from lethe.api.runs import ShownRun, load_run
from lethe.config.measuring import ENDPOINT, EXACT, MEMORY, METRICS, SAMPLE
from lethe.data.rows import dataset_rows
from lethe.data.sealed import KEY, RECORD
from lethe.errors import BadArguments, BadValue, check, plural
from lethe.io.files import SCHEMA_VERSION, Json
from lethe.io.processes import Process
from lethe.io.tries import Try
from lethe.models.checkpoints import InMemory, Source, default_prompt, lent, tokenizer_of
from lethe.models.encoding import Encoder
from lethe.results import views
from lethe.results.quantities import access_of, headline
from lethe.results.table import Numbers, Result, Value
from lethe.results.trace import BESIDE, record_of
from lethe.sampling.engine import GREEDY, Answers, Options, Prompt, Settings, open_engine
from lethe.statistics.bound import Bound, level
from lethe.statistics.bounds import BELOW_1, possible

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluation import EvaluationSettings
    from lethe.io.artifacts import Row
    from lethe.verdict.verdict import Drawn

SHOWN = 10  # distinct answers to a prompt on a terminal
Messages: TypeAlias = Sequence[Mapping[str, str]]  # a chat, with the keys role and content
Prompts: TypeAlias = Annotated[
    Sequence[str | Messages] | Mapping[str, str | Messages], Typed(list[str])
]


@dataclass(frozen=True, repr=False)
class Samples(TableWithSentences):
    """The answers that `sample` drew: the prompts by id, one of ``answers`` per prompt, the settings and the engine."""

    prompts: Mapping[str, str | Messages]
    answers: tuple[Answers, ...]
    settings: Settings
    engine: str

    def to_frame(self) -> pd.DataFrame:
        """One row per answer: ``prompt_id, sample, text, tokens, finish_reason, mean_confidence``; sample -1 is greedy."""
        from lethe.sampling.tasks import table_of

        return table_of(self.answers)

    def texts(self, prompt_id: str | None = None) -> list[str]:
        """Return the sampled answers to one prompt, or to all in their order; the greedy answers are left out."""
        known = ", ".join(self.prompts)
        check(prompt_id in (None, *self.prompts), "prompt_id", prompt_id, f"one of {known}")
        texts = []
        for answers in self.answers:
            if prompt_id not in (None, answers.prompt_id):
                continue
            for number, text in zip(answers.samples, answers.texts, strict=True):
                if number != GREEDY and text is not None:
                    texts.append(text)
        return texts

    def as_json(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            **self.settings.model_dump(),
            "prompts": self.prompts,
            "answers": self.to_frame().to_dict("records"),
        }

    def views(self) -> list[View]:
        rows: list[list[object]] = []
        for name in self.prompts:
            for text, count in Counter(self.texts(name)).most_common(SHOWN):
                rows.append([name, count, text])
        return [View("", ["prompt", "draws", "answer"], rows, self.sentences())]

    def sentences(self) -> list[str]:
        settings = self.settings
        answers = plural(settings.n, "independent answer")
        prompts = plural(len(self.answers), "prompt")
        tokens = plural(settings.max_new_tokens, "token")
        return [
            f"{answers} to each of {prompts}, of up to {tokens} at temperature {settings.temperature:g}, "
            f"drawn by the {self.engine} engine with seed {settings.seed}."
        ]


@documented
def sample(
    model: ModelOrPlace,
    tokenizer: Tokenizer = None,
    prompts: Prompts = (),
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
    memory: int = MEMORY,
) -> Samples:
    """Draw many independent answers to each prompt from a model's own distribution.

    Parameters
    ----------
    model : A Hugging Face model folder (safetensors). In Python also a causal language model in memory, which keeps its
        device and number format, and whose modes and generation settings are restored afterwards.
    prompts : The prompts. Each has a separate random stream, derived from ``seed`` and its id: "0", "1", and so on. In
        Python also the prompts by id, and for a prompt a list of chat messages with ``role`` and ``content``.
    n : The number of sampled answers to each prompt.
    greedy : Whether the result includes the greedy answer, as sample -1.
    prompt : A template file with {question}, a text with {question} ("{question}" sends each prompt unchanged), or 'chat'
        (the tokenizer's chat template). [default: chat where the tokenizer has such a template, else a plain question and
        answer]

    Notes
    -----
    The answers to a prompt are independent draws, which every bound of Lethe assumes. On a CPU the same
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
    """
    from lethe.progress import progress
    from lethe.sampling.forecast import announce

    texts = _prompts_by_id(prompts)
    settings = Settings(
        n=n,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        adaptive_threshold=adaptive_threshold,
        greedy=greedy,
        seed=seed,
    )
    check(settings.n > 0, "n", n, "at least 1")
    source = source_of(model, tokenizer)
    encoder = Encoder(tokenizer_of(source), text_of(prompt) or default_prompt(source))
    asked = _encoded(texts, encoder)
    with lent(source):
        rows = _rows_in_flight(source, asked, settings, memory, dtype)
        opened = open_engine(engine, source, Options(max_rows=rows, dtype=dtype))
        announce(opened, asked, settings)
        drawn = progress(opened.answer(asked, settings), "sample", "prompts", len(asked))
        answers_of = {answers.prompt_id: answers for answers in drawn}
    answers = tuple(answers_of[name] for name in texts)
    return Samples(texts, answers, settings, opened.name)


def _prompts_by_id(prompts: Prompts) -> dict[str, str | Messages]:
    """The prompts by their ids, which are "0", "1" and so on for a list."""
    texts: dict[str, str | Messages] = {}
    if isinstance(prompts, Mapping):
        texts = dict(prompts)
    elif not isinstance(prompts, str):
        for number, prompt in enumerate(prompts):
            texts[str(number)] = prompt
    if not texts or not all(map(_is_prompt, texts.values())):
        legal = "a list of texts or of lists of messages, or a mapping from id to such a prompt, not empty"
        raise BadValue("prompts", prompts, legal)
    return texts


def _is_prompt(prompt: object) -> bool:
    """Whether this is a text, or a list of messages of which a person wrote the last."""
    if isinstance(prompt, str):
        return True
    if not isinstance(prompt, Sequence) or not prompt:
        return False
    for message in prompt:
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            return False
    return bool(prompt[-1]["role"] != "assistant")


def _encoded(texts: Mapping[str, str | Messages], encoder: Encoder) -> list[Prompt]:
    """The prompts as tokens: a question in the template, a chat as it is."""
    encoded = []
    for name, text in texts.items():
        if isinstance(text, str):
            encoded.append(Prompt(name, encoder.prompt({"question": text})))
        else:
            encoded.append(Prompt(name, encoder.messages(text)))
    return encoded


def _rows_in_flight(
    source: Source,
    asked: Sequence[Prompt],
    settings: Settings,
    memory: int,
    dtype: str,
) -> int:
    """The number of rows that the memory (MiB) holds at once, if each is as long as the longest prompt and its answer."""
    from lethe.sampling.forecast import rows_within

    longest = max(len(prompt.token_ids) for prompt in asked)
    rows = rows_within(memory, source, longest + settings.max_new_tokens, dtype)
    return min(SAMPLE.max_rows, rows)


MOST = 12  # numbers that a terminal shows


@dataclass(frozen=True, repr=False)
class Evaluation(ShownRun):
    """The result of `evaluate`: a `ShownRun` of one model, the ``verdict`` as a sentence, its words ``forgetting`` (leaks,
    forgot, open, none) and ``utility`` (intact, damaged, destroyed, open), the HTML ``report`` if a folder was named, and
    the questions ``skipped`` as too long. Where there is a reason in ``refused``, nothing is claimed: forgetting is none,
    and no number has an end. ``attempt`` is which set of draws of this model on these questions this is, and ``process`` has
    the counts of all that were ever drawn of them, None without a folder of model and results.
    ``stop`` is word where the draws went on until the word was certain; all numbers but the words rest on the ``first``
    answers to each question, and ``drawn`` says how many the word rests on.
    """

    verdict: str
    forgetting: str
    utility: str
    report: Path | None
    tau: float
    stop: str
    first: int
    drawn: Drawn | None
    skipped: tuple[str, ...]
    refused: tuple[str, ...]
    numbers: Numbers
    attempt: Try
    process: Process | None

    @property
    def trace(self) -> Mapping[str, Json]:
        """The word on a trace of secrets that were drawn, with its evidence; empty where no row has twins."""
        return record_of(self.numbers, self.models[0])

    def sentences(self) -> list[str]:
        return [self.verdict, *self._traces()]

    def _traces(self) -> list[str]:
        if not self.trace:
            return []
        together = BESIDE.get((self.forgetting, self.trace["word"]), "")
        return [f"{self.trace['sentence']} {together}".strip()]

    def to_frame(self) -> pd.DataFrame:
        """The metrics, one row per metric."""
        return self.metrics.T

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA_VERSION,
            "model": self.models[0],
            **views.evaluation(self.numbers),
            "access": access_of(row.kind for row in self.numbers.rows),
            "forgetting": self.forgetting,
            "utility": self.utility,
            "tau": self.tau,
            "stop": self.stop,
            "first": self.first,
            "drawn": None if self.drawn is None else asdict(self.drawn),
            "verdict": self.verdict,
            "trace": self.trace or None,
            "skipped": self.skipped,
            "refused": self.refused,
            "report": None if self.report is None else str(self.report),
        }

    def brief(self) -> list[str]:
        """The word, the worst question with what decides it, and where the page is."""
        lines = self.sentences()
        worst = self.numbers.upper("leak_worst", "sampled")
        if worst is not None:
            lines.append(worst.sentence("the probability of a leak", "the questions"))
        if self.report is not None:
            lines.append(f"The page is {self.report}.")
        return [*lines, "`--all` prints the numbers."]

    def views(self) -> list[View]:
        notes = []
        if self.stop == "word":
            notes.append(
                f"Every number rests on the first {self.first:,} answers to each question; the word rests on all."
            )
        alphas = [bound.alpha for bound in self.numbers.bounds.values()]
        if alphas:
            holds = f"holds by itself {level(max(alphas))} or more"
            notes.append(f"Each end of the table {holds}; a number without ends is an estimate.")
            notes.append("The ends of the verdict hold at any time, so they are wider.")
        count = len(self.numbers.values)
        notes.append(f"All {count} numbers and what their ends assume: --json.")
        if self.report is not None:
            notes.append(f"report: {self.report}")
        columns = ["number", "estimate", "at least", "at most", "the ends cover"]
        whole = View(self.models[0], columns, _shown(self.numbers), notes)
        return [View("", notes=self.sentences()), whole]


def _opened_key(data: Path) -> Path | None:
    """The opened key of `lethe twins` beside the rows, with its public record; None where one of both is absent."""
    key = data.parent / KEY
    record = data.parent / RECORD
    if not (key.is_file() and record.is_file()):
        return None
    return key


@dataclass(frozen=True)
class _Line:
    """One number on a terminal: its names, and the rows that have its estimate and its ends."""

    names: Sequence[str]
    rows: Sequence[Result]

    @property
    def estimate(self) -> Value:
        for row in self.rows:
            if row.value is not None:
                return row.value
        return None

    @property
    def lower(self) -> Bound | None:
        lower = _first_bound(row.lower_bound for row in self.rows)
        if lower and self.rows[0].kind.unit == "probability" and not lower.certain:
            return replace(lower, value=min(lower.value, BELOW_1))  # 1 is a rounding
        return lower

    @property
    def upper(self) -> Bound | None:
        upper = _first_bound(row.upper_bound for row in self.rows)
        # The JSON keeps the published end of a standard deviation, which can be impossible.
        if upper and self.rows[0].quantity.startswith("sd"):
            return possible(upper)
        return upper

    def cells(self) -> list[Value | Bound]:
        """Name, estimate, ends, and what the ends cover."""
        name = self.names[0]
        if self.estimate is None:
            name = self.names[-1]
        end = self.upper or self.lower
        covers = str(end.covers) if end else ""
        return [name, self.estimate, self.lower, self.upper, covers]


def _first_bound(bounds: Iterable[Bound | None]) -> Bound | None:
    """The first bound that is there; None where there is none."""
    for bound in bounds:
        if bound is not None:
            return bound
    return None


def _shown(numbers: Numbers) -> list[list[Value | Bound]]:
    """The headlines, then the intervals with both ends: name, estimate, ends, and what the ends cover."""
    headlines = headline(numbers.values)
    places: list[int] = []
    lines: list[_Line] = []
    for line in _lines(numbers):
        found = [headlines.index(name) for name in line.names if name in headlines]
        if not found and None in (line.lower, line.upper):
            continue
        places.append(min(found, default=len(headlines)))
        lines.append(line)
    order = sorted(range(len(lines)), key=places.__getitem__)
    return [lines[at].cells() for at in order[:MOST]]


def _lines(numbers: Numbers) -> list[_Line]:
    """The exported numbers; two ends with two guarantees are two rows of one number."""
    rows_of_number: dict[tuple[object, ...], list[Result]] = {}
    for row in numbers.rows:
        exported = row.at is None or row.at in row.kind.exported_at
        if exported and any(row.names()):
            number = (row.quantity, row.basis, row.item, row.split, row.at)
            rows_of_number.setdefault(number, []).append(row)
    lines = []
    for rows in rows_of_number.values():
        names = [name for name in rows[0].names() if name]
        lines.append(_Line(names, rows))
    return lines


TWO_LANGUAGES = (
    "each makes the prompts; the file of the paraphrases can be edited and given as --language"
)


def _paraphrased(
    settings: EvaluationSettings,
    wording: Paraphraser | None,
    forget: Sequence[Row],
    root: Path,
) -> EvaluationSettings:
    """The settings with a language of paraphrases, which is written to the folder of the results."""
    from lethe.sampling.paraphrases import write_language

    if wording is None:
        return settings
    if settings.language is not None:
        raise BadArguments(("paraphrase", "language"), TWO_LANGUAGES)
    path = root / "paraphrases.yaml"
    write_language(forget, wording.server, wording.n, path, root / "paraphrases")
    return settings.model_copy(update={"language": str(path)})


@documented
@taking(ServedArguments)
def evaluate(
    model: ModelOrPlace,
    data: Rows,
    *,
    tokenizer: Tokenizer = None,
    retain: Rows | None = None,
    base: Place | None = None,
    n: int | None = None,
    answers_at_most: int | None = None,
    alpha: float = METRICS.alpha,
    temperature: float = SAMPLE.temperature,
    top_p: float = SAMPLE.top_p,
    top_k: int = SAMPLE.top_k,
    max_new_tokens: int = SAMPLE.max_new_tokens,
    max_thinking_tokens: int = SAMPLE.max_thinking_tokens,
    prompt: Place | None = None,
    engine: str = SAMPLE.engine,
    dtype: str = SAMPLE.dtype,
    memory: int = MEMORY,
    scorer: str | None = None,
    above: float = EXACT.above,
    thinking: Sequence[str] | None = None,
    tau: float | None = None,
    seed: int = SAMPLE.seed,
    skip_too_long: bool = False,
    language: Place | None = None,
    calibration: Place | None = None,
    labels: Place | None = None,
    twin_scores: Sequence[str] = (),
    name: str | None = None,
    folder: PlaceInPython = None,
    endpoint: str | None = None,
    key_env: str | None = None,
    concurrency: int = ENDPOINT.concurrency,
    timeout: float = ENDPOINT.timeout,
    max_tokens_total: int | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
    seeded: bool = False,
    **servers: Unpack[ServedArguments],
) -> Evaluation:
    """Measure what your model still knows about a forget set: sampled answers, scores, bounds, one verdict, one report.

    The command keeps finished questions under data/eval/NAME, so an interrupted run resumes.

    Parameters
    ----------
    model : A Hugging Face model folder (safetensors) or ORG/NAME@REVISION of the hub; with --endpoint, the server's name of
        the model. In Python also a causal language model in memory, whose modes and settings are restored afterwards.
    retain : Questions whose answers should not change.
    base : The folder of the model before unlearning, which answers the questions of ``retain`` too: the word on utility
        compares the model with it.
    n : Draw this number of answers to each forget question, whatever they say. [default: draw until the word is certain]
    answers_at_most : The most answers to a forget question whose word stays open. [default: 32768]
    scorer : The sign of a leak: keyword_leak, exact_match, or another text scorer with ``above``. [default: keyword_leak if a
        question has keywords, else the score of ROUGE-L]
    thinking : The two marks around the thinking, such as `<think>` and `</think>`: the answer after it is scored, and the
        thinking by itself. An empty text reads everything as answer. [default: the marks that the chat template or a server's
        answers have; a server's own field for thinking is always read]
    tau : The tolerance of the verdict: a question may leak with at most this probability. [default: 0.01,
        or 0.1 of the mean score if no question has keywords]
    skip_too_long : Leave out questions that the context of the model, or of Base, cannot hold.
    language : A language of prompts (YAML): each draw is a random prompt and its answer together.
    calibration : Answers with `label` (a person's, 1 for a leak) and `verdict` (keyword leak's): the bounds of true leaks
        include the keyword's error.
    labels : A folder with a file NAME.jsonl, in which `lethe label` keeps labels of this model's answers. Bounds and
        verdict then rest on these labels.
    twin_scores : Further scores of the twin test of rows with ``twins``: loss, zlib, min_k or min_k_plus_plus. Declare them
        before any score is seen: they share the level with the score of the whole answer.
    name : The name of the model; the command writes results to data/eval/NAME. [default: the name of the model folder]
    folder : The folder of the artifacts and the report. For a model folder, a later call there reuses finished questions.
    endpoint : The address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1, which draws the answers.
    key_env : The environment variable that holds the server's key; the key itself is never written.
    concurrency : The number of requests to the server at once.
    timeout : The seconds after which a request to the server has failed, with its waits where the server is busy.
    max_tokens_total : Stop before the tokens read and written by the server exceed this number; answers so far are kept.
    price_in : The price of a million tokens read, for the plan that is printed before the start.
    price_out : The price of a million tokens written.
    seeded : Send the server a seed with each answer, so that it can draw the same again; each answer is a request then.

    Notes
    -----
    Each bound holds by itself with probability 1 - alpha over the draws, for answers drawn with these settings. Each bound
    assumes independent draws, which the engines provide, and nothing about the distribution of the scores.

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}]
    >>> result = lethe.evaluate("my-model", rows, n=16, max_new_tokens=4)
    >>> result.forgetting in ("leaks", "forgot", "open"), len(result.answers)
    (True, 17)
    >>> row = result.metrics.loc["my-model"]
    >>> bool(row["m_bin_pooled"] <= row["m_bin_worst"] < 1)
    True
    """
    from lethe.config.evaluation import EvaluationSettings
    from lethe.models.model import Model
    from lethe.sampling.answer_tree.asking import check_scorer
    from lethe.steps import evaluate as step

    check_names(servers, ServedArguments)
    marks = None if thinking is None else list(thinking)
    # What is out of range is refused before any file is read.
    if scorer is not None:
        check_scorer(scorer, above)
    judging = judge_by(servers)
    wording = paraphraser(servers)
    settings = EvaluationSettings(
        n=n,
        answers_at_most=answers_at_most,
        alpha=alpha,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_new_tokens=max_new_tokens,
        max_thinking_tokens=max_thinking_tokens,
        prompt=text_of(prompt) or None,
        engine=engine,
        dtype=dtype,  # type: ignore[arg-type]  # another word is refused
        memory=memory,
        scorer=scorer,
        above=above,
        thinking=marks,
        tau=tau,
        seed=seed,
        skip_too_long=skip_too_long,
        language=text_of(language),
        calibration=text_of(calibration),
        labels=text_of(labels),
        twin_scores=tuple(twin_scores),  # type: ignore[arg-type]  # another word is refused
        judge=judging,
    )
    forget = dataset_rows(data, "data")
    others = None if retain is None else dataset_rows(retain, "retain", "retain-")
    needed = "left out without questions in retain, which Base answers"
    check(base is None or others, "base", base, needed)
    splits = step.checked(forget, others, file_of(data, "data"))
    served = {
        "endpoint": endpoint,
        "key_env": key_env,
        "concurrency": concurrency,
        "timeout": timeout,
        "max_tokens_total": max_tokens_total,
        "price_in": price_in,
        "price_out": price_out,
        "seeded": seeded,
    }
    source = origin_of(model, tokenizer, served)
    before = None
    if base is not None:
        before = folder_of(base)
        Model.of(before)  # an unusable one is refused before paraphrases are paid for
    if name is None:
        name = name_of(source)
    another = "another name (--name): Base is called so beside the model"
    check(base is None or name != step.BASE, "name", name, another)
    with tempfile.TemporaryDirectory(prefix="lethe-") as temporary, lent(source):
        root = Path(folder or temporary)
        scratch = root / "answers"
        settings = _paraphrased(settings, wording, splits["forget"], root)
        if isinstance(source, InMemory):
            scratch = Path(temporary) / "answers"
        found = step.evaluate(
            name,
            source,
            splits,
            settings,
            root,
            scratch=scratch,
            page=folder is not None,
            named=file_of(data, "rows").name,
            key=_opened_key(file_of(data, "data")),
            base=before,
        )
        run = load_run(root)
        answers = run.answers  # read before a temporary folder is gone
    report = None
    if folder is not None:
        report = root / "report" / "index.html"
    evaluation = Evaluation(
        folder=run.folder,
        results=run.results,
        metrics=run.metrics,
        questions=run.questions,
        tails=run.tails,
        bounds=run.bounds,
        verdict=found.standing.sentence,
        forgetting=found.standing.word,
        utility=found.standing.utility.word,
        report=report,
        tau=found.verdict.tau,
        stop=found.stop,
        first=found.first,
        drawn=found.verdict.drawn,
        skipped=found.skipped,
        refused=found.verdict.refused,
        numbers=found.numbers,
        attempt=found.attempt,
        process=found.process,
    )
    evaluation.__dict__["answers"] = answers  # what `Run.answers` would read from the folder
    return evaluation
