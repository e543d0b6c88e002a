"""Draws from a language of prompts: every draw is a random prompt and its answer together.

The prompt of a sample comes from the sample's own generator, named by seed, question and sample number. Draws with the
same prompt are grouped, so an engine reads each distinct prompt once. Given the prompts, answers are independent draws of
the model, so the pairs of a question are independent and equally distributed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.data.prompt_language import Language, Production, productions
from lethe.errors import LetheError
from lethe.io.artifacts import GREEDY
from lethe.progress import progress
from lethe.sampling.engine import Answers, Engine, Prompt, Settings
from lethe.sampling.store import AnswerStore
from lethe.sampling.tasks import table_of

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row
    from lethe.models.encoding import Encoder

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
        """The number of samples of each production."""
        return np.bincount(self.of_sample, minlength=len(self.productions))

    @property
    def likeliest(self) -> int:
        """The index of the greedy answer's production: the most probable one, the first among equals."""
        return int(np.argmax([production.probability for production in self.productions]))


def ask(language: Language, row: Row, samples: int, seed: int) -> Asked:
    """Draw the production of each sample of one question."""
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
    """The generations of the forget questions, with a column ``production``.

    The greedy answer is the one to the most probable production.
    """
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
        order = [
            (greedy, 0),
            *zip((own[place] for place in asked.of_sample), _ranks(asked.of_sample), strict=True),
        ]
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


def _ranks(of_sample: np.ndarray) -> np.ndarray:
    """How many earlier samples take the same production."""
    ranks = np.empty(len(of_sample), np.int64)
    for place in np.unique(of_sample):
        own = np.flatnonzero(of_sample == place)
        ranks[own] = np.arange(len(own))
    return ranks


def draw_prompts(
    language: Language,
    rows: Sequence[Row],
    encoder: Encoder,
    settings: Settings,
    engine: Engine,
    store: AnswerStore,
    label: str,
) -> pd.DataFrame:
    """The second sample: ``share.prompts`` random prompts over all questions, ``share.answers`` to each.

    The columns are those of the generations, ``prompt`` (the number of the prompt) and ``production``. A prompt that is
    drawn twice gets new answers. The parameters are those of `draw_in_language`; the language must have a ``share``.
    """
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
