"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config.measuring import JudgeEntry, Parts, ScoreSettings
from lethe.errors import BadInput, MissingArtifact
from lethe.io import artifacts
from lethe.io.answer_ends import CUT_OFF
from lethe.io.artifacts import References, Row
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json, write_text
from lethe.io.tables import read_arrow, read_table, write_parquet
from lethe.progress import progress, tell
from lethe.registry import JUDGES, ROUGE
from lethe.scoring import parts as answer_parts
from lethe.scoring.likelihood import score_likelihoods
from lethe.scoring.table import scored_parts
from lethe.scoring.text import rouge
from lethe.scoring.typography import RULE

# The columns of the answers that scores depend on, if there.
READ = ("prompt_id", "sample", "text", "thinking", "production")

ROUGE_NAMES = {*ROUGE, "above"}  # "above" compares a score of ROUGE unless its entry names another


def run(
    name: str,
    score: ScoreSettings,
    root: Path = Path("data"),
    judges: Mapping[str, JudgeEntry] | None = None,
    verdicts: Path | None = None,
    warned: Collection[str] = (),
) -> None:
    """Score ``root/generations/name`` and ``root/likelihood/name``, in parts; write ``root/scores/name``.

    Parameters
    ----------
    name
        The model, as the entry of ``models`` calls it.
    score
        The scorers with their parameters, and the marks of thinking.
    root
        The folder of all artifacts.
    judges
        The judges whose verdicts in ``root/judged`` become columns.
    verdicts
        The folder in which a judge among the scorers keeps its verdicts; None keeps none.
    warned
        The splits whose reference answers the caller has already warned of.

    Raises
    ------
    BadInput
        If judges of first answers are to judge conversations.
    MissingArtifact
        If a judge has not judged a split.
    """
    place = root / "generations" / name
    generations = artifacts.Tables(place, f"sample@{name}")
    scoring = Scoring(score, verdicts, artifacts.read_references(place))

    # What lies in memory as a whole: likelihoods, and the second sample of a language.
    likelihoods = {}
    values = artifacts.Tables(root / "likelihood" / name, f"likelihood@{name}")
    for split, table in values.items():
        likelihoods[split] = score_likelihoods(table, artifacts.read_items(split, root))
    judged = {judge: root / "judged" / judge / name for judge in judges or ()}
    prompts = None
    second = place / artifacts.SECOND
    if second.is_file():
        prompts = _second(second, artifacts.read_items("forget", root), scoring, judged)

    missing: dict[str, Counter[str]] = {}
    counts = []
    with atomic_folder(root / "scores" / name) as folder:
        if prompts is not None:
            write_parquet(folder / artifacts.SECOND, prompts)

        for split, path in generations.paths.items():
            missing[split] = Counter()
            items = artifacts.read_items(split, root)
            label = f"score {name} {split}"
            if split not in warned and not ROUGE_NAMES.isdisjoint(score.names):
                for sentence in rouge.doubts(items.values()):
                    tell(f"{label}: {sentence}")
            tables = {judge: made / f"{split}.parquet" for judge, made in judged.items()}
            parts = _scored(label, path, items, scoring, tables)
            counted = _counted(parts, missing[split], artifacts.at_first(path))
            rows = artifacts.write_parts(folder / f"{split}.parquet", counted)
            counts.append(f"{split} {rows}")
        _score_beside(name, scoring, root, folder / artifacts.BESIDE, judged)

        if not likelihoods:
            stated = root / "likelihood" / name / artifacts.NO_TABLES
            reason = stated.read_text(encoding="utf-8")
            write_text(folder / "likelihood" / artifacts.NO_TABLES, reason)
        for split, table in likelihoods.items():
            write_parquet(folder / "likelihood" / f"{split}.parquet", table)

        about = {
            "schema": SCHEMA_VERSION,
            "scorers": [*score.names, *judged],
            "missing": missing,
            "normalisation": RULE,
            "parameters": {
                scorer: params.model_dump(mode="json") for scorer, params in score.params.items()
            },
        }
        write_json(folder / "about.json", about)
    print(f"{name}: answers scored:", ", ".join(counts))


