"""The work of the sample stage: the rows to ask, one task per split, and the resulting tables.

In a language of prompts every draw is a random prompt and its answer together. The prompt of a sample comes from the
sample's own generator, named by seed, question and sample number, and each distinct prompt is read once. So the pairs
of a question are independent and equally distributed.

A follow-up question is asked after each answer that was drawn. Answers that agree so far share one prompt, which is asked
as often as they are, so the conversations of a question are independent too.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pandas as pd

from lethe.config.measuring import Drawing, Endpoint, ModelEntry, Parts, SampleSettings
from lethe.errors import BadInput, LetheError
from lethe.identity import content_digest, digest
from lethe.io import artifacts
from lethe.io.answer_ends import CUT_OFF, NO_CONTEXT
from lethe.io.artifacts import GREEDY, Row, read_split
from lethe.io.artifacts import Asked as AskedRow
from lethe.io.files import SCHEMA_VERSION
from lethe.models.agreement import ROOM as ROOM_OF_CHECK
from lethe.models.checkpoints import Origin, content, tokenizer_of, weights_of
from lethe.models.encoding import CHAT, Encoder, messages_before, spelled_out, template_of, worded
from lethe.progress import progress
from lethe.sampling.answer import Answers
from lethe.sampling.engine import AnswerStore, Engine, Prompt, Settings
from lethe.sampling.prompt_language import Language, Production, place_of, productions
from lethe.scoring.parts import split_answer
from lethe.statistics.streams import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Speaker = Callable[..., Prompt]
UTILITY_SPLITS = ("retain", "world", "real_authors")
HELDOUT = "heldout"
SHARE = "share"  # names the draws of the second sample
# roles: of a model in its stage, and with its place of a Retrain beside it
SUBJECT = "subject"
RETRAIN = "retrain"
STREAM_DIGITS = 16  # of a hash, four bits each


def chosen(sample: SampleSettings, dataset: Path = Path("data/dataset")) -> dict[str, list[Row]]:
    """The rows to ask: the whole forget set, and up to ``utility_questions`` rows of each other split."""
    rows_of_split = _present(dataset, "forget", *UTILITY_SPLITS)
    for split in UTILITY_SPLITS:
        if split in rows_of_split:
            rows = rows_of_split[split]
            rows_of_split[split] = some(rows, sample.utility_questions, sample.seed)
    return rows_of_split


def heldout(dataset: Path) -> dict[str, list[Row]]:
    """The held-out rows by split name, empty if the dataset has none; used only for comparison, never asked."""
    return _present(dataset, HELDOUT)


def _present(dataset: Path, *splits: str) -> dict[str, list[Row]]:
    """The rows of those splits that the dataset has."""
    present = [split for split in splits if (dataset / f"{split}.jsonl").is_file()]
    return {split: read_split(split, dataset) for split in present}


def some(rows: list[Row], count: int, seed: int) -> list[Row]:
    """Up to ``count`` random rows, in their order."""
    picks = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[i] for i in sorted(picks)]


@dataclass(frozen=True)
class SplitTask:
    """The prompts of one split, and how answers to them are drawn."""

    split: str
    prompts: Sequence[Prompt]
    settings: Settings


def tasks(
    source: Origin,
    rows: Mapping[str, list[Row]],
    sample: SampleSettings,
    model: ModelEntry,
    role: str = SUBJECT,
) -> list[SplitTask]:
    """The tasks of a model, one per split, in the order of the splits.

    Parameters
    ----------
    source
        The model as it was read, or its server.
    rows
        The rows to ask, by split.
    sample
        The section ``sample`` of params.yaml.
    model
        The model's entry of params.yaml.
    role
        `SUBJECT`, or a Retrain's name as in `stream_of`, so that a Retrain's draws are others than the subject's.
    """
    speak = speaker(source, sample.prompt)
    name = stream_of(source, sample, model, role)
    asked = []
    for split, rows_of_split in rows.items():
        prompts = [speak(row["id"], row) for row in rows_of_split]
        asked.append(SplitTask(split, prompts, settings_of(sample, model, split, name)))
    return asked


def stream_of(
    source: Origin, sample: SampleSettings, model: ModelEntry, role: str = SUBJECT
) -> str:
    """Whose answers a random stream is of, as 64 bits of a hash: the weights, how answers are drawn, and the role, which is
    `SUBJECT` or ``retrain 0``, ``retrain 1``, ...

    So two models share no random numbers, nor do old and new weights, nor a Retrain beside a model and the model itself:
    the product of their likelihoods is that of independent draws. Empty with ``sample.stream: shared``.
    """
    if sample.stream == "shared":
        return ""
    law = {name: getattr(sample, name) for name in Drawing.model_fields}
    law |= {"dtype": sample.dtype, "adaptive_threshold": model.adaptive_threshold}
    law["longest"] = sample.longest
    law["prompt"] = template_of(sample.prompt)
    if sample.language is not None:
        law["language"] = content_digest(place_of(sample.language))
    return digest(weights_of(source), law, role)[:STREAM_DIGITS]


def drawn_as(engine: str, sample: SampleSettings) -> str:
    """What names the draws of an engine here, once they are drawn.

    The engine "prefix" gives a number the same answer on each machine. With another engine a seed gives other answers: its
    generator is that of the device, and "transformers" draws rows of a call together.
    """
    if engine == "prefix":
        return str(sample.seed)
    from lethe.models.model import resolve_device
    from lethe.sampling.transformers_engine import PIECE

    rows = min(sample.max_rows, sample.batch, PIECE)
    return f"{sample.seed} {engine} {resolve_device('auto').type} {rows}"


def speaker(source: Origin, template: str) -> Speaker:
    """How a question becomes a prompt of this model: tokens, or for a server a text and the messages before it.

    With the template "chat" a server puts the messages together itself, and `speak` raises `BadInput` for the start of an
    answer, which a server's chat cannot continue.
    """
    encoder = None
    if isinstance(source, Endpoint):
        template = template_of(template)
    else:
        encoder = Encoder(tokenizer_of(source), template)

    def speak(
        name: str,
        row: AskedRow,
        n: int | None = None,
        system: str = "",
        before: Sequence[tuple[AskedRow, str]] = (),
        start: str = "",
    ) -> Prompt:
        """The prompt ``name`` for ``n`` answers to a question, after the messages before it."""
        if encoder is not None:
            return Prompt(name, encoder.conversation(row, system, before, start), n)
        if template != CHAT:
            text = spelled_out(partial(worded, template), row, system, before, start)
            return Prompt(name, (), n, text)
        if start:
            raise BadInput(
                "A server's chat cannot continue the start of an answer: leave prefix out of the language, or name a "
                "template file (--prompt)."
            )
        return Prompt(name, (), n, worded(CHAT, row), tuple(messages_before(system, before)))

    return speak


def settings_of(sample: SampleSettings, model: ModelEntry, split: str, name: str) -> Settings:
    """The sampling settings of one split, from the ``sample`` section and the model's entry of params.yaml.

    ``name`` is that of `stream_of`. A forget question has as many samples as the stopping rule asks for at first.
    """
    n = sample.at_first if split == "forget" else sample.utility_n
    return Settings(
        max_new_tokens=sample.longest,
        temperature=sample.temperature,
        top_p=sample.top_p,
        top_k=sample.top_k,
        n=n,
        adaptive_threshold=model.adaptive_threshold,
        seed=sample.seed,
        batch=sample.batch,
        stream_of=name,
    )


def room_of(prompts: Iterable[Prompt], sample: SampleSettings) -> int:
    """The largest number of tokens of a prompt with its answer, and at least those of the prompts that check an engine."""
    longest = max((len(prompt.token_ids) for prompt in prompts), default=0)
    return max(longest + sample.longest, ROOM_OF_CHECK)


def about(
    work: Sequence[SplitTask], engine: Engine, sample: SampleSettings, model: ModelEntry
) -> dict:
    """The metadata of the generations: the engine, its settings and the numbers of answers.

    They are written beside the table and read by whoever decides what its numbers may claim, so they can be written as
    JSON. A fact that an engine does not have is absent.
    """
    language = None
    if sample.language is not None:
        language = content_digest(place_of(sample.language))[:12]
    splits = {}
    for task in work:
        splits[task.split] = {"questions": len(task.prompts), "n": task.settings.n}

    facts: dict[str, object] = {
        "schema": SCHEMA_VERSION,
        "engine": engine.name,
        "engine_reason": getattr(engine, "reason", f"sample.engine is {sample.engine}"),
        "temperature": sample.temperature,
        "top_p": sample.top_p,
        "top_k": sample.top_k,
        "adaptive_threshold": model.adaptive_threshold,
        "max_new_tokens": sample.max_new_tokens,
        "max_thinking_tokens": sample.max_thinking_tokens,
        "seed": sample.seed,
        "stream": work[0].settings.stream_of or "shared",
        "stop": sample.stop,
        "language": language,
        "splits": splits,
    }

    # A server says itself what it ran; of a local model its checkpoint does.
    if hasattr(engine, "served"):
        facts["served"] = engine.served()
    else:
        described = getattr(engine, "checkpoint", None)
        facts["dtype"] = described.dtype if described else None
    # Of vLLM: whether a seed gives the same answers in any batch.
    if hasattr(engine, "batch_invariant"):
        facts["batch_invariant"] = engine.batch_invariant

    source = model.source
    if isinstance(source, Path) and source.is_dir():
        facts["tokenizer"] = content(source, "tokenizer")  # the stream is of the weights alone

    belief = getattr(engine, "belief", None)
    if belief is not None:
        facts["engine_check"] = belief.record()
        if belief.agreement.unchecked:  # the licence of a claim reads it
            facts["unchecked_engine"] = belief.agreement.unchecked
    return facts


def draw(task: SplitTask, engine: Engine, store: AnswerStore, label: str) -> pd.DataFrame:
    """The generations table of a task, rows in the order of its prompts and samples."""
    store.fill(engine, task.prompts, task.settings, label)
    return pd.concat(drawn_parts(store, task), ignore_index=True)


def drawn_parts(store: AnswerStore, task: SplitTask) -> Iterator[pd.DataFrame]:
    """The stored generations of a task in the order of its prompts and samples: parts as of `lethe.io.artifacts`."""
    part: list[Answers] = []
    rows = 0
    for prompt in task.prompts:
        answers = store.stored(prompt, task.settings)
        rows += len(answers.samples)
        if part and rows > artifacts.ROWS:
            yield table_of(part)
            part = []
            rows = len(answers.samples)
        part.append(answers)
    if part:
        yield table_of(part)


def table_of(answers: Iterable[Answers]) -> pd.DataFrame:
    """The generations table of the answers to prompts, a row for each answer."""
    frames = []
    for answered in answers:
        columns = {
            "prompt_id": answered.prompt_id,
            "sample": np.asarray(answered.samples, dtype=np.int32),
            "text": answered.texts,
            "tokens": np.asarray(answered.tokens, dtype=np.int32),
            "finish_reason": answered.finish_reasons,
            "mean_confidence": np.asarray(answered.mean_confidences, dtype=np.float64),
        }
        if answered.thinking is not None:
            # Of one type, also where a part of the table has no thinking.
            columns["thinking"] = pd.array([*answered.thinking], dtype="string")
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True)
class Ways:
    """The ways in which one question is asked.

    Attributes
    ----------
    productions
        The wordings of the question, with their probabilities.
    of_sample
        (samples,) the index of each sample's production.
    """

    productions: Sequence[Production]
    of_sample: np.ndarray

    @property
    def likeliest(self) -> int:
        """The index of the greedy answer's production: the most probable one, the first among equals."""
        return int(np.argmax([production.probability for production in self.productions]))


