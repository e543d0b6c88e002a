"""The answers of a model joined with their scores, a part at a time: histograms, worst answers, what a scorer gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.io.answer_ends import CUT_OFF
from lethe.io.artifacts import (
    KEYS,
    TURNS,
    columns_in,
    columns_of,
    joined_parts,
    parts_of,
    same_answers,
)
from lethe.io.artifacts import Tables as StoredTables
from lethe.io.tables import read_arrow
from lethe.scoring.parts import CUT

if TYPE_CHECKING:
    import pandas as pd

    Tables = Mapping[str, pd.DataFrame]


class AnswerTables(StoredTables):
    """A table per split, generations joined with scores, in drawing order."""

    def __init__(self, files: Mapping[str, tuple[Path, Path]]):
        self.files = files
        self.paths = {split: drawn for split, (drawn, _) in files.items()}
        # by split, so that the keys of both files are compared once
        self._same: dict[str, bool] = {}

    def __getitem__(self, split: str) -> pd.DataFrame:
        import pandas as pd

        return pd.concat(self.parts(split), ignore_index=True)

    def parts(self, split: str, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The table of a split a part at a time, as `lethe.io.artifacts.joined_parts` gives it."""
        if split not in self._same:
            self._same[split] = same_answers(*self.files[split])
        parts = joined_parts(*self.files[split], columns, self._same[split])
        later_turns = self.files[split][0].parent / TURNS
        wants_text = columns is None or "text" in columns
        has_turns = split == "forget" and later_turns.is_file()
        for part in parts:
            if has_turns and wants_text:
                part = _with_turns(part, later_turns)
            yield part

    def columns(self, split: str) -> list[str]:
        """The columns of both files, each once."""
        names: dict[str, None] = {}
        for path in self.files[split]:
            names |= dict.fromkeys(columns_of(path))
        return list(names)


def _with_turns(part: pd.DataFrame, later_turns: Path) -> pd.DataFrame:
    """For people the text is the whole conversation: each follow-up question and its answer below."""
    turns = read_arrow(later_turns, part["prompt_id"].unique().tolist()).to_pandas()
    asked = "\n\n> " + turns["followup"] + "\n\n" + turns["text"].fillna("(no answer)")
    of_sample = asked.groupby([turns[key] for key in KEYS], sort=False).agg("".join)
    more = of_sample.rename("more").reset_index()
    joined = part[[*KEYS]].merge(more, on=[*KEYS], how="left")["more"].fillna("")
    return part.assign(text=part["text"] + joined.to_numpy())


