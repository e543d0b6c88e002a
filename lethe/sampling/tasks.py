"""The work of the sample stage: the rows to ask, one task per split, and the resulting tables.

In a language of prompts every draw is a random prompt and its answer together. The prompt of a sample comes from the
sample's own generator, named by seed, question and sample number, and each distinct prompt is read once. So the pairs
of a question are independent and equally distributed.

A follow-up question is asked after each answer that was drawn. Answers that agree so far share one prompt, which is asked
as often as they are, so the conversations of a question are independent too.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import pandas as pd

from lethe.config.evaluating import Drawing, Endpoint, Model, Parts, Sample, Sequential
from lethe.data.prompt_language import Language, Production, productions
from lethe.errors import BadInput, LetheError
from lethe.identity import content_digest, digest
from lethe.io import artifacts
from lethe.io.answer_ends import CUT_OFF, NO_CONTEXT
from lethe.io.artifacts import GREEDY, Row, read_split
from lethe.io.artifacts import Asked as AskedRow
from lethe.io.files import SCHEMA_VERSION
from lethe.models.checkpoints import Origin, tokenizer_of
from lethe.models.encoding import CHAT, Encoder, messages_before, read_template, spelled_out, worded
from lethe.progress import progress
from lethe.sampling.engine import Answers, AnswerStore, Engine, Prompt, Settings
from lethe.scoring import scorer, split_answer
from lethe.statistics.sequential import SequentialTest
from lethe.statistics.streams import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Speaker = Callable[..., Prompt]
UTILITY_SPLITS = ("retain", "world", "real_authors")
HELDOUT = "heldout"
SHARE = "share"  # names the draws of the second sample


def chosen(sample: Sample, dataset: Path = Path("data/dataset")) -> dict[str, list[Row]]:
    """The rows to ask: the whole forget set, and up to ``utility_questions`` rows of each other split."""
    splits = [
        split for split in ("forget", *UTILITY_SPLITS) if (dataset / f"{split}.jsonl").is_file()
    ]
    rows = {split: read_split(split, dataset) for split in splits}
    return {
        split: own if split == "forget" else some(own, sample.utility_questions, sample.seed)
        for split, own in rows.items()
    }


def heldout(dataset: Path) -> dict[str, list[Row]]:
    """The held-out rows by split name, empty if the dataset has none; used only for comparison, never asked."""
    return (
        {HELDOUT: read_split(HELDOUT, dataset)} if (dataset / f"{HELDOUT}.jsonl").is_file() else {}
    )


def some(rows: list[Row], count: int, seed: int) -> list[Row]:
    picks = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[i] for i in sorted(picks)]


@dataclass(frozen=True)
class Task:
    split: str
    prompts: Sequence[Prompt]
    settings: Settings


def tasks(
    source: Origin, rows: Mapping[str, list[Row]], sample: Sample, model: Model
) -> list[Task]:
    speak = speaker(source, sample.prompt)
    return [
        Task(split, [speak(row["id"], row) for row in asked], settings_of(sample, model, split))
        for split, asked in rows.items()
    ]


def speaker(source: Origin, template: str) -> Speaker:
    """How a question becomes a prompt of this model: tokens, or for a server a text and the messages before it."""
    encoder = None if isinstance(source, Endpoint) else Encoder(tokenizer_of(source), template)
    given = encoder is not None or template == CHAT or "{question}" in template
    words = template if given else read_template(template)

    def speak(
        name: str,
        row: AskedRow,
        n: int | None = None,
        system: str = "",
        before: Sequence[tuple[AskedRow, str]] = (),
        start: str = "",
    ) -> Prompt:
        if encoder is not None:
            return Prompt(name, encoder.conversation(row, system, before, start), n)
        if words != CHAT:
            return Prompt(
                name, (), n, spelled_out(lambda one: worded(words, one), row, system, before, start)
            )
        if start:
            raise BadInput(
                "A server's chat cannot continue the start of an answer: leave prefix out of the language, or name a "
                "template file (--prompt)."
            )
        return Prompt(name, (), n, worded(CHAT, row), tuple(messages_before(system, before)))

    return speak


def settings_of(sample: Sample, model: Model, split: str) -> Settings:
    """The sampling settings of one split, from the ``sample`` section and the model's entry of params.yaml."""
    return Settings(
        **{name: getattr(sample, name) for name in Drawing.model_fields}
        | {"max_new_tokens": sample.longest},
        n=sample.most if split == "forget" else sample.utility_n,
        adaptive_threshold=model.adaptive_threshold,
        seed=sample.seed,
    )