def ask(
    language: Language,
    row: Row,
    samples: int,
    seed: int,
    name: str = "",
) -> Ways:
    """The ways of a question for so many samples, each drawn from the sample's own stream; ``name`` is of `stream_of`."""
    choices = productions(language, row)
    uniform = np.array([_uniform(seed, row["id"], sample, name) for sample in range(samples)])
    return Ways(choices, pick(uniform, choices))


def pick(uniform: np.ndarray, choices: Sequence[Production]) -> np.ndarray:
    """The index of the production for each uniform number in [0, 1), by inverse transform."""
    edges = np.cumsum([production.probability for production in choices])
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(choices) - 1)


def _uniform(seed: int, prompt_id: str, sample: int, name: str = "") -> float:
    """A number in [0, 1) of 53 bits, the sample's own."""
    names: list[str | int] = [prompt_id, sample]
    if name:
        names.append(name)
    drawn = stream(seed, "production", *names)
    return float(drawn.generate_state(1, np.uint64)[0] >> np.uint64(11)) / 2.0**53


@dataclass(frozen=True)
class Asking:
    """What is needed to ask: how a question becomes a prompt, how answers are drawn, and where finished ones are kept."""

    speak: Speaker
    settings: Settings
    engine: Engine
    store: AnswerStore

    def prompt(
        self,
        row: Row,
        production: Production,
        n: int | None,
        use: str = "",
    ) -> Prompt:
        """A question in the words of a production, for ``n`` answers.

        ``use`` is a part of the prompt's name, so that two uses of the same words have independent answers.
        """
        opening = Opening.of(row, production)
        name = _name(row["id"], production.name, use)
        return self.speak(name, opening.row, n, opening.system, opening.before, opening.start)

    def has_room_for(self, prompt: Prompt) -> bool:
        """Whether the model's context holds the prompt and its longest answer."""
        described = getattr(self.engine, "checkpoint", None)
        if described is None or described.context is None:
            return True
        return len(prompt.token_ids) + self.settings.max_new_tokens <= described.context

    def answers(
        self, prompts: Sequence[Prompt], label: str, greedy: bool = False
    ) -> dict[str, Answers]:
        """The drawn answers to each prompt by its name, or the greedy one alone.

        Raises
        ------
        LetheError
            If the engine gave another number of answers than the prompt asks for.
        """
        update = {"n": 0, "greedy": True} if greedy else {"greedy": False}
        settings = self.settings.model_copy(update=update)
        drawn = self.store.answer(self.engine, prompts, settings)
        answers = {}
        for answered in progress(drawn, label, "prompts", len(prompts)):
            answers[answered.prompt_id] = answered
        for prompt in prompts:
            got = len(answers[prompt.prompt_id].texts)
            wanted = len(settings.of(prompt).sample_numbers())
            if got != wanted:
                raise LetheError(
                    f"The engine {self.engine.name} gave {got} answers to a prompt with n = {wanted}: an engine must take "
                    "the number of answers from settings.of(prompt)."
                )
        return answers


