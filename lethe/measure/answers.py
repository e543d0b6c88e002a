"""The answers of a model joined with their scores, a part at a time: histograms, worst answers, what a scorer gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import MissingArtifact
from lethe.io.answer_ends import CUT_OFF
from lethe.io.artifacts import (
    BESIDE,
    KEYS,
    TURNS,
    columns_in,
    columns_of,
    joined_parts,
    parts_of,
    read_parts,
    record_of_draws,
    same_answers,
)
from lethe.io.artifacts import Tables as StoredTables
from lethe.io.files import Json
from lethe.io.tables import read_arrow
from lethe.scoring.parts import CUT

if TYPE_CHECKING:
    import pandas as pd

    Tables = Mapping[str, pd.DataFrame]


class AnswerTables(StoredTables):
    """A table per split, generations joined with scores, in drawing order.

    ``files`` has the two tables of each split. Nothing is read before a split is asked for.
    """

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
        drawn, scores = self.files[split]
        if split not in self._same:
            self._same[split] = same_answers(drawn, scores)
        later_turns = drawn.parent / TURNS
        wants_text = columns is None or "text" in columns
        has_turns = split == "forget" and later_turns.is_file()
        for part in joined_parts(drawn, scores, columns, self._same[split]):
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
    keys = [*KEYS]
    questions = part["prompt_id"].unique().tolist()
    turns = read_arrow(later_turns, questions).to_pandas()
    answers = turns["text"].fillna("(no answer)")
    turns["more"] = "\n\n> " + turns["followup"] + "\n\n" + answers
    later = turns.groupby(keys, sort=False)["more"].agg("".join).reset_index()
    of_part = part[keys].merge(later, on=keys, how="left")["more"].fillna("")
    return part.assign(text=part["text"] + of_part.to_numpy())


@dataclass(frozen=True)
class AnswerCounts:
    """The sampled answers to a question.

    Attributes
    ----------
    leaks
        The answers that leak.
    n
        All sampled answers.
    missing
        Those without a score.
    cut
        Those that ended at the token limit.
    cut_clean
        Those of them that neither leak nor lack a score.
    """

    leaks: int = 0
    n: int = 0
    missing: int = 0
    cut: int = 0
    cut_clean: int = 0


CountedByQuestion = Mapping[str, AnswerCounts]


@dataclass(frozen=True)
class CountsAtAnyTime:
    """What the word on a model rests on.

    Attributes
    ----------
    model
        The counts of its answers, by question.
    retrains
        The same of each Retrain, by its name.
    independent
        Whether no two of the models share random numbers, so that their likelihoods may be multiplied. With
        `sample.stream: shared` only the ends of each side hold together.
    """

    model: CountedByQuestion
    retrains: Mapping[str, CountedByQuestion]
    independent: bool


def counts_at_any_time(
    root: Path, model: str, scorer: str, retrains: Sequence[str] = ()
) -> CountsAtAnyTime | None:
    """All answers of a model to the forget questions, and those of ``retrains``, which `sample.stop: word` drew beside it.

    Every other number rests on the first answers (`lethe.io.artifacts.at_first`); the words alone read all of them. With
    `sample.stop: fixed` nothing is drawn beside a model, and the Retrain's counts are those of its own stage.

    Parameters
    ----------
    root
        The folder of all artifacts.
    scorer
        A column of 0 and 1 (`metrics.binary`).
    retrains
        The names of the Retrains.

    Returns
    -------
    CountsAtAnyTime or None
        A question of which no answer of a Retrain was drawn counts 0 of 0. A question that the scorer cannot judge has no
        score at all, so that ``missing`` is ``n``. None where the scores lack the column.

    Raises
    ------
    MissingArtifact
        If the answers or scores of a model are missing.
    """
    counts = _counts(root, Path(model, "forget.parquet"), scorer, model)
    if counts is None:
        return None
    record = _record(root, model)
    is_to_word = record.get("stop") == "word"
    streams = [record.get("stream", "shared")]

    counts_of_retrain = {}
    for retrain in retrains:
        drawn: CountedByQuestion | None = {}
        if is_to_word:
            of_retrain = record.get("word", {}).get("beside", {}).get(retrain)
            if (
                of_retrain is not None
            ):  # else the model is this Retrain: nothing was drawn beside it
                beside = Path(model, BESIDE, f"{retrain}.parquet")
                drawn = _counts(root, beside, scorer, model)
                streams.append(of_retrain["stream"])
        else:
            drawn = _counts(root, Path(retrain, "forget.parquet"), scorer, retrain)
            streams.append(_record(root, retrain).get("stream", "shared"))
        counts_of_retrain[retrain] = dict.fromkeys(counts, AnswerCounts())
        for name, counted in (drawn or {}).items():
            if name in counts:
                counts_of_retrain[retrain][name] = counted

    # Two models of one stream share random numbers.
    are_different = len(set(streams)) == len(streams)
    is_independent = are_different and "shared" not in streams
    return CountsAtAnyTime(counts, counts_of_retrain, is_independent)


def _record(root: Path, model: str) -> Mapping[str, Json]:
    """How the answers of a model were drawn."""
    return record_of_draws(root / "generations" / model / "forget.parquet")


def _counts(root: Path, place: Path, scorer: str, model: str) -> dict[str, AnswerCounts] | None:
    """The counts of one table by question; None where it has no such column of scores.

    ``place`` is that of the table among the generations, and among the scores. Raises `MissingArtifact`, which names the
    stage of ``model`` that writes it.
    """
    drawn = root / "generations" / place
    scores = root / "scores" / place
    if not drawn.is_file():
        raise MissingArtifact(drawn, f"sample@{model}")
    if not scores.is_file():
        raise MissingArtifact(scores, f"score@{model}")
    if scorer not in columns_of(scores):
        return None
    counts = {}
    for question, values, cut in sampled_scores(drawn, scores, scorer):
        counts[question] = _counted(values, cut)
    return counts


def sampled_scores(
    drawn: Path, scores: Path, scorer: str
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each question with two arrays (n,) of its sampled answers in drawing order: scores, and whether an answer was cut.

    ``drawn`` and ``scores`` are tables of the same answers; ``scorer`` is a column of the latter, NaN where missing.
    """
    ended = [CUT] if CUT in columns_of(scores) else []
    parts_drawn = read_parts(drawn, [*KEYS, "finish_reason"])
    parts_scored = read_parts(scores, [*KEYS, scorer, *ended])
    for answers, scored_answers in zip(parts_drawn, parts_scored, strict=True):
        cut = (answers["finish_reason"] == CUT_OFF).to_numpy()
        if ended:
            cut = cut | (scored_answers[CUT] == 1.0).to_numpy()
        values = scored_answers[scorer].to_numpy(dtype=np.float64)
        sampled = (answers["sample"] >= 0).to_numpy()
        for question, rows in answers.groupby("prompt_id", sort=False).indices.items():
            places = rows[sampled[rows]]
            yield str(question), values[places], cut[places]