def about(work: Sequence[Task], engine: Engine, sample: Sample, model: Model) -> dict:
    """The metadata of the generations: the engine, its settings and the numbers of answers."""
    described = getattr(engine, "checkpoint", None)
    facts = (
        {"served": engine.served()}
        if hasattr(engine, "served")
        else {"dtype": described and described.dtype}
    )
    belief = getattr(engine, "belief", None)
    if belief is not None:
        facts["engine_check"] = belief.record()
        if belief.agreement.unchecked:  # the licence of a claim reads it
            facts["unchecked_engine"] = belief.agreement.unchecked
    language = None if sample.language is None else content_digest(Path(sample.language))[:12]
    return {
        "schema": SCHEMA_VERSION,
        "engine": engine.name,
        "engine_reason": getattr(engine, "reason", f"sample.engine is {sample.engine}"),
        **{key: getattr(sample, key) for key in ("temperature", "top_p", "top_k")},
        "adaptive_threshold": model.adaptive_threshold,
        **{
            key: getattr(sample, key)
            for key in ("max_new_tokens", "max_thinking_tokens", "seed", "stop")
        },
        "language": language,
        "splits": {
            task.split: {"questions": len(task.prompts), "n": task.settings.n} for task in work
        },
    } | facts


def draw(task: Task, engine: Engine, store: AnswerStore, label: str) -> pd.DataFrame:
    """The generations table of a task, rows in the order of its prompts and samples."""
    draw_into(store, task, engine, label)
    return pd.concat(drawn_parts(store, task), ignore_index=True)


def draw_into(store: AnswerStore, task: Task, engine: Engine, label: str) -> None:
    """Have the answers of a task in the store; memory holds those of one question."""
    for _ in progress(
        store.answer(engine, task.prompts, task.settings), label, "questions", len(task.prompts)
    ):
        pass


def drawn_parts(store: AnswerStore, task: Task) -> Iterator[pd.DataFrame]:
    """The stored generations of a task in the order of its prompts and samples: parts as of `lethe.io.artifacts`."""
    part: list[Answers] = []
    for prompt in task.prompts:
        answers = store.stored(prompt, task.settings)
        if part and sum(len(own.samples) for own in part) + len(answers.samples) > artifacts.ROWS:
            yield table_of(part)
            part = []
        part.append(answers)
    if part:
        yield table_of(part)


def draw_sequentially(
    task: Task,
    items: Mapping[str, Row],
    engine: Engine,
    store: AnswerStore,
    rule: Sequential,
    label: str,
) -> tuple[pd.DataFrame, list[dict]]:
    """`sample.stop: sequential`: the generations, drawn in chunks until each question's verdict, and the decisions. A
    missing judgement counts as 1 against a certificate and as 0 against a leak."""
    cap = task.settings.n
    tests = {
        p.prompt_id: SequentialTest(rule.tau, rule.tau_leak, rule.alpha, cap) for p in task.prompts
    }
    drawn: dict[str, list[Answers]] = {prompt.prompt_id: [] for prompt in task.prompts}
    judge = scorer(rule.scorer)
    for start in progress(range(0, cap, rule.chunk), label, "chunks"):
        active = [prompt for prompt in task.prompts if not tests[prompt.prompt_id].done]
        if not active:
            break
        part = {"n": min(rule.chunk, cap - start), "first_sample": start}
        settings = task.settings.model_copy(
            update={**part, "greedy": task.settings.greedy and start == 0}
        )
        for answers in store.answer(engine, active, settings):
            drawn[answers.prompt_id].append(answers)
            texts = [
                text
                for text, number in zip(answers.texts, answers.samples, strict=True)
                if number != GREEDY
            ]
            scores = judge(texts, items[answers.prompt_id])
            tests[answers.prompt_id].update(
                np.nan_to_num(scores, nan=1.0), low=np.nan_to_num(scores, nan=0.0)
            )
    decisions = [{"prompt_id": key, **asdict(test.decision())} for key, test in tests.items()]
    return table_of(part for prompt in task.prompts for part in drawn[prompt.prompt_id]), decisions


