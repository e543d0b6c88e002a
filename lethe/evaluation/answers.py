"""The answers of a model joined with their scores, a part at a time: histograms, worst answers, what a scorer gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.artifacts import CUT_OFF, TURNS
from lethe.io.parts import KEYS, columns_of, joined_parts, same_answers
from lethe.io.tables import read_arrow
from lethe.scoring import CUT

if TYPE_CHECKING:
    import pandas as pd

    from lethe.evaluation.run import Model


class AnswerTables(Mapping[str, "pd.DataFrame"]):
    """A table per split: generations joined with scores, rows in drawing order.

    ``tables[split]`` reads the whole table anew; `parts` reads a part of it at a time.
    """

    def __init__(self, files: Mapping[str, tuple[Path, Path]]):
        self.files = files
        self._same: dict[str, bool] = {}  # by split, so that the keys of both files are compared once

    def __getitem__(self, split: str) -> pd.DataFrame:
        import pandas as pd

        return pd.concat(self.parts(split), ignore_index=True)

    def parts(self, split: str, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The table of a split a part at a time, as `lethe.io.parts.joined_parts` gives it."""
        if split not in self._same:
            self._same[split] = same_answers(*self.files[split])
        parts = joined_parts(*self.files[split], columns, self._same[split])
        later = self.files[split][0].parent / TURNS
        if split != "forget" or not later.is_file() or (columns is not None and "text" not in columns):
            yield from parts
            return
        for part in parts:
            yield with_turns(part, read_arrow(later, part["prompt_id"].unique().tolist()).to_pandas())

    def __contains__(self, split: object) -> bool:
        return split in self.files  # a Mapping's own would read the table

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def columns(self, split: str) -> list[str]:
        return list(dict.fromkeys(name for path in self.files[split] for name in columns_of(path)))


def with_turns(part: pd.DataFrame, turns: pd.DataFrame) -> pd.DataFrame:
    """Answers whose texts are whole conversations, for people: each follow-up question and its answer below."""
    said = "\n\n> " + turns["followup"] + "\n\n" + turns["text"].fillna("(no answer)")
    more = said.groupby([turns[key] for key in KEYS], sort=False).agg("".join).rename("more")
    joined = part[[*KEYS]].merge(more.reset_index(), on=[*KEYS], how="left")["more"].fillna("")
    return part.assign(text=part["text"] + joined.to_numpy())


def answer_columns(answers: Mapping[str, pd.DataFrame], split: str) -> list[str]:
    """The columns of a split; none if the split has no answers."""
    if isinstance(answers, AnswerTables):
        return answers.columns(split) if split in answers else []
    return list(answers[split].columns) if split in answers else []