def draw_in_language(
    language: Language, rows: Sequence[Row], asking: Asking, label: str
) -> pd.DataFrame:
    """The generations of the forget questions, when a question may be asked in several ways.

    Each distinct prompt is asked once, for as many answers as its production was drawn. The k-th sample of a production is
    the k-th answer to its prompt, and the greedy answer is to the likeliest production.

    Returns
    -------
    pandas.DataFrame
        The columns of the generations and ``production``, ordered by question and sample.
    """
    settings = asking.settings
    ways_of_rows = []
    for row in rows:
        ways_of_rows.append(ask(language, row, settings.n, settings.seed, settings.stream_of))

    sampled_prompts: list[list[Prompt]] = []
    greedy_prompts: list[Prompt] = []
    for row, ways in zip(rows, ways_of_rows, strict=True):
        prompts = []
        places, counts = np.unique(ways.of_sample, return_counts=True)
        for place, count in zip(places, counts, strict=True):
            prompts.append(asking.prompt(row, ways.productions[place], int(count)))
        sampled_prompts.append(prompts)
        likeliest = ways.productions[ways.likeliest]
        greedy_prompts.append(asking.prompt(row, likeliest, None, "greedy"))

    answers = asking.answers(list(itertools.chain.from_iterable(sampled_prompts)), label)
    answers |= asking.answers(greedy_prompts, f"{label}, greedy", greedy=True)

    tables = []
    for place, row in enumerate(rows):
        ways = ways_of_rows[place]
        asked = [greedy_prompts[place], *sampled_prompts[place]]
        table = table_of([answers[prompt.prompt_id] for prompt in asked])

        # The answers come by production; in this order the samples of each production stand too.
        numbers = np.array([GREEDY, *np.argsort(ways.of_sample, kind="stable")], np.int32)
        table = table.assign(prompt_id=row["id"], sample=numbers).sort_values("sample")
        produced = [ways.productions[way].name for way in (ways.likeliest, *ways.of_sample)]
        tables.append(table.assign(production=produced))
    return pd.concat(tables, ignore_index=True)