def table_of(answers: Iterable[Answers]) -> pd.DataFrame:
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
            # of one type, also where a part of the table has no thinking
            | (
                {}
                if answer.thinking is None
                else {"thinking": pd.array([*answer.thinking], dtype="string")}
            )
        )
        for answer in answers
    ]
    return pd.concat(frames, ignore_index=True)


class Asked(NamedTuple):
    """The prompts of one question: its productions, and the index of each sample's production."""

    productions: Sequence[Production]
    of_sample: np.ndarray

    @property
    def likeliest(self) -> int:
        """The index of the greedy answer's production: the most probable one, the first among equals."""
        return int(np.argmax([production.probability for production in self.productions]))


def ask(language: Language, row: Row, samples: int, seed: int) -> Asked:
    choices = productions(language, row)
    uniform = np.array([_uniform(seed, row["id"], sample) for sample in range(samples)])
    return Asked(choices, pick(uniform, choices))


def pick(uniform: np.ndarray, choices: Sequence[Production]) -> np.ndarray:
    """The index of the production for each uniform number in [0, 1), by inverse transform."""
    edges = np.cumsum([production.probability for production in choices])
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(choices) - 1)


def _uniform(seed: int, name: str, sample: int) -> float:
    drawn = stream(seed, "production", name, sample)
    return float(drawn.generate_state(1, np.uint64)[0] >> np.uint64(11)) / 2.0**53


@dataclass(frozen=True)
class Asking:
    speak: Speaker
    settings: Settings
    engine: Engine
    store: AnswerStore

    def prompt(self, row: Row, own: Production, n: int | None, use: str = "") -> Prompt:
        opening, name = Opening.of(row, own), _name(row["id"], own, use)
        return self.speak(name, opening.row, n, opening.system, opening.before, opening.start)

    def answers(
        self, prompts: Sequence[Prompt], label: str, greedy: bool = False
    ) -> dict[str, Answers]:
        """The drawn answers to each prompt, or the greedy one alone."""
        update = {"n": 0, "greedy": True} if greedy else {"greedy": False}
        settings = self.settings.model_copy(update=update)
        stream = progress(
            self.store.answer(self.engine, prompts, settings), label, "prompts", len(prompts)
        )
        answers = {answer.prompt_id: answer for answer in stream}
        for prompt in prompts:
            got, wanted = (
                len(answers[prompt.prompt_id].texts),
                len(settings.of(prompt).sample_numbers()),
            )
            if got != wanted:
                raise LetheError(
                    f"The engine {self.engine.name} gave {got} answers to a prompt with n = {wanted}: an engine must take "
                    "the number of answers from settings.of(prompt)."
                )
        return answers


def draw_in_language(
    language: Language, rows: Sequence[Row], asking: Asking, label: str
) -> pd.DataFrame:
    """The generations of the forget questions, with a column ``production``; the greedy answer is to the likeliest one. The
    k-th sample of a production is the k-th answer to its prompt."""
    questions = [ask(language, row, asking.settings.n, asking.settings.seed) for row in rows]
    sampled, greedy = list[Prompt](), list[Prompt]()
    for row, asked in zip(rows, questions, strict=True):
        counts = enumerate(np.bincount(asked.of_sample).tolist())
        sampled += [
            asking.prompt(row, asked.productions[place], count) for place, count in counts if count
        ]
        greedy.append(asking.prompt(row, asked.productions[asked.likeliest], None, "greedy"))
    answers = asking.answers(sampled, label) | asking.answers(
        greedy, f"{label}, greedy", greedy=True
    )
    tables = []
    for row, asked, first in zip(rows, questions, greedy, strict=True):
        names = [production.name for production in asked.productions]
        drawn = [
            answers[_name(row["id"], asked.productions[place])]
            for place in np.unique(asked.of_sample)
        ]
        numbers = np.array([GREEDY, *np.argsort(asked.of_sample, kind="stable")], np.int32)
        table = table_of([answers[first.prompt_id], *drawn]).assign(
            prompt_id=row["id"], sample=numbers
        )
        produced = [names[place] for place in (asked.likeliest, *asked.of_sample)]
        tables.append(table.sort_values("sample").assign(production=produced))
    return pd.concat(tables, ignore_index=True)