@dataclass(frozen=True)
class Scoring:
    """How answers are scored.

    Attributes
    ----------
    settings
        The scorers with their parameters, and the marks of thinking.
    verdicts
        The folder in which judges keep theirs; None keeps none.
    references
        What single wordings of a language ask for instead.
    """

    settings: ScoreSettings
    verdicts: Path | None
    references: References

    @property
    def marks(self) -> Parts | None:
        """The marks of thinking."""
        return self.settings.parts

    def scored(self, texts: pd.DataFrame, items: Mapping[str, Row]) -> pd.DataFrame:
        """The scores of a table of texts that lies in memory."""
        (table,) = self.scored_parts(lambda: iter([texts]), items)
        return table

    def scored_parts(
        self, read: Callable[[], Iterator[pd.DataFrame]], items: Mapping[str, Row]
    ) -> Iterator[pd.DataFrame]:
        """The scores of the parts of a table, which ``read`` gives as often as it is called."""
        names = self.settings.names
        params = self.settings.params
        return scored_parts(read, items, names, params, self.verdicts, self.references)


def _second(
    path: Path, items: Mapping[str, Row], scoring: Scoring, judged: Mapping[str, Path]
) -> pd.DataFrame:
    """The scores of the second sample of a language of prompts, with the verdicts in the folders of the judges."""
    drawn = read_table(path)
    scored = scoring.scored(answer_parts.answers_of(drawn, scoring.marks), items)
    prompt = drawn["prompt"].to_numpy()
    production = drawn["production"].to_numpy()
    scored = scored.assign(prompt=prompt, production=production)
    for judge, folder in judged.items():
        place = folder / artifacts.SECOND
        verdicts = read_table(_there(place, judge))
        scored = _joined(scored, verdicts, place, ("prompt_id", "prompt", "sample"))
    return scored