def _name(*parts: str) -> str:
    """The name of a prompt, which draws follow from: the question and how it is asked."""
    return " | ".join(filter(None, parts))


def within_budgets(
    table: pd.DataFrame, parts: Parts, tokenizer: "PreTrainedTokenizerBase", sample: SampleSettings
) -> pd.DataFrame:
    """The answers, cut where a part of them is longer than its limit.

    The thinking may have ``max_thinking_tokens`` tokens, and what follows it ``max_new_tokens``. The rest is cut as if the
    model had been stopped there, because what comes later changes nothing before. A part that is not of one piece, such as
    several traces, is limited by the sum of both alone.

    Parameters
    ----------
    table
        Generations; those that are cut get the finish reason of an answer that was cut off.
    parts
        How thinking and answer are told apart.
    tokenizer
        Counts the tokens of each part.
    """

    def first_tokens(part: str, most: int) -> str | None:
        """The first ``most`` tokens of a part that has more; None of a part that has not."""
        if not part:
            return None
        ids = tokenizer(part, add_special_tokens=False)["input_ids"]
        if len(ids) <= most:
            return None
        return str(tokenizer.decode(ids[:most]))

    def cut(text: str) -> str:
        """An answer up to the end of the first part that is too long."""
        thinking, answer = [part or "" for part in split_answer(text, parts)]
        kept = first_tokens(thinking, sample.max_thinking_tokens)
        if kept is not None and thinking in text:
            return text[: text.find(thinking)] + kept
        # A thinking often drafts the answer: the answer is what stands last.
        kept = first_tokens(answer, sample.max_new_tokens)
        if kept is not None and answer in text:
            return text[: text.rfind(answer)] + kept
        return text

    shorter = {text: cut(text) for text in table["text"].dropna().unique()}
    texts = table["text"].map(shorter)
    unchanged = (texts == table["text"]) | table["text"].isna()
    reasons = table["finish_reason"].where(unchanged, CUT_OFF)
    return table.assign(text=texts, finish_reason=reasons)