def _name(prompt_id: str, production: Production, use: str = "") -> str:
    return " | ".join(filter(None, (prompt_id, production.name, use)))


def within_budgets(
    table: pd.DataFrame, parts: Parts, tokenizer: "PreTrainedTokenizerBase", sample: Sample
) -> pd.DataFrame:
    """The answers cut where their thinking has more than ``max_thinking_tokens`` tokens, or what follows it more than
    ``max_new_tokens``: as if the model had been stopped there, because what comes later changes nothing before. A part
    that is not of one piece, such as several traces, is limited by the sum of both alone."""

    def cut(text: str) -> str:
        thinking, answer = split_answer(text, parts)
        # A thinking often drafts the answer: the answer is what stands last.
        budgets = (
            (thinking, text.find, sample.max_thinking_tokens),
            (answer, text.rfind, sample.max_new_tokens),
        )
        for part, place_of, most in budgets:
            ids = tokenizer(part or "", add_special_tokens=False)["input_ids"]
            if part and len(ids) > most and (place := place_of(part)) >= 0:
                return text[:place] + str(tokenizer.decode(ids[:most]))
        return text

    shorter = {text: cut(text) for text in table["text"].dropna().unique()}
    texts = table["text"].map(shorter)
    reasons = table["finish_reason"].where((texts == table["text"]) | table["text"].isna(), CUT_OFF)
    return table.assign(text=texts, finish_reason=reasons)


@dataclass(frozen=True)
class Opening:
    """How a conversation begins, and the questions that follow the first answer."""

    row: AskedRow
    followups: Sequence[str]
    system: str = ""
    before: Sequence[tuple[AskedRow, str]] = ()
    start: str = ""

    @classmethod
    def of(cls, row: Row, own: Production) -> Self:
        shots: list[tuple[AskedRow, str]] = [
            ({"question": question}, answer) for question, answer in own.shots
        ]
        asked: Row = {**row, "question": own.question}
        return cls(asked, own.followups, own.system, shots, own.prefix)


def openings(rows: Sequence[Row], language: Language | None) -> dict[tuple[str, str], Opening]:
    """The conversations of the forget questions that go on after the first answer, by question and production."""
    if language is None:
        every = {(row["id"], ""): Opening(row, row.get("followups") or ()) for row in rows}
    else:
        every = {
            (row["id"], own.name): Opening.of(row, own)
            for row in rows
            for own in productions(language, row)
        }
    return {key: opening for key, opening in every.items() if opening.followups}


def draw_turns(
    first: pd.DataFrame,
    conversations: Mapping[tuple[str, str], Opening],
    asking: Asking,
    label: str,
    shorten: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table,
) -> pd.DataFrame:
    """The answers to the follow-up questions, with the columns of the generations, ``turn`` (from 2) and ``followup``. After
    a missing answer the later turns are missing for the same reason; one beyond the model's context for "context"."""
    asked_in = first["production"] if "production" in first else [""] * len(first)
    keys = list(zip(first["prompt_id"], asked_in, strict=True))
    greedy = first["sample"] == GREEDY
    heard: list[tuple[str | None, ...]] = [(text,) for text in first["text"]]
    reasons, drawn, turn = list(first["finish_reason"]), [], 1
    while active := [
        place
        for place, key in enumerate(keys)
        if key in conversations and len(conversations[key].followups) >= turn
    ]:
        turn += 1
        same: dict[tuple, list[int]] = {}
        for place in active:
            same.setdefault((keys[place], bool(greedy[place]), heard[place]), []).append(place)
        asked = {_named(key, turn): (key, places) for key, places in same.items()}
        answers = _next_turn(asked, conversations, asking, f"{label}, turn {turn}")
        for name, (key, places) in asked.items():
            numbers, m = first["sample"].iloc[places].tolist(), len(places)
            reason = reasons[places[0]] if None in key[2] else NO_CONTEXT
            silent = Answers(name, numbers, [None] * m, [0] * m, [reason] * m, [None] * m)
            followup = conversations[key[0]].followups[turn - 2]
            table = shorten(
                table_of([replace(answers.get(name, silent), prompt_id=key[0][0], samples=numbers)])
            )
            drawn.append(table.assign(turn=np.int32(turn), followup=followup))
            for place, text, reason in zip(
                places, table["text"], table["finish_reason"], strict=True
            ):
                heard[place], reasons[place] = (*heard[place], text), reason
    order = {name: place for place, name in enumerate(dict.fromkeys(first["prompt_id"]))}
    table = pd.concat(drawn, ignore_index=True)
    return table.sort_values(
        ["prompt_id", "sample", "turn"],
        key=lambda own: own.map(order) if own.name == "prompt_id" else own,
    ).reset_index(drop=True)


