"""The work of the sample stage: the rows to ask, one task per split, and the resulting tables.

In a language of prompts every draw is a random prompt and its answer together. The prompt of a sample comes from the
sample's own generator, named by seed, question and sample number, and each distinct prompt is read once. So the pairs
of a question are independent and equally distributed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.evaluating import Drawing, Endpoint
from lethe.data.prompt_language import Language, Production, productions
from lethe.errors import LetheError
from lethe.io import parts
from lethe.io.artifacts import GREEDY, Row, read_split
from lethe.io.atomic import SCHEMA_VERSION
from lethe.progress import progress
from lethe.sampling.engine import Answers, Engine, Prompt, Settings
from lethe.sampling.store import AnswerStore

if TYPE_CHECKING:
    import pandas as pd

    from lethe.config.evaluating import Model, Sample, Sequential
    from lethe.io.artifacts import Row
    from lethe.models.encoding import Encoder
    from lethe.models.in_memory import Origin

UTILITY_SPLITS = ("retain", "world", "real_authors")
HELDOUT = "heldout"


def chosen(sample: Sample, dataset: Path = Path("data/dataset")) -> dict[str, list[Row]]:
    """The rows to ask: the whole forget set, and up to ``utility_questions`` rows of each other split."""
    splits = [split for split in ("forget", *UTILITY_SPLITS) if (dataset / f"{split}.jsonl").is_file()]
    rows = {split: read_split(split, dataset) for split in splits}
    return {
        split: own if split == "forget" else some(own, sample.utility_questions, sample.seed)
        for split, own in rows.items()
    }


def heldout(dataset: Path) -> dict[str, list[Row]]:
    """The held-out rows by split name, empty if the dataset has none; used only for comparison, never asked."""
    return {HELDOUT: read_split(HELDOUT, dataset)} if (dataset / f"{HELDOUT}.jsonl").is_file() else {}


def some(rows: list[Row], count: int, seed: int) -> list[Row]:
    """Some of the rows, drawn at random and kept in file order."""
    picks = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[i] for i in sorted(picks)]


@dataclass(frozen=True)
class Task:
    """The questions of one split, drawn with the same settings."""

    split: str
    prompts: Sequence[Prompt]
    settings: Settings


def tasks(source: Origin, rows: Mapping[str, list[Row]], sample: Sample, model: Model) -> list[Task]:
    prompt = _prompts(source, sample.prompt)
    return [
        Task(split, [prompt(row) for row in asked], settings_of(sample, model, split))
        for split, asked in rows.items()
    ]


def _prompts(source: Origin, template: str) -> Callable[[Row], Prompt]:
    """How a row becomes a prompt: tokens, or text for a server."""
    from lethe.models.encoding import CHAT, Encoder, read_template, worded
    from lethe.models.in_memory import tokenizer_of

    if isinstance(source, Endpoint):
        words = template if template == CHAT else read_template(template)
        return lambda row: Prompt(row["id"], (), text=worded(words, row))
    encoder = Encoder(tokenizer_of(source), template)
    return lambda row: Prompt(row["id"], encoder.prompt(row))


def settings_of(sample: Sample, model: Model, split: str) -> Settings:
    """The sampling settings of one split, from the ``sample`` section and the model's entry of params.yaml."""
    return Settings(
        **{name: getattr(sample, name) for name in Drawing.model_fields},
        n=sample.most if split == "forget" else sample.utility_n,
        adaptive_threshold=model.adaptive_threshold,
        seed=sample.seed,
    )


def about(work: Sequence[Task], engine: Engine, sample: Sample, model: Model) -> dict:
    """The metadata of the generations: the engine, its settings and the numbers of answers."""
    asked = [(one.prompts, one.settings) for one in work]
    served = {"served": engine.served(asked)} if hasattr(engine, "served") else {}
    return {
        "schema": SCHEMA_VERSION,
        "engine": engine.name,
        "engine_reason": getattr(engine, "reason", f"sample.engine is {sample.engine}"),
        "temperature": sample.temperature,
        "top_p": sample.top_p,
        "top_k": sample.top_k,
        "adaptive_threshold": model.adaptive_threshold,
        "max_new_tokens": sample.max_new_tokens,
        "seed": sample.seed,
        "stop": sample.stop,
        "splits": {task.split: {"questions": len(task.prompts), "n": task.settings.n} for task in work},
    } | served


def draw(task: Task, engine: Engine, store: AnswerStore, label: str) -> pd.DataFrame:
    """The generations table of a task, rows in the order of its prompts and samples."""
    import pandas as pd

    draw_into(store, task, engine, label)
    return pd.concat(drawn_parts(store, task), ignore_index=True)