def _counted(values: np.ndarray, cut: np.ndarray) -> AnswerCounts:
    """The counts of a question's sampled answers from two arrays (n,): its scores, and whether an answer was cut."""
    cut_clean = cut & (values == 0)
    return AnswerCounts(
        leaks=int((values == 1).sum()),
        n=len(values),
        missing=int(np.isnan(values).sum()),
        cut=int(cut.sum()),
        cut_clean=int(cut_clean.sum()),
    )


def answer_parts(answers: Tables, split: str, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The answers of a split a part at a time, whole questions each; a table that lies in memory is one part."""
    return parts_of(answers, split, list(dict.fromkeys(("prompt_id", "sample", *columns))))


def scored(
    answers: Tables,
    split: str,
    scorer: str,
    without: Sequence[str] = (),
    cut_off: bool = False,
) -> list[np.ndarray]:
    """A model's scores of the sampled answers, in sampling order, one array (n,) per question, NaN where missing.

    Empty where the scorer judged no answer, or where the questions differ in n: a pooled mean would weight them unequally,
    and an n that depends on the answers allows no interval for a fixed n.

    Parameters
    ----------
    answers
        A table per split, generations joined with scores.
    split
        The split, such as "forget".
    scorer
        The column of scores in [0, 1].
    without
        The questions that are left out.
    cut_off
        Whether an answer that ended at the token limit has no score.
    """
    if scorer not in columns_in(answers, split):
        return []
    columns = [scorer]
    if cut_off:
        ended = CUT if CUT in columns_in(answers, split) else "finish_reason"
        columns.append(ended)
    groups: list[np.ndarray] = []
    for part in answer_parts(answers, split, columns):
        is_left_out = part["prompt_id"].isin(list(without))
        sampled = part.loc[(part["sample"] >= 0) & ~is_left_out]
        if cut_off:
            ended_at_limit = sampled[ended].isin((CUT_OFF, 1.0))
            kept = sampled[scorer].where(~ended_at_limit)
            sampled = sampled.assign(**{scorer: kept})
        for _, values in sampled.groupby("prompt_id", sort=False)[scorer]:
            groups.append(values.to_numpy(dtype=np.float64))

    sizes = {len(group) for group in groups}
    has_scores = any(not np.isnan(group).all() for group in groups)
    if not has_scores or len(sizes) > 1:
        return []
    return groups


def enough(groups: Sequence[np.ndarray]) -> bool:
    """Whether an interval of a mean exists: two draws of each question, and four in all (`lethe.statistics.many_prompts`)."""
    if not groups:
        return False
    n = len(groups[0])
    return n >= 2 and n * len(groups) >= 4


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
    """One text among the answers to a question.

    Attributes
    ----------
    prompt_id
        The id of the question.
    times
        The number of samples with this text.
    first
        The number of the first of them.
    scores
        By the scorers that rank it, in their order; a missing one (None) ranks as 0.
    greedy
        Whether the greedy answer has the same text.
    """

    prompt_id: str
    text: str
    times: int
    first: int
    scores: tuple[float | None, ...]
    greedy: bool

    @property
    def rank(self) -> tuple[float, ...]:
        """The sort key: scores, then frequency, then the earlier first sample. The largest key is the worst answer."""
        return (*(score or 0.0 for score in self.scores), self.times, -self.first)


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """The sampled answers to one question.

    Attributes
    ----------
    drawn
        Their number.
    histogram
        The number of judged ones in each of `BINS` equal bins from 0 to 1, closed on the left; the last includes 1.
    worst
        The distinct ones with a score above 0, the worst first.
    """

    prompt_id: str
    drawn: int
    histogram: tuple[int, ...]
    worst: tuple[DrawnAnswer, ...]


def question_answers(
    answers: Tables, ranking: Sequence[str], leak: str, most: int
) -> dict[str, QuestionAnswers] | None:
    """The answers of a model by forget question, in sampling order; None where a scorer judged none of them.

    ``ranking`` are the scorers that say which answer is worse, the first first; ``leak`` is the scorer of the histogram.
    At most ``most`` answers to a question are listed.
    """
    has_scores = {*ranking, leak} <= set(columns_in(answers, "forget"))
    if not has_scores:
        return None
    by_question: dict[str, QuestionAnswers] = {}
    for table in answer_parts(answers, "forget", ["text", *ranking, leak]):
        sampled = table[table["sample"] >= 0]
        greedy = table[table["sample"] < 0]
        codes, names = sampled["prompt_id"].factorize()
        drawn = np.bincount(codes, minlength=len(names))
        values = sampled[leak].to_numpy(dtype=np.float64)
        histograms = _histograms(codes, values, len(names))

        greedy_of_question = dict(zip(greedy["prompt_id"], greedy["text"], strict=True))
        worst = _worst(sampled, ranking, most, greedy_of_question)
        for place, name in enumerate(names):
            by_question[name] = QuestionAnswers(
                prompt_id=name,
                drawn=int(drawn[place]),
                histogram=tuple(histograms[place].tolist()),
                worst=tuple(worst.get(name, ())),
            )
    return by_question


def _histograms(codes: np.ndarray, values: np.ndarray, n_questions: int) -> np.ndarray:
    """(n_questions, BINS) counts of the values (n,) that are not missing, whose questions are ``codes``, (n,)."""
    edges = np.linspace(0, 1, BINS + 1)
    present = ~np.isnan(values)
    bins = np.searchsorted(edges, values[present], side="right") - 1
    bins = np.clip(bins, 0, BINS - 1)
    cells = codes[present] * BINS + bins
    counts = np.bincount(cells, minlength=n_questions * BINS)
    return counts.reshape(-1, BINS)


def worst_answers(questions: Iterable[QuestionAnswers], most: int) -> list[DrawnAnswer]:
    """Return the worst answer of each question, limited to the ``most`` worst of these."""
    first = [question.worst[0] for question in questions if question.worst]
    return sorted(first, key=lambda answer: answer.rank, reverse=True)[:most]


def judged(answers: Tables, ranking: Sequence[str]) -> bool:
    """Whether one of the scorers judged any forget answer of a model."""
    columns = columns_in(answers, "forget")
    scorers = [name for name in ranking if name in columns]
    if not scorers:
        return False
    parts = answer_parts(answers, "forget", scorers)
    return any(part[scorers].notna().any(axis=None) for part in parts)


def _worst(
    sampled: pd.DataFrame, ranking: Sequence[str], most: int, greedy: Mapping[str, str]
) -> dict[str, list[DrawnAnswer]]:
    """The ``most`` worst distinct answers to each question; ``greedy`` is the greedy answer by question."""
    if not most:
        return {}
    scorers = list(ranking)

    # Equal texts of one question have equal scores, so the first represents all. An answer with score 0 is never listed.
    is_above = (sampled[scorers] > 0).any(axis=1)
    same = sampled[is_above].groupby(["prompt_id", "text"], sort=False)
    firsts = {name: (name, "first") for name in scorers}
    ranked = same.agg(times=("sample", "size"), first=("sample", "min"), **firsts).reset_index()

    # The order of `DrawnAnswer.rank`, the worst first.
    keys = [f"rank_{name}" for name in scorers]
    ranked[keys] = ranked[scorers].fillna(0.0).astype(float).to_numpy()
    ascending = [False] * len(keys) + [False, True]
    ranked = ranked.sort_values([*keys, "times", "first"], ascending=ascending, kind="stable")

    worst: dict[str, list[DrawnAnswer]] = {}
    for row in ranked.groupby("prompt_id", sort=False).head(most).to_dict("records"):
        scores: list[float | None] = []
        for scorer in scorers:
            is_missing = np.isnan(row[scorer])
            scores.append(None if is_missing else float(row[scorer]))
        question = row["prompt_id"]
        answer = DrawnAnswer(
            prompt_id=question,
            text=row["text"],
            times=row["times"],
            first=row["first"],
            scores=tuple(scores),
            greedy=greedy.get(question) == row["text"],
        )
        worst.setdefault(question, []).append(answer)
    return worst