@dataclass(frozen=True)
class Opening:
    """How a conversation begins, and the questions that follow the first answer.

    Attributes
    ----------
    row
        The question that is asked first, in the words of its production.
    followups
        The questions behind it.
    system
        The system message; empty: none.
    before
        Questions with their answers that stand before, as examples.
    start
        The beginning of the answer, which the model continues.
    """

    row: AskedRow
    followups: Sequence[str]
    system: str = ""
    before: Sequence[tuple[AskedRow, str]] = ()
    start: str = ""

    @classmethod
    def of(cls, row: Row, production: Production) -> Self:
        """The beginning of a conversation in the words of a production."""
        shots: list[tuple[AskedRow, str]] = []
        for question, answer in production.shots:
            shots.append(({"question": question}, answer))
        asked: Row = {**row, "question": production.question}
        return cls(asked, production.followups, production.system, shots, production.prefix)


def openings(rows: Sequence[Row], language: Language | None) -> dict[tuple[str, str], Opening]:
    """The conversations of the forget questions that go on after the first answer, by question and production."""
    conversations = {}
    for row in rows:
        if language is None:
            conversations[row["id"], ""] = Opening(row, row.get("followups") or ())
            continue
        for production in productions(language, row):
            conversations[row["id"], production.name] = Opening.of(row, production)
    return {key: opening for key, opening in conversations.items() if opening.followups}


