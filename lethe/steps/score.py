"""Stage `score@MODEL`: the scores of every generation, one column per scorer; a missing score is null, never 0."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config.evaluating import JudgeEntry, Score
from lethe.errors import BadInput, MissingArtifact
from lethe.io import artifacts
from lethe.io.answer_ends import CUT_OFF
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
    for split, given in artifacts.Tables(root / "likelihood" / name, f"likelihood@{name}").items():
        likelihoods[split] = score_likelihoods(given, artifacts.read_items(split, root))
    how = (score.names, score.params, verdicts, references)
    second = root / "generations" / name / artifacts.SECOND
    if second.is_file():
        drawn = read_table(second)
        answers, items = (
            answer_parts.answers_of(drawn, score.parts),
            artifacts.read_items("forget", root),
        )
        scored = score_answers(answers, items, *how)
        prompts = scored.assign(
            prompt=drawn["prompt"].to_numpy(), production=drawn["production"].to_numpy()
        )
        for judge in judges or {}:
            place = root / "judged" / judge / name / artifacts.SECOND
            prompts = _joined(
                prompts, read_table(_there(place, judge)), place, ("prompt_id", "prompt", "sample")
            )
    missing: dict[str, Counter[str]] = {}
    rows: dict[str, int] = {}
    with atomic_folder(root / "scores" / name) as folder:
        if second.is_file():
            write_parquet(folder / artifacts.SECOND, prompts)
        for split, path in generations.paths.items():
            missing[split] = Counter()
            items = artifacts.read_items(split, root)
            places = {
                judge: root / "judged" / judge / name / f"{split}.parquet" for judge in judges or ()
            }
            label = f"score {name} {split}"
            if ROUGE_NAMES & {*score.names} and split not in warned:
                for sentence in rouge.doubts(items.values()):
                    tell(f"{label}: {sentence}")
            parts = _counted(_scored(label, path, score, (items, *how), places), missing[split])
            rows[split] = artifacts.write_parts(folder / f"{split}.parquet", parts)
        if not likelihoods:
            given_none = (root / "likelihood" / name / artifacts.NO_TABLES).read_text(
                encoding="utf-8"
            )
            write_text(folder / "likelihood" / artifacts.NO_TABLES, given_none)
        for split, table in likelihoods.items():
            write_parquet(folder / "likelihood" / f"{split}.parquet", table)
        about = {
            "schema": SCHEMA_VERSION,
            "scorers": [*score.names, *(judges or ())],
            "missing": missing,
            "normalisation": RULE,
        }
        write_json(folder / "about.json", about)
    print(
        f"{name}: answers scored:", ", ".join(f"{split} {count}" for split, count in rows.items())
    )


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
    for part in progress(
        _columns(path, score, how), label, f"parts of {artifacts.ROWS:,} answers", total
    ):
        for place in judged.values():
            part = _joined(
                part, read_arrow(place, part["prompt_id"].unique().tolist()).to_pandas(), place
            )
        yield part


def _columns(path: Path, score: Score, how: tuple) -> Iterator[pd.DataFrame]:
    """The scores of a table. Where answers have turns, the scorer's own column has its worst turn; what the
    thinking says, and each turn, has columns of its own."""
    columns = [column for column in artifacts.columns_of(path) if column in READ]
    turns, thinks = _turns(path), score.parts is not None
    if "thinking" in columns:
        thinks |= any(
            part["thinking"].notna().any()
            for part in artifacts.read_parts(path, ["prompt_id", "thinking"])
        )
    if not turns and not thinks:
        yield from scored_parts(lambda: artifacts.read_parts(path, columns), *how)
        return

    def drawn(turn: int) -> Iterator[pd.DataFrame]:
        return _of_turn(path, [*columns, "finish_reason"], turn)

    def scored_of(turn: int, texts_of: Callable[..., pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return scored_parts(lambda: (texts_of(one, score.parts) for one in drawn(turn)), *how)

    every = []
    for turn in range(1, turns + 2):
        thoughts: Iterator = (
            scored_of(turn, answer_parts.thinking_of) if thinks else itertools.repeat(None)
        )
        every.append(
            zip(drawn(turn), scored_of(turn, answer_parts.answers_of), thoughts, strict=False)
        )
    for part in zip(*every, strict=True):
        asked = [texts["asked"].to_numpy() for texts, _, _ in part]
        made: dict[str, np.ndarray] = {}
        names = [name for name in part[0][1] if name not in artifacts.KEYS]
        for name in names:
            scores = [scored[name].to_numpy() for _, scored, _ in part]
            made[name] = (
                answer_parts.worst_turn(list(zip(asked, scores, strict=True)))
                if turns
                else scores[0]
            )
            if turns:
                made |= {
                    name + answer_parts.TURN.format(turn): own
                    for turn, own in enumerate(scores, start=1)
                }
        for name in names if thinks else ():
            scores = [thought[name].to_numpy() for _, _, thought in part]
            made[name + answer_parts.THINKING] = answer_parts.worst_turn(
                list(zip(asked, scores, strict=True))
            )
        open_ended = [
            answer_parts.unclosed(texts, score.parts) & own
            for (texts, _, _), own in zip(part, asked, strict=True)
        ]
        cut = [(texts["finish_reason"] == CUT_OFF).to_numpy() for texts, _, _ in part]
        made[answer_parts.ASKED] = np.sum(asked, axis=0)
        made[answer_parts.CUT] = np.any([*cut, *(open_ended if thinks else [])], axis=0).astype(
            np.float64
        )
        if thinks:
            made[answer_parts.UNCLOSED] = np.any(open_ended, axis=0).astype(np.float64)
        yield part[0][1][[*artifacts.KEYS]].assign(**made)


def _turns(path: Path) -> int:
    later = path.parent / artifacts.TURNS
    if path.stem != "forget" or not later.is_file():
        return 0
    return (
        int(max(part["turn"].max() for part in artifacts.read_parts(later, ["prompt_id", "turn"])))
        - 1
    )


def _of_turn(path: Path, columns: Sequence[str], turn: int) -> Iterator[pd.DataFrame]:
    """The answers of one turn, a row for each conversation; ``asked`` says whether it came to that turn."""
    for part in artifacts.read_parts(path, columns):
        if turn == 1:
            yield part.assign(asked=True)
            continue
        own = read_arrow(
            path.parent / artifacts.TURNS, part["prompt_id"].unique().tolist()
        ).to_pandas()
        first = part[[name for name in part if name in (*artifacts.KEYS, "production")]]
        given = [name for name in own if name in (*artifacts.KEYS, *columns)]
        yield first.merge(
            own.loc[own["turn"] == turn, given].assign(asked=True), on=[*artifacts.KEYS], how="left"
        ).assign(asked=lambda table: table["asked"].notna())


def _counted(parts: Iterator[pd.DataFrame], missing: Counter[str]) -> Iterator[pd.DataFrame]:
    for part in parts:
        missing.update(
            {
                column: int(part[column].isna().sum())
                for column in part
                if column not in artifacts.KEYS
            }
        )
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