def answer_parts(answers: Tables, split: str, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The answers of a split a part at a time, whole questions each; a table that lies in memory is one part."""
    return parts_of(answers, split, list(dict.fromkeys(("prompt_id", "sample", *columns))))


def scored(
    answers: Tables, split: str, scorer: str, without: Sequence[str] = (), cut_off: bool = False
) -> list[np.ndarray]:
    """A model's scores of the sampled answers, in sampling order, one array per question.

    Empty where the scorer judged no answer, or where the questions differ in n: a pooled mean would weight them unequally,
    and an n that depends on the answers allows no interval for a fixed n.
    """
    if scorer not in columns_in(answers, split):
        return []
    groups: list[np.ndarray] = []
    ended = CUT if CUT in columns_in(answers, split) else "finish_reason"
    columns = [scorer, ended] if cut_off else [scorer]
    for part in answer_parts(answers, split, columns):
        sampled = part.loc[(part["sample"] >= 0) & ~part["prompt_id"].isin(list(without))]
        if cut_off:
            ended_at_limit = sampled[ended].isin((CUT_OFF, 1.0))
            sampled = sampled.assign(**{scorer: sampled[scorer].where(~ended_at_limit)})
        for _, values in sampled.groupby("prompt_id", sort=False)[scorer]:
            groups.append(values.to_numpy(dtype=np.float64))
    if all(np.isnan(group).all() for group in groups):
        return []
    return groups if len({len(group) for group in groups}) == 1 else []


def enough(groups: Sequence[np.ndarray]) -> bool:
    """Whether an interval of a mean exists: two draws of each question, and four in all (`lethe.statistics.many_prompts`)."""
    return bool(groups) and len(groups[0]) >= 2 and len(groups) * len(groups[0]) >= 4


def judges(scorer: str, models: Iterable[Tables]) -> bool:
    """Whether a scorer judged the forget answers of at least one model, and gave only 0 and 1 to those of every model."""
    has_judged = False
    for answers in models:  # the scores of one model in memory at a time
        for values in scored(answers, "forget", scorer):
            present = values[~np.isnan(values)]
            if not np.isin(present, (0.0, 1.0)).all():
                return False
            has_judged = True
    return has_judged


BINS = 25  # of a histogram of scores in [0, 1]


@dataclass(frozen=True, slots=True)
class DrawnAnswer:
    """One text among the answers to a question; ``scores`` rank it in their order, and a missing one (None) ranks as 0."""

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
    """The sampled answers to one question: judged ones counted in `BINS` equal bins from 0 to 1, closed on the left (the last
    includes 1), and in ``worst`` the distinct ones with a score above 0, the worst first.
    """

    prompt_id: str
    drawn: int
    histogram: tuple[int, ...]
    worst: tuple[DrawnAnswer, ...]


def question_answers(
    answers: Tables, ranking: Sequence[str], leak: str, most: int
) -> dict[str, QuestionAnswers] | None:
    """The answers of a model by forget question, in sampling order."""
    if not {*ranking, leak} <= set(columns_in(answers, "forget")):
        return None
    by_question: dict[str, QuestionAnswers] = {}
    edges = np.linspace(0, 1, BINS + 1)
    for table in answer_parts(answers, "forget", ["text", *ranking, leak]):
        sampled, greedy = table[table["sample"] >= 0], table[table["sample"] < 0]
        codes, names = sampled["prompt_id"].factorize()
        drawn = np.bincount(codes, minlength=len(names)).tolist()
        values = sampled[leak].to_numpy(dtype=np.float64)
        present = ~np.isnan(values)
        bins = np.clip(np.searchsorted(edges, values[present], side="right") - 1, 0, BINS - 1)
        cells = codes[present] * BINS + bins
        histograms = np.bincount(cells, minlength=len(names) * BINS).reshape(-1, BINS).tolist()
        greedy_of_question = dict(zip(greedy["prompt_id"], greedy["text"], strict=True))
        worst = _worst(sampled, ranking, most, greedy_of_question)
        for name, n, histogram in zip(names, drawn, histograms, strict=True):
            by_question[name] = QuestionAnswers(
                name, n, tuple(histogram), tuple(worst.get(name, ()))
            )
    return by_question


def worst_answers(questions: Iterable[QuestionAnswers], most: int) -> list[DrawnAnswer]:
    """Return the worst answer of each question, limited to the ``most`` worst of these."""
    first = [question.worst[0] for question in questions if question.worst]
    return sorted(first, key=lambda answer: answer.rank, reverse=True)[:most]


def judged(answers: Tables, ranking: Sequence[str]) -> bool:
    """Whether one of the scorers judged any forget answer of a model."""
    columns = columns_in(answers, "forget")
    scorers = [name for name in ranking if name in columns]
    parts = answer_parts(answers, "forget", scorers) if scorers else ()
    return any(part[scorers].notna().any(axis=None) for part in parts)


def _worst(
    sampled: pd.DataFrame, ranking: Sequence[str], most: int, greedy: Mapping[str, str]
) -> dict[str, list[DrawnAnswer]]:
    if not most:
        return {}
    # Equal texts of one question have equal scores, so the first represents all. An answer with score 0 is never listed.
    above = sampled[(sampled[list(ranking)] > 0).any(axis=1)]
    same = above.groupby(["prompt_id", "text"], sort=False)
    firsts = {name: (name, "first") for name in ranking}
    ranked = same.agg(times=("sample", "size"), first=("sample", "min"), **firsts).reset_index()
    keys = [f"rank_{name}" for name in ranking]
    ranked[keys] = ranked[list(ranking)].fillna(0.0).astype(float).to_numpy()
    order = [False] * (len(keys) + 1) + [True]
    ranked = ranked.sort_values([*keys, "times", "first"], ascending=order, kind="stable")
    worst: dict[str, list[DrawnAnswer]] = {}
    for row in ranked.groupby("prompt_id", sort=False).head(most).to_dict("records"):
        scores: list[float | None] = []
        for scorer in ranking:
            is_missing = np.isnan(row[scorer])
            score = None if is_missing else float(row[scorer])
            scores.append(score)
        name, text = row["prompt_id"], row["text"]
        answer = DrawnAnswer(
            prompt_id=name,
            text=text,
            times=row["times"],
            first=row["first"],
            scores=tuple(scores),
            greedy=greedy.get(name) == text,
        )
        worst.setdefault(name, []).append(answer)
    return worst