@dataclass(frozen=True)
class Branch:
    """Conversations that agree so far. They share their next prompt, which is asked once for each of them.

    Attributes
    ----------
    prompt_id
        The id of the question.
    production
        The name of its wording; empty without a language.
    greedy
        Whether each answer is the likeliest one, in place of a drawn one.
    answers
        Those so far; None stands for a missing one, after which nothing more is asked.
    """

    prompt_id: str
    production: str
    greedy: bool
    answers: tuple[str | None, ...]

    @property
    def key(self) -> tuple[str, str]:
        """The question and the production, which name a conversation."""
        return self.prompt_id, self.production

    @property
    def is_broken(self) -> bool:
        """Whether an answer is missing, after which nothing more is asked."""
        return None in self.answers

    def prompt_name(self, turn: int) -> str:
        """The name of the next prompt. The draws follow from it, so it holds all that was answered so far."""
        said = f"turn {turn} {digest(self.answers)}"
        use = "greedy" if self.greedy else ""
        return _name(self.prompt_id, self.production, said, use)


def draw_turns(
    first: pd.DataFrame,
    conversations: Mapping[tuple[str, str], Opening],
    asking: Asking,
    label: str,
    shorten: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table,
) -> pd.DataFrame:
    """The answers to the follow-up questions.

    Parameters
    ----------
    first : The generations of the first turn, one row per conversation.
    conversations : By question and production; a conversation that is absent ends after its first turn.
    shorten : Applied to the answers of each turn before the next one is asked.

    Returns
    -------
    The columns of the generations, ``turn`` (from 2) and ``followup``, ordered by question, sample and turn. After a
    missing answer the later turns are missing for the same reason; one beyond the model's context for "context".
    """
    branch_of_row = _first_branches(first)
    reasons = list(first["finish_reason"])
    tables: list[pd.DataFrame] = []
    most_followups = max(len(opening.followups) for opening in conversations.values())
    for turn in range(2, most_followups + 2):
        branches = _branches_with_turn(turn, branch_of_row, conversations)
        answers = _ask_branches(turn, branches, conversations, asking, f"{label}, turn {turn}")

        for branch, rows in branches.items():
            samples = first["sample"].iloc[rows].tolist()
            answered = answers.get(branch.prompt_name(turn))
            if answered is None:
                reason = reasons[rows[0]] if branch.is_broken else NO_CONTEXT
                answered = Answers.missing(branch.prompt_id, samples, reason)
            answered = replace(answered, prompt_id=branch.prompt_id, samples=samples)
            table = shorten(table_of([answered]))
            followup = conversations[branch.key].followups[turn - 2]
            tables.append(table.assign(turn=np.int32(turn), followup=followup))

            for row, text, reason in zip(rows, table["text"], table["finish_reason"], strict=True):
                branch_of_row[row] = replace(branch, answers=(*branch.answers, text))
                reasons[row] = reason

    table = pd.concat(tables, ignore_index=True)
    prompt_ids = first["prompt_id"].unique()
    order = {prompt_id: place for place, prompt_id in enumerate(prompt_ids)}
    table["order"] = table["prompt_id"].map(order)
    table = table.sort_values(["order", "sample", "turn"])
    return table.drop(columns="order").reset_index(drop=True)


def _first_branches(first: pd.DataFrame) -> list[Branch]:
    """The branch of each row of the first turn."""
    names = first["production"] if "production" in first else [""] * len(first)
    rows = zip(first["prompt_id"], names, first["sample"], first["text"], strict=True)
    branches = []
    for prompt_id, production, sample, text in rows:
        branches.append(Branch(prompt_id, production, sample == GREEDY, answers=(text,)))
    return branches