def answer_parts(
    answers: Mapping[str, pd.DataFrame], split: str, columns: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """The answers of a split a part at a time, whole questions each; a table that lies in memory is one part."""
    wanted = list(dict.fromkeys(("prompt_id", "sample", *columns)))
    if isinstance(answers, AnswerTables):
        yield from answers.parts(split, wanted)
    else:
        yield answers[split][wanted]


def scored(
    model: Model, split: str, scorer: str, without: Sequence[str] = (), cut_off: bool = False
) -> list[np.ndarray]:
    """Scores of the sampled answers: one array per question, in sampling order.

    The list is empty where the scorer judged no answer, or where the questions differ in n. A pooled mean would then
    weight the questions unequally, and an n that depends on the answers allows no interval for a fixed n.
    """
    if scorer not in answer_columns(model.answers, split):
        return []
    groups: list[np.ndarray] = []
    ended = CUT if CUT in answer_columns(model.answers, split) else "finish_reason"
    for part in answer_parts(model.answers, split, [scorer, *([ended] if cut_off else [])]):
        sampled = part.loc[(part["sample"] >= 0) & ~part["prompt_id"].isin(list(without))]
        if cut_off:
            kept = sampled[scorer].where(~sampled[ended].isin((CUT_OFF, 1.0)))
            sampled = sampled.assign(**{scorer: kept})
        own = sampled.groupby("prompt_id", sort=False)[scorer]
        groups += [group.to_numpy(dtype=np.float64) for _, group in own]
    if all(np.isnan(group).all() for group in groups):
        return []
    return groups if len({len(group) for group in groups}) == 1 else []


def enough(groups: Sequence[np.ndarray]) -> bool:
    """Whether an interval of a mean exists: two draws of each question, and four in all (`lethe.statistics.many_prompts`)."""
    return bool(groups) and len(groups[0]) >= 2 and len(groups) * len(groups[0]) >= 4


def judges(scorer: str | None, models: list[Model]) -> bool:
    """Whether a scorer judged the forget answers of at least one model, and gave only 0 and 1 to those of every model."""
    judged = False
    for model in models if scorer else ():  # the scores of one model in memory at a time
        for group in scored(model, "forget", scorer or ""):
            if not np.isin(group[~np.isnan(group)], (0.0, 1.0)).all():
                return False
            judged = True
    return judged


def unjudged(model: Model) -> list[str]:
    """The forget questions that the 0/1 scorer cannot judge, because they have no keywords."""
    leaks = {question.prompt_id: question.numbers.row("leak") for question in model.questions}
    bounded = {name for name, row in leaks.items() if row and row.upper is not None}
    # None is bounded where there is no 0/1 scorer, or where all questions stopped early.
    return [name for name in leaks if name not in bounded] if bounded else []


BINS = 25  # of a histogram of scores in [0, 1]


@dataclass(frozen=True, slots=True)
class DrawnAnswer:
    """One text among the answers to a question; ``scores`` are in the order in which they rank the answers.

    A missing score is None. A missing score ranks as 0, because nothing shows that the answer leaks.
    """

    prompt_id: str
    text: str
    times: int  # the number of samples with this text
    first: int  # the number of the first sample with this text
    scores: tuple[float | None, ...]
    greedy: bool  # whether the greedy answer has the same text

    @property
    def rank(self) -> tuple[float, ...]:
        """The sort key: scores, then frequency, then the earlier first sample. The largest key is the worst answer."""
        return (*(score or 0.0 for score in self.scores), self.times, -self.first)


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """The sampled answers to one question.

    ``histogram`` counts the judged answers in `BINS` equal bins of the leakage score from 0 to 1. Bins are closed on the
    left, and the last bin includes 1. ``worst`` has the distinct answers with a score above 0, the worst first.
    """

    prompt_id: str
    drawn: int
    histogram: tuple[int, ...]
    worst: tuple[DrawnAnswer, ...]


def question_answers(
    answers: Mapping[str, pd.DataFrame], ranking: Sequence[str], leak: str, most: int
) -> dict[str, QuestionAnswers] | None:
    """The answers of a model by forget question, in sampling order."""
    if not {*ranking, leak} <= set(answer_columns(answers, "forget")):
        return None
    found: dict[str, QuestionAnswers] = {}
    for table in answer_parts(answers, "forget", ["text", *ranking, leak]):
        sampled, greedy = table[table["sample"] >= 0], table[table["sample"] < 0]
        codes, names = sampled["prompt_id"].factorize()
        drawn = np.bincount(codes, minlength=len(names)).tolist()
        counts = _histograms(codes, sampled[leak].to_numpy(dtype=np.float64), len(names)).tolist()
        worst = _worst(sampled, ranking, most, dict(zip(greedy["prompt_id"], greedy["text"], strict=True)))
        for place, name in enumerate(names):
            own = tuple(worst.get(name, ()))
            found[name] = QuestionAnswers(name, drawn[place], tuple(counts[place]), own)
    return found


def worst_answers(questions: Iterable[QuestionAnswers], most: int) -> list[DrawnAnswer]:
    """Return the worst answer of each question, limited to the ``most`` worst of these."""
    first = [question.worst[0] for question in questions if question.worst]
    return sorted(first, key=lambda answer: answer.rank, reverse=True)[:most]


def judged(model: Model, ranking: Sequence[str]) -> bool:
    """Whether one of the scorers judged any forget answer of the model."""
    columns = answer_columns(model.answers, "forget")
    known = [name for name in ranking if name in columns]
    return bool(known) and any(
        not part[known].isna().all(axis=None) for part in answer_parts(model.answers, "forget", known)
    )


def _histograms(codes: np.ndarray, values: np.ndarray, questions: int) -> np.ndarray:
    """(questions, BINS) counts of the values that are not missing."""
    known = ~np.isnan(values)
    edges = np.linspace(0, 1, BINS + 1)
    bins = np.clip(np.searchsorted(edges, values[known], side="right") - 1, 0, BINS - 1)
    return np.bincount(codes[known] * BINS + bins, minlength=questions * BINS).reshape(questions, BINS)


def _worst(
    sampled: pd.DataFrame, ranking: Sequence[str], most: int, greedy: Mapping[str, str]
) -> dict[str, list[DrawnAnswer]]:
    if not most:
        return {}
    # Equal texts of one question have equal scores, so the first represents all. An answer with score 0 is never listed.
    above = sampled[(sampled[list(ranking)] > 0).any(axis=1)]
    groups = above.groupby(["prompt_id", "text"], sort=False)
    ranked = groups.agg(
        times=("sample", "size"), first=("sample", "min"), **{name: (name, "first") for name in ranking}
    ).reset_index()
    keys = [f"rank_{name}" for name in ranking]
    ranked[keys] = ranked[list(ranking)].fillna(0.0).astype(float).to_numpy()
    order = [*(False for _ in keys), False, True]
    ranked = ranked.sort_values([*keys, "times", "first"], ascending=order, kind="stable")
    found: dict[str, list[DrawnAnswer]] = {}
    for row in ranked.groupby("prompt_id", sort=False).head(most).to_dict("records"):
        scores = tuple(None if np.isnan(row[name]) else float(row[name]) for name in ranking)
        name, text = row["prompt_id"], row["text"]
        answer = DrawnAnswer(name, text, row["times"], row["first"], scores, greedy.get(name) == text)
        found.setdefault(name, []).append(answer)
    return found