def _scored(
    label: str,
    path: Path,
    items: Mapping[str, Row],
    scoring: Scoring,
    judged: Mapping[str, Path],
) -> Iterator[pd.DataFrame]:
    """The scores of a split in parts, with the columns of the judges, whose tables are ``judged``."""
    if judged and _turns(path):
        raise BadInput(
            f"The judges {', '.join(judged)} read the first answer alone, and questions have follow-up questions: list them "
            "under score.scorers, or remove followups."
        )
    for judge, place in judged.items():
        _there(place, judge)
    total = -(-artifacts.rows_of(path) // artifacts.ROWS)
    unit = f"parts of {artifacts.ROWS:,} answers"
    for part in progress(_columns(path, items, scoring), label, unit, total):
        for place in judged.values():
            part = _joined(part, _rows_of(place, part), place)
        yield part


def _rows_of(path: Path, part: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table about the questions of a part of another."""
    return read_arrow(path, part["prompt_id"].unique().tolist()).to_pandas()


@dataclass(frozen=True)
class ScoredTurn:
    """The answers of one turn, a row for each conversation, with their scores."""

    texts: pd.DataFrame  # ``asked``: whether the conversation came to this turn
    scores: pd.DataFrame
    thoughts: pd.DataFrame | None  # scores of the thinking; None where nothing thinks

    @property
    def asked(self) -> np.ndarray:
        """Whether a conversation came to this turn."""
        return self.texts["asked"].to_numpy()

    @property
    def cut_off(self) -> np.ndarray:
        """Whether an answer ended at the limit of its tokens."""
        is_cut = self.texts["finish_reason"] == CUT_OFF
        return is_cut.to_numpy()

    def never_ended(self, marks: Parts | None) -> np.ndarray:
        """Whether the thinking of an answer has no end."""
        return answer_parts.unclosed(self.texts, marks) & self.asked


def _columns(path: Path, items: Mapping[str, Row], scoring: Scoring) -> Iterator[pd.DataFrame]:
    """The scores of a table, in parts.

    Where answers have turns, the scorer's own column has the worst turn, and each turn has a column of its own. Where
    they think, what the thinking says has columns of its own too.
    """
    columns = [column for column in artifacts.columns_of(path) if column in READ]
    last_turn = 1 + _turns(path)
    thinks = scoring.marks is not None or ("thinking" in columns and _has_thinking(path))
    if last_turn == 1 and not thinks:
        yield from scoring.scored_parts(partial(artifacts.read_parts, path, columns), items)
        return

    # All turns are read in parallel, so that a part has whole conversations.
    streams = []
    for turn in range(1, last_turn + 1):
        streams.append(_scored_turns(path, turn, columns, items, scoring, thinks))
    for turns in zip(*streams, strict=True):
        yield _joined_turns(turns, scoring.marks, thinks)


def _has_thinking(path: Path) -> bool:
    """Whether some answer of a table has a text of thinking."""
    parts = artifacts.read_parts(path, ["prompt_id", "thinking"])
    return any(part["thinking"].notna().any() for part in parts)


def _scored_turns(
    path: Path,
    turn: int,
    columns: Sequence[str],
    items: Mapping[str, Row],
    scoring: Scoring,
    thinks: bool,
) -> Iterator[ScoredTurn]:
    """One turn of a table, in parts."""

    def drawn() -> Iterator[pd.DataFrame]:
        return _of_turn(path, [*columns, "finish_reason"], turn)

    def scored(texts_of: Callable[..., pd.DataFrame]) -> Iterator[pd.DataFrame]:
        def texts() -> Iterator[pd.DataFrame]:
            for part in drawn():
                yield texts_of(part, scoring.marks)

        return scoring.scored_parts(texts, items)

    answers = scored(answer_parts.answers_of)
    thoughts: Iterator[pd.DataFrame | None] = itertools.repeat(None)
    if thinks:
        thoughts = scored(answer_parts.thinking_of)
    # strict=False: the repetition of None has no end
    for texts, scores, thought in zip(drawn(), answers, thoughts, strict=False):
        yield ScoredTurn(texts, scores, thought)


def _joined_turns(turns: Sequence[ScoredTurn], marks: Parts | None, thinks: bool) -> pd.DataFrame:
    """One row per conversation: the worst turn of each scorer, each turn, what is said while thinking, and how it ended."""
    first = turns[0].scores
    scorers = [name for name in first if name not in artifacts.KEYS]
    made: dict[str, np.ndarray] = {}
    for name in scorers:
        scores = [turn.scores[name].to_numpy() for turn in turns]
        if len(turns) == 1:
            made[name] = scores[0]
            continue
        made[name] = _worst_turn(turns, scores)
        for number, values in enumerate(scores, start=1):
            made[name + answer_parts.TURN.format(number)] = values
    if thinks:
        for name in scorers:
            scores = [turn.thoughts[name].to_numpy() for turn in turns if turn.thoughts is not None]
            made[name + answer_parts.THINKING] = _worst_turn(turns, scores)

    made[answer_parts.ASKED] = np.sum([turn.asked for turn in turns], axis=0)
    cut_off = np.any([turn.cut_off for turn in turns], axis=0)
    if thinks:
        never_ended = np.any([turn.never_ended(marks) for turn in turns], axis=0)
        cut_off = cut_off | never_ended
    made[answer_parts.CUT] = cut_off.astype(np.float64)
    if thinks:
        made[answer_parts.UNCLOSED] = never_ended.astype(np.float64)
    return first[[*artifacts.KEYS]].assign(**made)


def _worst_turn(turns: Sequence[ScoredTurn], scores: Sequence[np.ndarray]) -> np.ndarray:
    """The largest score of the turns to which a conversation came."""
    asked = [turn.asked for turn in turns]
    return answer_parts.worst_turn(list(zip(asked, scores, strict=True)))


def _turns(path: Path) -> int:
    """The number of follow-up questions in the longest conversation."""
    later = path.parent / artifacts.TURNS
    if path.stem != "forget" or not later.is_file():
        return 0
    last = 1
    for part in artifacts.read_parts(later, ["prompt_id", "turn"]):
        last = max(last, int(part["turn"].max()))
    return last - 1


def _of_turn(path: Path, columns: Sequence[str], turn: int) -> Iterator[pd.DataFrame]:
    """The answers of one turn, a row for each conversation; ``asked`` says whether it came to that turn."""
    keys = [*artifacts.KEYS]
    of_conversation = (*keys, "production")
    of_answer = (*keys, *columns)
    later = path.parent / artifacts.TURNS
    for part in artifacts.read_parts(path, columns):
        if turn == 1:
            yield part.assign(asked=True)
            continue
        turns = _rows_of(later, part)
        first = part[[name for name in part if name in of_conversation]]
        kept = [name for name in turns if name in of_answer]
        answers = turns.loc[turns["turn"] == turn, kept]
        joined = first.merge(answers.assign(asked=True), on=keys, how="left")
        yield joined.assign(asked=joined["asked"].notna())


def _counted(
    parts: Iterator[pd.DataFrame], missing: Counter[str], at_first: int | None
) -> Iterator[pd.DataFrame]:
    """The same parts, whose missing scores are counted: those of the first answers, where a rule drew more."""
    for part in parts:
        counted = part
        if at_first is not None:
            counted = part[part["sample"] < at_first]
        for column in part:
            if column not in artifacts.KEYS:
                missing[column] += int(counted[column].isna().sum())
        yield part


def _score_beside(
    name: str, scoring: Scoring, root: Path, folder: Path, judged: Mapping[str, Path]
) -> None:
    """Score the answers of each Retrain that were drawn beside a model, by the text scorers and the judge that decides.

    A judge with a stage of its own has judged them, and its tables are ``judged``. Of the others, the judge whose verdicts
    the draws followed has kept these.
    """
    decides = artifacts.followed_scorer(root / "generations" / name / "forget.parquet")
    score = scoring.settings
    scorers = [scorer for scorer in score.names if scorer not in JUDGES or scorer == decides]
    items = artifacts.read_items("forget", root)
    for path in sorted((root / "generations" / name / artifacts.BESIDE).glob("*.parquet")):
        columns = [column for column in artifacts.columns_of(path) if column in READ]
        answers = partial(_answers_beside, path, columns, score.parts)
        parts = scored_parts(answers, items, scorers, score.params, scoring.verdicts)
        if decides is not None and decides in judged:
            place = _there(judged[decides] / artifacts.BESIDE / path.name, decides)
            parts = _with_verdicts(parts, place)
        artifacts.write_parts(folder / path.name, parts)


def _with_verdicts(parts: Iterable[pd.DataFrame], place: Path) -> Iterator[pd.DataFrame]:
    """The parts of a table with the columns of a judge's table."""
    verdicts = read_table(place)
    for part in parts:
        yield _joined(part, verdicts, place)


def _answers_beside(path: Path, columns: list[str], marks: Parts | None) -> Iterator[pd.DataFrame]:
    """The answers of a table without their thinking, in parts."""
    for part in artifacts.read_parts(path, columns):
        yield answer_parts.answers_of(part, marks)


def _there(place: Path, judge: str) -> Path:
    """The table of a judge; raises `MissingArtifact` where it was not made."""
    if not place.is_file():
        raise MissingArtifact(place, f"judge@{judge}")
    return place


def _joined(
    table: pd.DataFrame,
    verdicts: pd.DataFrame,
    place: Path,
    keys: Sequence[str] = artifacts.KEYS,
) -> pd.DataFrame:
    """The table with the columns of a judge; raises a sentence where the judge has two verdicts on an answer."""
    artifacts.refuse_doubles(place, verdicts, keys)
    return table.merge(verdicts, on=list(keys), how="left")