def _branches_with_turn(
    turn: int, branch_of_row: Sequence[Branch], conversations: Mapping[tuple[str, str], Opening]
) -> dict[Branch, list[int]]:
    """The rows of each branch whose conversation comes to this turn."""
    rows_of_branch: dict[Branch, list[int]] = {}
    for row, branch in enumerate(branch_of_row):
        opening = conversations.get(branch.key)
        if opening is not None and len(opening.followups) >= turn - 1:
            rows_of_branch.setdefault(branch, []).append(row)
    return rows_of_branch


def _ask_branches(
    turn: int,
    branches: Mapping[Branch, Sequence[int]],
    conversations: Mapping[tuple[str, str], Opening],
    asking: Asking,
    label: str,
) -> dict[str, Answers]:
    """The answers by prompt name, of each branch that has no missing answer and room for one more."""
    sampled: list[Prompt] = []
    greedy: list[Prompt] = []
    for branch, rows in branches.items():
        if branch.is_broken:
            continue
        n = None if branch.greedy else len(rows)
        prompt = _next_prompt(turn, branch, conversations[branch.key], asking.speak, n)
        if not asking.has_room_for(prompt):
            continue
        if branch.greedy:
            greedy.append(prompt)
        else:
            sampled.append(prompt)

    answers: dict[str, Answers] = {}
    if sampled:
        answers |= asking.answers(sampled, label)
    if greedy:
        answers |= asking.answers(greedy, f"{label}, greedy", greedy=True)
    return answers


def _next_prompt(
    turn: int,
    branch: Branch,
    opening: Opening,
    speak: Speaker,
    n: int | None,
) -> Prompt:
    """The next question, after all that was asked and answered so far."""
    questions: list[AskedRow] = [opening.row]
    questions += [{"question": followup} for followup in opening.followups]
    answers = [text for text in branch.answers if text is not None]  # all: it is not broken
    answers[0] = opening.start + answers[0]
    before = [*opening.before, *zip(questions[: turn - 1], answers, strict=True)]
    name = branch.prompt_name(turn)
    return speak(name, questions[turn - 1], n, opening.system, before)


def draw_prompts(
    language: Language, rows: Sequence[Row], asking: Asking, label: str
) -> pd.DataFrame:
    """The second sample: ``share.prompts`` random prompts over all questions, with ``share.answers`` new answers to each.

    Each prompt is a uniformly drawn question in a drawn wording, so the prompts are independent and equally distributed. A
    prompt that is drawn twice is asked for twice as many answers, which its draws divide.

    Returns
    -------
    pandas.DataFrame
        The columns of the generations, ``prompt`` (its number, from 0) and ``production``.
    """
    share = language.share
    assert share is not None  # the caller passes only a language with a share
    choices = [productions(language, row) for row in rows]
    seed = asking.settings.seed
    name = asking.settings.stream_of
    drawn: list[_RandomPrompt] = []
    for number in range(share.prompts):
        question = int(_uniform(seed, f"{SHARE} question", number, name) * len(rows))
        uniform = np.array([_uniform(seed, f"{SHARE} production", number, name)])
        production = int(pick(uniform, choices[question])[0])
        drawn.append(_RandomPrompt(question, production))

    prompts: dict[_RandomPrompt, Prompt] = {}
    for asked, count in Counter(drawn).items():
        wording = choices[asked.question][asked.production]
        n = count * share.answers
        prompts[asked] = asking.prompt(rows[asked.question], wording, n, SHARE)
    answers = asking.answers(list(prompts.values()), label)

    unused = {asked: table_of([answers[prompt.prompt_id]]) for asked, prompt in prompts.items()}
    tables = []
    for number, asked in enumerate(drawn):
        table = unused[asked]
        unused[asked] = table.iloc[share.answers :]
        part = table.iloc[: share.answers].assign(
            prompt_id=rows[asked.question]["id"],
            sample=np.arange(share.answers, dtype=np.int32),
            prompt=number,
            production=choices[asked.question][asked.production].name,
        )
        tables.append(part)
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True)
class _RandomPrompt:
    """The places of a question, and of a production among those of the question."""

    question: int
    production: int