def draw_into(store: AnswerStore, task: Task, engine: Engine, label: str) -> None:
    """Have the answers of a task in the store; memory holds those of one question."""
    for _ in progress(store.answer(engine, task.prompts, task.settings), label, "questions", len(task.prompts)):
        pass


def drawn_parts(store: AnswerStore, task: Task) -> Iterator[pd.DataFrame]:
    """The stored generations of a task in the order of its prompts and samples: parts as of `lethe.io.parts`."""
    part: list[Answers] = []
    for prompt in task.prompts:
        answers = store.stored(prompt, task.settings)
        if part and sum(len(own.samples) for own in part) + len(answers.samples) > parts.ROWS:
            yield table_of(part)
            part = []
        part.append(answers)
    if part:
        yield table_of(part)


def draw_sequentially(
    task: Task, items: Mapping[str, Row], engine: Engine, store: AnswerStore, rule: Sequential, label: str
) -> tuple[pd.DataFrame, list[dict]]:
    """`sample.stop: sequential`: the generations, drawn in chunks until each question's verdict, and the decisions. A
    missing judgement counts as 1 against a certificate and as 0 against a leak."""
    from lethe.scoring import scorer
    from lethe.statistics.sequential import SequentialTest

    cap = task.settings.n
    tests = {p.prompt_id: SequentialTest(rule.tau, rule.tau_leak, rule.alpha, cap) for p in task.prompts}
    drawn: dict[str, list[Answers]] = {prompt.prompt_id: [] for prompt in task.prompts}
    judge = scorer(rule.scorer)
    for start in progress(range(0, cap, rule.chunk), label, "chunks"):
        active = [prompt for prompt in task.prompts if not tests[prompt.prompt_id].done]
        if not active:
            break
        part = {"n": min(rule.chunk, cap - start), "first_sample": start}
        settings = task.settings.model_copy(update={**part, "greedy": task.settings.greedy and start == 0})
        for answers in store.answer(engine, active, settings):
            drawn[answers.prompt_id].append(answers)
            texts = [text for text, number in zip(answers.texts, answers.samples, strict=True) if number != GREEDY]
            scores = judge(texts, items[answers.prompt_id])
            tests[answers.prompt_id].update(np.nan_to_num(scores, nan=1.0), low=np.nan_to_num(scores, nan=0.0))
    decisions = [{"prompt_id": key, **asdict(test.decision())} for key, test in tests.items()]
    return table_of(part for prompt in task.prompts for part in drawn[prompt.prompt_id]), decisions


def table_of(answers: Iterable[Answers]) -> pd.DataFrame:
    import pandas as pd

    frames = [
        pd.DataFrame(
            {
                "prompt_id": answer.prompt_id,
                "sample": np.asarray(answer.samples, dtype=np.int32),
                "text": answer.texts,
                "tokens": np.asarray(answer.tokens, dtype=np.int32),
                "finish_reason": answer.finish_reasons,
                "mean_confidence": np.asarray(answer.mean_confidences, dtype=np.float64),
            }
        )
        for answer in answers
    ]
    return pd.concat(frames, ignore_index=True)


PRODUCTION = zlib.crc32(b"production")
SHARE = "share"  # names the draws of the second sample


@dataclass(frozen=True)
class Asked:
    """The prompts of one question: its productions, and the index of each sample's production."""

    row: Row
    productions: Sequence[Production]
    of_sample: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        return np.bincount(self.of_sample, minlength=len(self.productions))

    @property
    def likeliest(self) -> int:
        """The index of the greedy answer's production: the most probable one, the first among equals."""
        return int(np.argmax([production.probability for production in self.productions]))


def ask(language: Language, row: Row, samples: int, seed: int) -> Asked:
    choices = productions(language, row)
    uniform = np.array([_uniform(seed, row["id"], sample) for sample in range(samples)])
    return Asked(row, choices, pick(uniform, choices))


def pick(uniform: np.ndarray, choices: Sequence[Production]) -> np.ndarray:
    """The index of the production for each uniform number in [0, 1), by inverse transform."""
    edges = np.cumsum([production.probability for production in choices])
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(choices) - 1)


def _uniform(seed: int, name: str, sample: int) -> float:
    stream = np.random.SeedSequence(entropy=seed, spawn_key=(zlib.crc32(name.encode()), PRODUCTION, sample))
    return float(stream.generate_state(1, np.uint64)[0] >> np.uint64(11)) / 2.0**53


