"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config.measuring import JudgeEntry, Parts, Score
from lethe.errors import BadInput, MissingArtifact
from lethe.io import artifacts
from lethe.io.answer_ends import CUT_OFF
from lethe.io.artifacts import Row
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json, write_text
from lethe.io.tables import read_arrow, read_table, write_parquet
from lethe.progress import progress, tell
from lethe.registry import ROUGE
from lethe.scoring import parts as answer_parts
from lethe.scoring.likelihood import score_likelihoods
from lethe.scoring.table import score_answers, scored_parts
from lethe.scoring.text import rouge
from lethe.scoring.typography import RULE

# The columns of the answers that scores depend on, if there.
READ = ("prompt_id", "sample", "text", "thinking", "production")


ROUGE_NAMES = {*ROUGE, "above"}  # "above" compares a score of ROUGE unless its entry names another


def run(
    name: str,
    score: Score,
    root: Path = Path("data"),
    judges: Mapping[str, JudgeEntry] | None = None,
    verdicts: Path | None = None,
    warned: Collection[str] = (),
) -> None:
    """Score ``root/generations/name`` and ``root/likelihood/name``, in parts; a judge keeps its own below ``verdicts``.

    ``warned`` are the splits whose reference answers the caller has already warned of.
    """
    generations = artifacts.Tables(root / "generations" / name, f"sample@{name}")
    references = artifacts.read_references(root / "generations" / name)
    likelihoods = {}
    values = artifacts.Tables(root / "likelihood" / name, f"likelihood@{name}")
    for split, table in values.items():
        likelihoods[split] = score_likelihoods(table, artifacts.read_items(split, root))
    how = (score.names, score.params, verdicts, references)
    judged = {judge: root / "judged" / judge / name for judge in judges or ()}
    prompts = None
    second = root / "generations" / name / artifacts.SECOND
    if second.is_file():
        prompts = _second(second, artifacts.read_items("forget", root), score, how, judged)
    missing: dict[str, Counter[str]] = {}
    rows: dict[str, int] = {}
    with atomic_folder(root / "scores" / name) as folder:
        if prompts is not None:
            write_parquet(folder / artifacts.SECOND, prompts)
        for split, path in generations.paths.items():
            missing[split] = Counter()
            items = artifacts.read_items(split, root)
            places = {judge: place / f"{split}.parquet" for judge, place in judged.items()}
            label = f"score {name} {split}"
            if ROUGE_NAMES & {*score.names} and split not in warned:
                for sentence in rouge.doubts(items.values()):
                    tell(f"{label}: {sentence}")
            parts = _counted(_scored(label, path, score, (items, *how), places), missing[split])
            rows[split] = artifacts.write_parts(folder / f"{split}.parquet", parts)
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
        }
        write_json(folder / "about.json", about)
    counts = ", ".join(f"{split} {count}" for split, count in rows.items())
    print(f"{name}: answers scored:", counts)


def _second(
    path: Path,
    items: Mapping[str, Row],
    score: Score,
    how: tuple,
    judged: Mapping[str, Path],
) -> pd.DataFrame:
    """The scores of the second sample of a language of prompts, with the verdicts in the folders of the judges."""
    drawn = read_table(path)
    scored = score_answers(answer_parts.answers_of(drawn, score.parts), items, *how)
    scored = scored.assign(
        prompt=drawn["prompt"].to_numpy(), production=drawn["production"].to_numpy()
    )
    for judge, folder in judged.items():
        place = folder / artifacts.SECOND
        verdicts = read_table(_there(place, judge))
        scored = _joined(scored, verdicts, place, ("prompt_id", "prompt", "sample"))
    return scored


