"""What a file states of its scores and of how its answers came about: a record that every reader fills.

A fact is what the file says, or what the tool's documents say of every such file. Whether the facts allow a claim is decided
elsewhere (`lethe.results.licence`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lethe.errors import plural, shortened
from lethe.io.column_names import columns_of, meant, spread
from lethe.io.files import Json
from lethe.io.ids import as_texts
from lethe.registry import JUDGES, SCORERS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# What a score of 1 says of an answer, in the words of the tool that gave the score.
Meaning = Literal["leak", "pass", "match", "refusal", "unknown"]
LeakIs = Literal["high", "low"]  # which end of a score is a leak, as the user says

# A column of a table that Lethe writes of a file of which nothing can be claimed: why, in whole sentences.
REFUSED_BECAUSE = "refused_because"
# Columns of a table that say that an answer is a copy of an earlier one.
CACHED = (
    *("cached", "is_cached", "was_cached", "from_cache", "cache_hit", "is_cache_hit", "hit_cache"),
    *("served_from_cache", "cached_answer", "cached_response", "cache_status", "x_cache", "cache"),
)
# Those that say "hit" of a copy; a yes in them may say that there is a cache.
STATES_OF_CACHE = ("cache_status", "x_cache", "cache")
# The words for 1 of `lethe.io.cells`, which loads NumPy, among them.
YES = ("1", "1.0", "t", "y", "yes", "true")
STOPPED = "stopped"  # the column of a table that says that a rule could stop its draws
# Columns that say which model gave an answer.
MODELS = (
    *("model", "model_name", "model_id", "model_version", "model_revision", "model_path"),
    *("checkpoint", "checkpoint_path", "ckpt", "adapter", "adapter_name", "deployment"),
    *("engine", "provider", "system_fingerprint"),
)
# Columns that say, beside its id, which question an answer is to: two of their values under one id are two questions.
TEXTS_OF_QUESTIONS = (
    *("prompt", "question", "query", "instruction", "input"),
    *("prompt_text", "question_text", "query_text", "instruction_text", "input_text"),
    *("user_prompt", "user_message", "user_input"),
)
OF_QUESTIONS = (
    *(*TEXTS_OF_QUESTIONS, "system_prompt", "system_message", "template"),
    *("wording", "paraphrase", "persona", "attack"),
    *("split", "subset", "dataset", "benchmark", "task", "language", "lang"),
)
OF_REQUESTS = frozenset({"request"})  # the word that may stand before them
DOCUMENTED = "score"  # the column of a plain table in which 1 is a leak, by the documents of Lethe
WORD = re.compile(r"[^\W\d_]+")
# Signs in a column's name by which it is the opposite of its words: 1-leak, !leak, leak < 0.5.
TURNED = re.compile(r"[!~\u00ac<\u2264\u2260]|(?<!\w)(?:1(?:\.0)?\s*)?[-\u2212\u2013]\s*\w|=\s*0")
NOT = frozenset("no not non none never without free un anti".split())
# The words that may stand beside "leak" in a column whose 1 is a leak. Another word may turn it: leak_prevented.
BESIDE_LEAK = frozenset(
    (
        *"has have is was did does any the of in by a an at per to from that".split(),
        *"score scored value flag rate share fraction p prob probability binary sampled greedy mean worst max".split(),
        *"text answer response output thinking reasoning turn keyword keywords verbatim exact partial full".split(),
        *"label verdict judge judged judgement human model llm geval detected found".split(),
        *"data training pii secret information info content prompt system canary email name".split(),
    )
)
# The words in a column's name that say what a 1 in the column says; the first meaning with a word in the name decides.
WORDS_OF: Mapping[Meaning, str] = {
    "refusal": "refused refusal refusals refuse refuses safe harmless",
    "pass": "success successful passed pass passes passing ok reward",
    "match": "correct accuracy acc match matches em exact includes",
    "leak": "leak leaks leaked leaking leakage",
}
# What an answer's part, a turn or a judge adds to the name of its scorer (`lethe.scoring`).
ENDING = re.compile(r"(_p|_thinking|_turn\d+)+$")


def several_models(prompt: object, models: Sequence[object]) -> str:
    """Why answers to a prompt are no draws of one model."""
    named = " and ".join(map(shortened, models[:2]))
    return f"Prompt {shortened(prompt)} has answers of {len(models)} models ({named})"


def tells_apart(column: str) -> bool:
    """Whether a column says which model gave an answer, or which question the answer is to."""
    return meant(column, MODELS) is not None or meant(column, OF_QUESTIONS, OF_REQUESTS) is not None


def mixed_rows(
    table: pd.DataFrame, name: str, score: str = "", settings: Collection[str] = ()
) -> str | None:
    """Why answers to some question of a table are those of several models or settings, or to several questions; None where
    each question has one value of every column that would tell: `tells_apart`, and those of ``settings`` of sampling.
    ``name`` and ``score`` are no such columns.
    """
    for column in table.columns:
        if column in (name, score) or not (column in settings or tells_apart(str(column))):
            continue
        present = table[table[column].notna()]
        pairs = present[[name]].assign(value=as_texts(present[column])).drop_duplicates()
        several = pairs[pairs.duplicated(name, keep=False)]
        if several.empty:
            continue
        prompt = several[name].iloc[0]
        values = several.loc[several[name] == prompt, "value"].tolist()
        if meant(str(column), MODELS):
            return several_models(prompt, values)
        named = " and ".join(map(shortened, values[:2]))
        return f"Prompt {shortened(prompt)} has {len(values)} values of {column} ({named})"
    return None


def text_of_questions(table: pd.DataFrame, name: str) -> dict[str, str]:
    """The text of each question, by its id in the column ``name``, as the first column of questions states it."""
    for column in columns_of(table.columns, TEXTS_OF_QUESTIONS, OF_REQUESTS):
        if column == name:
            continue
        present = table.loc[table[column].map(lambda cell: isinstance(cell, str)), [name, column]]
        first = present.drop_duplicates(name)
        return dict(zip(first[name].astype(str), first[column], strict=True))
    return {}


def says_stopped(table: pd.DataFrame) -> bool:
    """Whether a table says, by its column `stopped`, that a rule could stop its draws."""
    return _says(table, STOPPED) > 0


def cached_rows(table: pd.DataFrame, times: np.ndarray | None = None) -> str | None:
    """Why answers of a table are no new draws, by a column such as `cached`; None where it names none.

    Each row counts so many ``times``, (rows,), by default once.
    """
    for column in columns_of(table.columns, CACHED):
        words: tuple[str, ...] = YES
        if meant(str(column), STATES_OF_CACHE):
            words = ("hit",)
        rows = _says(table, column, times, words)
        if rows:
            answers = plural(rows, "answer")
            return f"The table states that {answers} came from a cache (column {column})"
    return None


def is_cached(answer: Mapping[str, object]) -> bool:
    """Whether what stands beside an answer says that it came from a cache."""
    members = spread(answer)
    for key in columns_of(members, CACHED):
        words = ("hit",) if meant(key, STATES_OF_CACHE) else YES
        if str(members[key]).strip().lower().split(" ")[0] in words:
            return True
    return False


def _says(
    table: pd.DataFrame,
    column: str,
    times: np.ndarray | None = None,
    words: Sequence[str] = YES,
) -> int:
    """How many rows of a table begin with one of the ``words`` in this column, by default yes, each so many ``times``;
    none where it has no such column."""
    if column not in table:
        return 0
    says_so = as_texts(table[column]).str.strip().str.lower().str.split().str[0].isin(words)
    if times is None:
        return int(says_so.sum())
    return int(times[says_so.to_numpy()].sum())


def reasons_in(table: pd.DataFrame) -> tuple[str, ...]:
    """Why nothing can be claimed of the file that a table was made from, a whole sentence each."""
    if REFUSED_BECAUSE not in table:
        return ()
    return tuple(str(reason) for reason in table[REFUSED_BECAUSE].dropna().unique())


@dataclass(frozen=True)
class Facts:
    """What a file states; a sentence has no full stop at its end.

    ``means`` is what a 1 of each score says. ``deterministic`` says why an answer has no chance in it (greedy decoding),
    ``repeated`` why answers are no new draws (a cache, a seed that each request carries), ``unfinished`` why the run did
    not end, ``mixed`` why the answers to a question are those of several models or to several questions. ``engine`` is what
    drew the answers. ``refused`` holds whole sentences: why nothing could be claimed of the file that a table was made from.
    ``sampling`` has the settings of which all rows of a table that state them have one value.
    """

    means: Mapping[str, Meaning] = field(default_factory=dict)
    deterministic: str | None = None
    repeated: str | None = None
    unfinished: str | None = None
    engine: str | None = None
    mixed: str | None = None
    refused: tuple[str, ...] = ()
    sampling: Mapping[str, Json] = field(default_factory=dict)

    def meaning(self, score: str) -> Meaning:
        return self.means.get(score, "unknown")


def named(name: str) -> Meaning:
    """What a 1 says in a column of a user's file, by the column's name.

    >>> [named(name) for name in ("has_leaked", "passed", "accuracy", "is_safe", "leak_prevented", "1-leak")]
    ['leak', 'pass', 'match', 'refusal', 'unknown', 'unknown']
    """
    words = set(WORD.findall(name.replace("_", " ").casefold()))
    if NOT & words or TURNED.search(name):
        return "unknown"
    for meaning, said in WORDS_OF.items():
        meant = words & set(said.split())
        if not meant:
            continue
        if meaning == "leak" and words - meant - BESIDE_LEAK:
            return "unknown"
        return meaning
    return "unknown"


def scorer_of(name: str) -> str:
    """The scorer behind a column of scores, without the endings of its parts and turns.

    >>> scorer_of("keyword_leak_thinking"), scorer_of("harmbench_p")
    ('keyword_leak', 'harmbench')
    """
    return ENDING.sub("", name)


def of_column(name: str) -> Meaning:
    """What a 1 says in a column of a plain table: Lethe's own columns are known, others by their name.

    >>> [of_column(name) for name in ("score", "rouge_l", "keyword_leak_thinking", "success")]
    ['leak', 'leak', 'leak', 'pass']
    """
    scorer = scorer_of(name)
    if name == DOCUMENTED or scorer in SCORERS or scorer in JUDGES:
        return "leak"
    return named(name)