def draw_in_language(
    language: Language,
    rows: Sequence[Row],
    encoder: Encoder,
    settings: Settings,
    engine: Engine,
    store: AnswerStore,
    label: str,
) -> pd.DataFrame:
    """The generations of the forget questions, with a column ``production``; the greedy answer is that to the most
    probable one."""
    questions = [ask(language, row, settings.n, settings.seed) for row in rows]
    sampled = [
        _prompt(encoder, asked, place, int(count))
        for asked in questions
        for place, count in enumerate(asked.counts)
        if count
    ]
    greedy = [_prompt(encoder, asked, asked.likeliest, None, "greedy") for asked in questions]
    only_greedy = settings.model_copy(update={"n": 0, "greedy": True})
    answers = _answered(engine, store, sampled, settings.model_copy(update={"greedy": False}), label)
    answers |= _answered(engine, store, greedy, only_greedy, f"{label}, greedy")
    return table_of_language(questions, answers)


def _prompt(encoder: Encoder, asked: Asked, place: int, n: int | None, use: str = "") -> Prompt:
    production = asked.productions[place]
    worded: Row = {**asked.row, "question": production.question}
    tokens = encoder.conversation(worded, production.system, production.shots, production.prefix)
    return Prompt(_name(asked.row["id"], production, use), tokens, n)


def _name(prompt_id: str, production: Production, use: str = "") -> str:
    return " | ".join(filter(None, (prompt_id, production.name, use)))


def _answered(
    engine: Engine, store: AnswerStore, prompts: Sequence[Prompt], settings: Settings, label: str
) -> dict[str, Answers]:
    stream = progress(store.answer(engine, prompts, settings), label, "prompts", len(prompts))
    answers = {answer.prompt_id: answer for answer in stream}
    for prompt in prompts:
        got, wanted = len(answers[prompt.prompt_id].texts), len(settings.of(prompt).sample_numbers())
        if got != wanted:
            raise LetheError(
                f"The engine {engine.name} gave {got} answers to a prompt with n = {wanted}: an engine must take the number "
                "of answers from settings.of(prompt)."
            )
    return answers


def table_of_language(questions: Iterable[Asked], answers: Mapping[str, Answers]) -> pd.DataFrame:
    """The answers in sampling order: the k-th sample of a production is the k-th answer to its prompt."""
    import pandas as pd

    tables = []
    for asked in questions:
        names = [_name(asked.row["id"], production) for production in asked.productions]
        greedy = answers[_name(asked.row["id"], asked.productions[asked.likeliest], "greedy")]
        own = {place: answers[names[place]] for place in np.flatnonzero(asked.counts)}
        ranks = pd.Series(asked.of_sample).groupby(asked.of_sample).cumcount()  # earlier samples of the same one
        order = [(greedy, 0), *zip((own[place] for place in asked.of_sample), ranks, strict=True)]
        picked = Answers(
            asked.row["id"],
            [GREEDY, *range(len(asked.of_sample))],
            [answer.texts[rank] for answer, rank in order],
            [answer.tokens[rank] for answer, rank in order],
            [answer.finish_reasons[rank] for answer, rank in order],
            [answer.mean_confidences[rank] for answer, rank in order],
        )
        places = [asked.likeliest, *asked.of_sample]
        tables.append(table_of([picked]).assign(production=[asked.productions[place].name for place in places]))
    return pd.concat(tables, ignore_index=True)


def draw_prompts(
    language: Language,
    rows: Sequence[Row],
    encoder: Encoder,
    settings: Settings,
    engine: Engine,
    store: AnswerStore,
    label: str,
) -> pd.DataFrame:
    """The second sample: ``share.prompts`` random prompts over all questions, ``share.answers`` new ones to each, with
    the columns of the generations, ``prompt`` (its number) and ``production``."""
    import pandas as pd

    share = language.share
    assert share is not None  # the caller passes only a language with a share
    choices = [productions(language, row) for row in rows]
    drawn: list[tuple[int, int]] = []
    for number in range(share.prompts):
        question = int(_uniform(settings.seed, f"{SHARE} question", number) * len(rows))
        uniform = np.array([_uniform(settings.seed, f"{SHARE} production", number)])
        drawn.append((question, int(pick(uniform, choices[question])[0])))
    times = Counter(drawn)
    asked = [Asked(row, own, np.array([], np.int64)) for row, own in zip(rows, choices, strict=True)]
    prompts = [
        _prompt(encoder, asked[question], place, count * share.answers, SHARE)
        for (question, place), count in times.items()
    ]
    answers = _answered(engine, store, prompts, settings.model_copy(update={"greedy": False}), label)
    own = {
        (question, place): table_of([answers[_name(rows[question]["id"], choices[question][place], SHARE)]])
        for question, place in times
    }
    used = dict.fromkeys(times, 0)
    tables = []
    for number, (question, place) in enumerate(drawn):
        start = used[question, place]
        used[question, place] = start + share.answers
        part = own[question, place].iloc[start : start + share.answers]
        tables.append(
            part.assign(
                prompt_id=rows[question]["id"],
                sample=np.arange(share.answers, dtype=np.int32),
                prompt=number,
                production=choices[question][place].name,
            )
        )
    return pd.concat(tables, ignore_index=True)