def _scored(
    label: str, path: Path, score: Score, how: tuple, judged: Mapping[str, Path]
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
    for part in progress(_columns(path, score, how), label, unit, total):
        for place in judged.values():
            verdicts = read_arrow(place, part["prompt_id"].unique().tolist()).to_pandas()
            part = _joined(part, verdicts, place)
        yield part


@dataclass(frozen=True)
class ScoredTurn:
    """The answers of one turn, a row for each conversation, with their scores."""

    texts: pd.DataFrame  # ``asked``: whether the conversation came to this turn
    scores: pd.DataFrame
    thoughts: pd.DataFrame | None  # scores of the thinking; None where nothing thinks

    @property
    def asked(self) -> np.ndarray:
        return self.texts["asked"].to_numpy()

    @property
    def cut_off(self) -> np.ndarray:
        return (self.texts["finish_reason"] == CUT_OFF).to_numpy()

    def never_ended(self, marks: Parts | None) -> np.ndarray:
        """Whether the thinking of an answer has no end."""
        return answer_parts.unclosed(self.texts, marks) & self.asked


def _columns(path: Path, score: Score, how: tuple) -> Iterator[pd.DataFrame]:
    """The scores of a table, in parts.

    Where answers have turns, the scorer's own column has the worst turn, and each turn has a column of its own. Where
    they think, what the thinking says has columns of its own too.
    """
    columns = [column for column in artifacts.columns_of(path) if column in READ]
    last_turn = 1 + _turns(path)
    thinks = score.parts is not None or ("thinking" in columns and _has_thinking(path))
    if last_turn == 1 and not thinks:
        yield from scored_parts(lambda: artifacts.read_parts(path, columns), *how)
        return
    streams = []
    for turn in range(1, last_turn + 1):
        streams.append(_scored_turns(path, turn, columns, score.parts, thinks, how))
    for turns in zip(*streams, strict=True):
        yield _joined_turns(turns, score.parts, thinks)


def _has_thinking(path: Path) -> bool:
    parts = artifacts.read_parts(path, ["prompt_id", "thinking"])
    return any(part["thinking"].notna().any() for part in parts)


def _scored_turns(
    path: Path, turn: int, columns: Sequence[str], marks: Parts | None, thinks: bool, how: tuple
) -> Iterator[ScoredTurn]:
    """One turn of a table, in parts."""

    def drawn() -> Iterator[pd.DataFrame]:
        return _of_turn(path, [*columns, "finish_reason"], turn)

    def scored(texts_of: Callable[..., pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return scored_parts(lambda: (texts_of(part, marks) for part in drawn()), *how)

    answers = scored(answer_parts.answers_of)
    thoughts: Iterator[pd.DataFrame | None] = itertools.repeat(None)
    if thinks:
        thoughts = scored(answer_parts.thinking_of)
    # strict=False: the repetition of None has no end
    for texts, scores, thought in zip(drawn(), answers, thoughts, strict=False):
        yield ScoredTurn(texts, scores, thought)


def _joined_turns(turns: Sequence[ScoredTurn], marks: Parts | None, thinks: bool) -> pd.DataFrame:
    """One row per conversation."""
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
    asked = [turn.asked for turn in turns]
    return answer_parts.worst_turn(list(zip(asked, scores, strict=True)))


def _turns(path: Path) -> int:
    later = path.parent / artifacts.TURNS
    if path.stem != "forget" or not later.is_file():
        return 0
    parts = artifacts.read_parts(later, ["prompt_id", "turn"])
    last = max(part["turn"].max() for part in parts)
    return int(last) - 1


def _of_turn(path: Path, columns: Sequence[str], turn: int) -> Iterator[pd.DataFrame]:
    """The answers of one turn, a row for each conversation; ``asked`` says whether it came to that turn."""
    later = path.parent / artifacts.TURNS
    for part in artifacts.read_parts(path, columns):
        if turn == 1:
            yield part.assign(asked=True)
            continue
        turns = read_arrow(later, part["prompt_id"].unique().tolist()).to_pandas()
        first = part[[name for name in part if name in (*artifacts.KEYS, "production")]]
        kept = [name for name in turns if name in (*artifacts.KEYS, *columns)]
        answers = turns.loc[turns["turn"] == turn, kept].assign(asked=True)
        joined = first.merge(answers, on=[*artifacts.KEYS], how="left")
        yield joined.assign(asked=joined["asked"].notna())


def _counted(parts: Iterator[pd.DataFrame], missing: Counter[str]) -> Iterator[pd.DataFrame]:
    for part in parts:
        for column in part:
            if column not in artifacts.KEYS:
                missing[column] += int(part[column].isna().sum())
        yield part


def _there(place: Path, judge: str) -> Path:
    if not place.is_file():
        raise MissingArtifact(place, f"judge@{judge}")
    return place


def _joined(
    table: pd.DataFrame, verdicts: pd.DataFrame, place: Path, keys: Sequence[str] = artifacts.KEYS
) -> pd.DataFrame:
    artifacts.refuse_doubles(place, verdicts, keys)
    return table.merge(verdicts, on=list(keys), how="left")