def _named(key: tuple, turn: int) -> str:
    """The name of a prompt within a conversation, from which its draws follow: what was asked and answered so far."""
    (prompt_id, production), greedy, heard = key
    return " | ".join(
        filter(None, (prompt_id, production, f"turn {turn} {digest(heard)}", "greedy" * greedy))
    )


def _next_turn(
    asked: Mapping[str, tuple[tuple, list[int]]],
    conversations: Mapping[tuple[str, str], Opening],
    asking: Asking,
    label: str,
) -> dict[str, Answers]:
    """The answers to the next question of each conversation that has no missing answer and room for one more."""
    described = getattr(asking.engine, "checkpoint", None)
    room = math.inf if described is None or described.context is None else described.context
    prompts: dict[bool, list[Prompt]] = {False: [], True: []}
    for name, ((key, greedy, heard), places) in asked.items():
        if None in heard:
            continue
        own = conversations[key]
        questions = [own.row, *({"question": text} for text in own.followups)]
        answers = [own.start + heard[0] if own.start else heard[0], *heard[1:]]
        before = [*own.before, *zip(questions, answers, strict=False)]
        prompt = asking.speak(
            name, questions[len(heard)], None if greedy else len(places), own.system, before
        )
        if len(prompt.token_ids) + asking.settings.max_new_tokens <= room:
            prompts[greedy].append(prompt)
    drawn = asking.answers(prompts[False], label) if prompts[False] else {}
    return drawn | (
        asking.answers(prompts[True], f"{label}, greedy", greedy=True) if prompts[True] else {}
    )


def draw_prompts(
    language: Language, rows: Sequence[Row], asking: Asking, label: str
) -> pd.DataFrame:
    """The second sample: ``share.prompts`` random prompts over all questions, ``share.answers`` new ones to each, with
    the columns of the generations, ``prompt`` (its number) and ``production``."""
    share = language.share
    assert share is not None  # the caller passes only a language with a share
    choices = [productions(language, row) for row in rows]
    drawn: list[tuple[int, int]] = []
    for number in range(share.prompts):
        question = int(_uniform(asking.settings.seed, f"{SHARE} question", number) * len(rows))
        uniform = np.array([_uniform(asking.settings.seed, f"{SHARE} production", number)])
        drawn.append((question, int(pick(uniform, choices[question])[0])))
    prompts = {
        pair: asking.prompt(rows[pair[0]], choices[pair[0]][pair[1]], count * share.answers, SHARE)
        for pair, count in Counter(drawn).items()
    }
    answers = asking.answers(list(prompts.values()), label)
    own = {pair: table_of([answers[prompt.prompt_id]]) for pair, prompt in prompts.items()}
    used: Counter[tuple[int, int]] = Counter()
    tables, samples = [], np.arange(share.answers, dtype=np.int32)
    for number, (question, place) in enumerate(drawn):
        start = used[question, place] * share.answers
        used[question, place] += 1
        asked = {"prompt_id": rows[question]["id"], "sample": samples, "prompt": number}
        part = own[question, place].iloc[start : start + share.answers]
        tables.append(part.assign(**asked, production=choices[question][place].name))
    return pd.concat(tables, ignore_index=True)
